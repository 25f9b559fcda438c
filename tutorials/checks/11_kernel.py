"""A few examples of every theorem about paged attention, those first that name a mistake best."""

from __future__ import annotations

from types import ModuleType

from tinycb.learn import expect
from tinycb.proofs import Counterexample, KVLayout, RaggedBatch, Scope, theorems_about
from tinycb.proofs.draw import arguments, draw

HINTS = [
    "Begin with one request and one row: gather its keys and values through the block table, and attend to "
    "them with a softmax over positions.",
    "A request with `n` rows and `seq_len` tokens: its row number `i` stands at position `seq_len - n + i`.",
    "Gather only positions below `seq_len`. A weight of zero does not help against a value that is NaN.",
    "Heads: `repeat_interleave` over the KV heads gives each query head its own, `repeat` another's.",
]
FIRST = (
    "a_query_sees_exactly_its_own_past",
    "rows_that_see_nothing_are_zero",
    "memory_of_nobody_is_never_read",
    "gqa_heads_map_to_their_group",
    "inputs_are_left_alone",
)
LATER = ("offsets_are_64_bit",)  # it takes gigabytes, and `tinycb check` asks it


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the theorem, unless `paged_attention` is right."""
    one_token = draw(RaggedBatch(rows=((1, 1),), layout=KVLayout()))
    exercise.paged_attention(*arguments("paged", one_token).values(), one_token.scale)  # raises as it is
    theorems = {theorem.name: theorem for theorem in theorems_about("paged") if theorem.name not in LATER}
    for name in [*FIRST, *(name for name in theorems if name not in FIRST)]:
        verdict = theorems[name].verdict(exercise.paged_attention, Scope(cost=1), max_examples=10)
        if isinstance(verdict.failure, Counterexample):
            expect(False, f"{name} does not hold: {theorems[name].statement}", found=verdict.failure.words)
        if verdict.failure is not None:
            raise verdict.failure
