"""Every small case, then every step of a run beside tinycb's own scheduler."""

from __future__ import annotations

from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "How many slots does the request need after the step, and how many has it? The difference is what is "
    "missing.",
    "Mostly nothing is missing: the last block still has room.",
    "What is missing must be rounded up to whole blocks: 17 slots are two blocks of 16, and `-(-a // b)` "
    "rounds up.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `blocks_to_take` is right."""
    for block_size in range(1, 6):
        for num_computed in range(12):
            at_least = -(-num_computed // block_size)
            for num_blocks in range(at_least, at_least + 3):
                for num_tokens in range(1, 10):
                    _one_case(exercise, num_blocks, num_computed, num_tokens, block_size)
    for block_size in (1, 2, 4, 16):
        _one_run(exercise, block_size)


def _one_case(
    exercise: ModuleType, num_blocks: int, num_computed: int, num_tokens: int, block_size: int
) -> None:
    got = exercise.blocks_to_take(num_blocks, num_computed, num_tokens, block_size)
    case = {
        "num_blocks": num_blocks,
        "num_computed": num_computed,
        "num_tokens": num_tokens,
        "block_size": block_size,
        "got": got,
    }
    expect(isinstance(got, int), "the answer is not a whole number of blocks", **case)
    expect(got >= 0, "fewer than no blocks were taken", **case)
    slots, tokens = (num_blocks + got) * block_size, num_computed + num_tokens
    expect(slots >= tokens, "a token of this step has no slot", **case)
    expect(
        got == 0 or slots - block_size < tokens, "a block was taken that no token of this step needs", **case
    )


def _one_run(exercise: ModuleType, block_size: int) -> None:
    """Three requests, to the end: the same blocks as tinycb's continuous scheduler takes."""
    lengths = {"A": (7, 12), "B": (1, 20), "C": (16, 3)}
    config = EngineConfig(batching="continuous", block_size=block_size, num_blocks=80, prefix_caching=False)
    engine = Engine(config, ScriptedExecutor({name: [7] * answer for name, (_, answer) in lengths.items()}))
    for name, (prompt, answer) in lengths.items():
        params = SamplingParams(max_tokens=answer, ignore_eos=True)
        engine.add_request(Request(name, [1] * prompt, params))
    held = dict.fromkeys(lengths, 0)
    while engine.has_unfinished_requests():
        record = engine.step()
        for name, count in record.scheduled.items():
            computed = record.num_computed[name]
            got = exercise.blocks_to_take(held[name], computed, count, block_size)
            took = len(record.blocks_allocated.get(name, ()))
            case = {
                "request": name,
                "step": record.step,
                "block_size": block_size,
                "got": got,
                "tinycb": took,
            }
            expect(got == took, "a run took other blocks than tinycb's own", **case)
            held[name] += took
