"""Every case of three places and three in the queue, then whole runs beside tinycb's own scheduler."""

from __future__ import annotations

from itertools import chain, combinations, product
from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "Begin with those that go on: the running ones that are not in `finished`, in their order.",
    "How many places are free after that? It is a subtraction, and it may give zero.",
    "A slice of the queue is a new list: its first so many go in, and the rest still waits.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `refill` is right."""
    for places, queue in product((1, 2, 3), range(4)):
        for count in range(places + 1):
            running, waiting = list("ABC"[:count]), list("DEF"[:queue])
            for finished in chain.from_iterable(combinations(running, k) for k in range(count + 1)):
                _one_case(exercise, running, set(finished), waiting, places)
    for places, lengths in product((1, 2, 3), product((1, 2, 4), repeat=4)):
        _one_run(exercise, places, dict(zip("ABCD", lengths, strict=True)))


def _one_case(
    exercise: ModuleType, running: list[str], finished: set[str], waiting: list[str], places: int
) -> None:
    given = (list(running), set(finished), list(waiting))
    got = exercise.refill(running, finished, waiting, places)
    case = {
        "running": given[0],
        "finished": sorted(given[1]),
        "waiting": given[2],
        "max_num_seqs": places,
        "got": got,
    }
    expect(given == (running, finished, waiting), "the lists that were given were changed", **case)
    is_pair = isinstance(got, tuple) and len(got) == 2 and all(isinstance(part, list) for part in got)
    expect(is_pair, "the answer is not two lists, who runs and who waits", **case)
    runs, waits = got
    going_on = [name for name in running if name not in finished]
    expect(not finished & {*runs, *waits}, "a finished request is still there", **case)
    expect(len(runs) <= places, "more requests run than there are places", **case)
    expect(set(going_on) <= set(runs), "a request that was not done lost its place", **case)
    expect(not waits or len(runs) == places, "a place stayed empty while somebody waited", **case)
    expect(sorted(runs + waits) == sorted(going_on + waiting), "a request is lost, or there twice", **case)
    expect(runs[: len(going_on)] == going_on, "those that go on did not stay first, in their order", **case)
    expect(runs[len(going_on) :] + waits == waiting, "a request overtook one that came before it", **case)


def _one_run(exercise: ModuleType, places: int, lengths: dict[str, int]) -> None:
    """Requests of these output lengths, to the end: the same steps as tinycb's continuous scheduler."""
    config = EngineConfig(batching="continuous", max_num_seqs=places, num_blocks=64)
    engine = Engine(config, ScriptedExecutor({name: [7] * count for name, count in lengths.items()}))
    for name, count in lengths.items():
        engine.add_request(Request(name, [1, 2], SamplingParams(max_tokens=count, ignore_eos=True)))
    left, running, finished, waiting = dict(lengths), list[str](), set[str](), list(lengths)
    while engine.has_unfinished_requests():
        record = engine.step()
        running, waiting = exercise.refill(running, finished, waiting, places)
        case = {"output lengths": lengths, "max_num_seqs": places, "step": record.step}
        expect(
            list(running) == record.running,
            "the run took other steps than tinycb's own",
            **case,
            got=running,
            tinycb=record.running,
        )
        for name in running:
            left[name] -= 1
        finished = {name for name in running if left[name] == 0}
