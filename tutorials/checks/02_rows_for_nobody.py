"""Every batch of up to three requests with prompts and answers of one to three tokens, beside tinycb's."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "Two sums that do not touch each other: one over prompts, one over answers.",
    "In the first forward each row is as long as the longest prompt. How much of that is not its own?",
    "The batch has max(answers) forwards. Request i takes part in answers[i] of them, for itself.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `rows_for_nobody` is right."""
    for count in (1, 2, 3):
        for lengths in product(product((1, 2, 3), repeat=2), repeat=count):
            _one_case(exercise, [prompt for prompt, _ in lengths], [answer for _, answer in lengths])


def _one_case(exercise: ModuleType, prompts: list[int], answers: list[int]) -> None:
    given = list(prompts), list(answers)
    got = exercise.rows_for_nobody(prompts, answers)
    case = {"prompts": given[0], "answers": given[1], "got": got}
    expect(given == (prompts, answers), "the lists that were given were changed", **case)
    expect(type(got) is int, "the answer is not a whole number", **case)
    if len(set(prompts)) == 1 and len(set(answers)) == 1:
        expect(got == 0, "equal requests waste nothing", **case)
    padding, held = _waste(prompts, answers)
    case |= {"tinycb, before prompts": padding, "tinycb, after the end": held}
    if len(set(prompts)) == 1:
        expect(got == held, "the rows in slots of those that are done are miscounted", **case)
    if len(set(answers)) == 1:
        expect(got == padding, "the padding before shorter prompts is miscounted", **case)
    expect(got == padding + held, "tinycb computed another number of rows for nobody", **case)


def _waste(prompts: list[int], answers: list[int]) -> tuple[int, int]:
    """Rows of padding in the first forward of a static batch, and in the others."""
    names = [f"r{i}" for i in range(len(prompts))]
    config = EngineConfig(batching="static", max_num_seqs=len(prompts), num_blocks=8, prefix_caching=False)
    scripts = {name: [7] * count for name, count in zip(names, answers, strict=True)}
    engine = Engine(config, ScriptedExecutor(scripts))
    for name, prompt, answer in zip(names, prompts, answers, strict=True):
        engine.add_request(Request(name, [1] * prompt, SamplingParams(max_tokens=answer, ignore_eos=True)))
    first, *others = [engine.step().num_padded for _ in range(max(answers))]
    assert not engine.has_unfinished_requests()
    return first, sum(others)
