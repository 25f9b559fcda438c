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
        "starts with {tokens} of {todo:token} ({hit} more in the prefix cache) "
        "and takes {needs} of {free:free block}",
    )
    READMITTED = (
        "readmitted",
        "comes back after a preemption with {tokens} of {todo:token} to compute again "
        "({hit} more in the prefix cache) and takes {needs} of {free:free block}",
    )
    # running
    CHUNK = (
        "chunk",
        "runs a chunk of {tokens:token}, {remaining} more to go; {budget} of the budget was left",
    )
    BUDGET_SPENT = "budget_spent", "waits: the budget of {limit:token} is spent"
    SLOT_HELD = "slot_held", "is finished and holds its slot; unfinished in its batch: {unfinished}"
    # the queue
    NO_FREE_BLOCKS = "no_free_blocks", "waits: it needs {needs:block}, free: {free}"
    MAX_NUM_SEQS = "max_num_seqs", "waits: {running:running request}, and the limit is {limit}"
    AFTER_PREEMPTION = "after_preemption", "waits: this step preempted {preempted}, so it admits nobody"
    BATCH_RUNNING = "batch_running", "waits for the whole batch that runs; unfinished in it: {unfinished}"
    # preemption
    PREEMPTED_FOR = (
        "preempted_for",
        "is preempted for {winner}, which needs {needs:block} with {free} free: "
        "it gives up {blocks:block} and {computed:computed token}",
    )
    PREEMPTED_ITSELF = (
        "preempted_itself",
        "needs {needs:block} with {free} free and is itself the newest: "
        "it gives up {blocks:block} and {computed:computed token}",
    )
    # the end
    EOS_TOKEN = "eos_token", "is done: it sampled the end-of-sequence token {token}"
    STOP_TOKEN = "stop_token", "is done: it sampled its stop token {token}"
    STOP_STRING = "stop_string", "is done: its text holds the stop string {string!r}"
    MAX_TOKENS = "max_tokens", "is done: {output} of max_tokens {limit}"
    MAX_MODEL_LEN = "max_model_len", "is done: {length:token}, and max_model_len is {limit}"
    POOL_END = "pool_end", "is done: {length:token}, and the whole pool holds {limit}"
    RETURNED = "returned", "is returned with its batch, {held:step} after it was done"
    ABORTED = "aborted", "is aborted after {output:output token}, with {computed:token} computed"
    FAILED = "failed", "ends with an error: {error}"
    # another engine's choice: it has several steps under way at once, or what was seen does not say why
    IN_FLIGHT = "in_flight", "waits: its tokens of step {step} are still being computed"
    NOT_STATED = "not_stated", "is handled so for a reason that is not stated"


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
        numbers = {name: _Count(n) if isinstance(n, int) else n for name, n in self.numbers.items()}
        return f"{self.request_id} {self.reason.text.format(**numbers)}"


class _Count(int):
    """`f"{_Count(2):block}"` is "2 blocks"."""

    def __format__(self, noun: str) -> str:
        return f"{int(self)} {noun}{'' if self == 1 else 's'}" if noun else str(int(self))
