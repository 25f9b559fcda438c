"""Every case of few requests, small gaps and small budgets, then whole runs beside tinycb's own scheduler."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "One loop over those that run; in it, `min(gap, budget)`, and the budget grows smaller by that much.",
    "The queue can go through the same loop, after the running ones. How many of it may come in depends only "
    "on how many run already.",
    "Stop when the budget is zero: a request that runs no token does not belong into the answer.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `share` is right."""
    for places, budget, count, queue in product((1, 2, 3), (1, 2, 4, 7), range(4), range(4)):
        if count > places:
            continue
        for gaps in product((1, 3, 6), repeat=count + min(queue, 2)):
            running = dict(zip("ABC", gaps[:count], strict=False))
            waiting = dict(zip("DEF", (*gaps[count:], 5)[:queue], strict=False))
            _one_case(exercise, running, waiting, budget, places)
    for places, budget, prompts in product((2, 3), (3, 8), product((1, 4, 11), repeat=3)):
        _one_run(exercise, budget, places, dict(zip("ABC", prompts, strict=True)))


def _one_case(
    exercise: ModuleType, running: dict[str, int], waiting: dict[str, int], budget: int, places: int
) -> None:
    given = (dict(running), dict(waiting))
    got = exercise.share(running, waiting, budget, places)
    case = {
        "running": given[0],
        "waiting": given[1],
        "budget": budget,
        "max_num_seqs": places,
        "got": got,
    }
    unchanged = [list(part.items()) for part in given] == [list(running.items()), list(waiting.items())]
    expect(unchanged, "what was given was changed", **case)
    expect(isinstance(got, dict), "the answer is no dict from name to tokens", **case)
    gaps = {**running, **waiting}
    expect(set(got) <= set(gaps), "somebody runs who is neither running nor waiting", **case)
    expect(all(isinstance(n, int) for n in got.values()), "a number of tokens is no whole number", **case)
    expect(all(n > 0 for n in got.values()), "a request is in the forward with no token", **case)
    expect(sum(got.values()) <= budget, "the forward runs more tokens than the budget", **case)
    expect(all(n <= gaps[name] for name, n in got.items()), "a request runs more than its gap", **case)
    expect(len({*running, *got}) <= places, "more requests run than there are places", **case)
    queue = [name for name in got if name in waiting]
    expect(queue == list(waiting)[: len(queue)], "a request overtook one that came before it", **case)
    going_on = [name for name in got if name in running]
    expect(list(got) == going_on + queue, "a newcomer got tokens before one that was running", **case)
    expect(going_on == list(running)[: len(going_on)], "the running ones did not get tokens in order", **case)
    cut = [name for name, n in got.items() if n < gaps[name]]
    full = sum(got.values()) == budget
    expect(not cut or full, "a request got less than its gap while the budget had more", **case)
    expect(cut in ([], list(got)[-1:]), "two prompts are left half done: one should have got it all", **case)
    expect(full or len(going_on) == len(running), "a running request was left out", **case)
    more = len(queue) < len(waiting) and len(running) + len(queue) < places
    expect(full or not more, "a place and tokens were left while somebody waited", **case)


def _one_run(exercise: ModuleType, budget: int, places: int, prompts: dict[str, int]) -> None:
    """Requests with these prompts, to the end: the same shares as tinycb's chunked scheduler."""
    config = EngineConfig(
        batching="chunked", max_num_batched_tokens=budget, max_num_seqs=places, num_blocks=64, block_size=4
    )
    engine = Engine(config, ScriptedExecutor({name: [7, 7, 7] for name in prompts}))
    for index, (name, length) in enumerate(prompts.items()):
        token_ids = [100 * (index + 1) + i for i in range(length)]
        engine.add_request(Request(name, token_ids, SamplingParams(max_tokens=3, ignore_eos=True)))
    running, waiting, answered = dict[str, int](), dict(prompts), dict.fromkeys(prompts, 0)
    while engine.has_unfinished_requests():
        record = engine.step()
        got = exercise.share(dict(running), dict(waiting), budget, places)
        case = {"prompts": prompts, "budget": budget, "max_num_seqs": places, "step": record.step}
        expect(
            list(got.items()) == list(record.scheduled.items()),
            "the run took other steps than tinycb's own",
            **case,
            got=got,
            tinycb=record.scheduled,
        )
        for name, tokens in got.items():
            running[name] = (running[name] if name in running else waiting.pop(name)) - tokens
            if running[name] == 0:
                answered[name] += 1
                running[name] = 1
        for name in [name for name in running if answered[name] == 3]:
            del running[name]
