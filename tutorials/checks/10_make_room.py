"""Every case of up to four requests with few blocks each; then whole runs, step by step, beside tinycb's."""

from __future__ import annotations

from itertools import groupby, product
from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "Go through `running` from its end: `reversed(running)` gives a dict's keys backwards.",
    "Look whether there is enough *before* you preempt the next one, not after.",
    "When the newest is `name` itself, add it to the list and stop, even if its own blocks would have been "
    "enough.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `make_room` is right."""
    for count in range(1, 5):
        for held in product((1, 2, 4), repeat=count):
            running = dict(zip("ABCD", held, strict=False))
            for name, needs, free in product(running, (1, 2, 3), (0, 1, 2)):
                _one_case(exercise, running, name, needs, free)
    for pool, prompts in product((5, 6, 8), product((3, 6, 7), repeat=3)):
        _one_run(exercise, pool, dict(zip("ABC", prompts, strict=True)))


def _one_case(exercise: ModuleType, running: dict[str, int], name: str, needs: int, free: int) -> None:
    given = list(running.items())
    got = exercise.make_room(running, name, needs, free)
    case = {"running": dict(given), "name": name, "needs": needs, "free": free, "got": got}
    expect(list(running.items()) == given, "what was given was changed", **case)
    is_pair = isinstance(got, tuple) and len(got) == 2 and isinstance(got[0], list)
    expect(is_pair and isinstance(got[1], bool), "the answer is not a list and True or False", **case)
    preempted, goes_on = got
    newest_first = list(reversed(running))
    expect(set(preempted) <= set(running), "somebody is preempted who does not run", **case)
    expect(not preempted or needs > free, "somebody was preempted though enough was free", **case)
    expect(
        preempted == newest_first[: len(preempted)],
        "a request was preempted before one that is newer",
        **case,
    )
    expect(
        name not in preempted[:-1],
        "somebody older was preempted after the request had given up itself",
        **case,
    )
    expect(not (goes_on and name in preempted), "a request that was preempted cannot go on", **case)
    expect(goes_on or name in preempted, "it neither goes on nor gives up its own blocks", **case)
    room = [free + sum(running[other] for other in preempted[:i]) for i in range(len(preempted) + 1)]
    expect(not goes_on or needs <= room[-1], "it goes on, and has not got its blocks", **case)
    expect(all(needs > before for before in room[:-1]), "one more was preempted than had to be", **case)


def _one_run(exercise: ModuleType, pool: int, prompts: dict[str, int]) -> None:
    """A run in a small pool: whenever tinycb preempts somebody, the same are preempted here."""
    config = EngineConfig(block_size=4, num_blocks=pool, max_num_seqs=3, prefix_caching=False)
    engine = Engine(config, ScriptedExecutor({name: [7] * 8 for name in prompts}))
    for index, (name, length) in enumerate(prompts.items()):
        token_ids = [100 * (index + 1) + i for i in range(length)]
        engine.add_request(Request(name, token_ids, SamplingParams(max_tokens=8, ignore_eos=True)))
    held: dict[str, int] = {}
    while engine.has_unfinished_requests():
        record = engine.step()
        decisions = [d for d in record.decisions if d.action == "preempt"]
        for name, group in groupby(decisions, key=lambda d: d.numbers.get("winner", d.request_id)):
            victims = list(group)
            blocks = {d.request_id: d.numbers["blocks"] for d in victims}
            numbers = victims[0].numbers
            got = exercise.make_room({**held, **blocks}, name, numbers["needs"], numbers["free"])
            expect(
                got == (list(blocks), name not in blocks),
                "the run preempted others than tinycb's own",
                prompts=prompts,
                num_blocks=pool,
                step=record.step,
                got=got,
                tinycb=list(blocks),
            )
            held = {other: count for other, count in held.items() if other not in blocks}
        tables = record.block_tables
        held = {name: len(tables[name]) for name in record.running if name not in record.finished}
