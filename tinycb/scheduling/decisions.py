"""Why a request ran, waited, was preempted or ended: an action, a reason, and the numbers behind it.

A decision is made where the choice is made, with the numbers that forced it, and read everywhere else: the
screen, the tutorials and the exporters print `Decision.sentence` and work nothing out again. A running
request that decodes one token is the rule and needs no decision; a waiting request behind the head of the
queue waits for the head, whose decision stands for it. Everything else has one.

Next: `scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Decision", "Reason"]


class Reason(StrEnum):
    """Each with one sentence, whose blanks are the names of the decision's numbers."""

    text: str

    def __new__(cls, value: str, text: str = "") -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    # at the door
    REFUSED = "refused", "is refused: {why}"
    # admission
    ADMITTED = (
        "admitted",
        "starts with {tokens} of {todo} tokens ({hit} more are in the prefix cache) "
        "and takes {needs} of {free} free blocks",
    )
    READMITTED = (
        "readmitted",
        "comes back after a preemption with {tokens} of {todo} tokens to compute again "
        "({hit} more are in the prefix cache) and takes {needs} of {free} free blocks",
    )
    # running
    CHUNK = (
        "chunk",
        "runs a chunk of {tokens} tokens, {remaining} more to go; {budget} of the budget was left",
    )
    BUDGET_SPENT = "budget_spent", "waits: the budget of {limit} tokens is spent"
    SLOT_HELD = "slot_held", "is finished and holds its slot: {unfinished} others of the batch still run"
    # the queue
    NO_FREE_BLOCKS = "no_free_blocks", "waits: it needs {needs} blocks and {free} are free"
    MAX_NUM_SEQS = "max_num_seqs", "waits: {running} requests run, the limit is {limit}"
    AFTER_PREEMPTION = "after_preemption", "waits: this step preempted {preempted}, so it admits nobody"
    BATCH_RUNNING = "batch_running", "waits: {unfinished} of the batch still run, and it is not their batch"
    # preemption
    PREEMPTED_FOR = (
        "preempted_for",
        "is preempted for {winner}, which needs {needs} blocks with {free} free: "
        "it gives up {blocks} blocks and {computed} computed tokens",
    )
    PREEMPTED_ITSELF = (
        "preempted_itself",
        "needs {needs} blocks with {free} free and is itself the newest: "
        "it gives up {blocks} blocks and {computed} computed tokens",
    )
    # the end
    EOS_TOKEN = "eos_token", "is done: it sampled the end-of-sequence token {token}"
    STOP_TOKEN = "stop_token", "is done: it sampled its stop token {token}"
    STOP_STRING = "stop_string", "is done: its text holds the stop string {string!r}"
    MAX_TOKENS = "max_tokens", "is done: {output} of max_tokens {limit}"
    MAX_MODEL_LEN = "max_model_len", "is done: {length} tokens, and max_model_len is {limit}"
    POOL_END = "pool_end", "is done: {length} tokens, and the whole pool holds {limit}"
    RETURNED = "returned", "is returned with its batch, {held} steps after it was done"
    ABORTED = "aborted", "is aborted after {output} output tokens, with {computed} tokens computed"
    FAILED = "failed", "ends with an error: {error}"


@dataclass(frozen=True, slots=True)
class Decision:
    """`Decision("C", "wait", Reason.NO_FREE_BLOCKS, {"needs": 3, "free": 2})`.

    action: "admit", "prefill", "wait", "preempt", "hold", "finish", "return", "abort" or "refuse".
    """

    request_id: str
    action: str
    reason: Reason
    numbers: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        return f"{self.request_id} {self.reason.text.format(**self.numbers)}"
