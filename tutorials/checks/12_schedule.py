"""Whole runs: vLLM's recorded one, and small ones beside tinycb's scheduler, whose decisions are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from types import ModuleType
from typing import Any

from tinycb import Engine, EngineConfig, SamplingParams
from tinycb import Request as EngineRequest
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect
from tinycb.tracing import TraceReader

HINTS = [
    "Two loops, as in tinycb's chunked scheduler: an index that goes through `running`, then the front of "
    "`waiting`, for as long as something may come in.",
    "A block count is `-(-tokens // block_size)`. What a request lacks is that, minus `num_blocks`; and what "
    "you give out comes off `free_blocks`, as what you run comes off the budget.",
    "Preempting is a loop of its own: `running.pop()` until the blocks suffice. Look whether the one that "
    "you popped is the very one that needed them: then stop.",
    "Admission looks at two sizes: blocks for *all* tokens must be free, blocks for `hit` and this step's "
    "tokens are taken.",
]
LENGTHS = ((1, 6), (3, 3), (6, 2), (2, 5), (7, 1))  # of prompt and answer


@dataclass
class _Case:
    """A run: its requests (prompt, answer) in order of arrival, and the settings. steps: who ran, at best."""

    name: str
    lengths: dict[str, tuple[int, int]]
    num_blocks: int
    block_size: int
    budget: int
    max_num_seqs: int
    steps: list[dict[str, int]] = field(default_factory=list)
    hits: list[dict[str, int]] = field(default_factory=list)


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `schedule` is right."""
    for num_blocks, budget, seqs in product((4, 6), (3, 64), (2, 4)):
        for lengths in product(LENGTHS, repeat=3):
            case = _Case("tinycb", dict(zip("ABC", lengths, strict=True)), num_blocks, 2, budget, seqs)
            _tinycb(case)
            _run(exercise, case)
    _run(exercise, _vllm())


def _tinycb(case: _Case) -> None:
    """The steps of tinycb's own scheduler."""
    config = EngineConfig(
        batching="chunked", num_blocks=case.num_blocks, block_size=case.block_size, prefix_caching=False,
        max_num_batched_tokens=case.budget, max_num_seqs=case.max_num_seqs,
    )  # fmt: skip
    script = {name: [7] * answer for name, (_, answer) in case.lengths.items()}
    engine = Engine(config, ScriptedExecutor(script))
    for name, (prompt, answer) in case.lengths.items():
        params = SamplingParams(max_tokens=answer, ignore_eos=True)
        engine.add_request(EngineRequest(name, [1] * prompt, params))
    while engine.has_unfinished_requests():
        case.steps.append(dict(engine.step().scheduled))
    case.hits = [{} for _ in case.steps]


def _vllm() -> _Case:
    """The recorded run that ships."""
    with TraceReader(str(files("tinycb") / "data/vllm_preemption.jsonl")) as reader:
        records = list(reader)
        config: dict[str, Any] = reader.header["config"]
    arrived = [new for record in records for new in record.new_requests]
    answers = {new.request_id: sum(new.request_id in r.sampled for r in records) for new in arrived}
    return _Case(
        "vLLM",
        {new.request_id: (len(new.prompt_token_ids), answers[new.request_id]) for new in arrived},
        config["num_blocks"],
        config["block_size"],
        config["max_num_batched_tokens"],
        config["max_num_seqs"],
        [dict(record.scheduled) for record in records],
        [dict(record.prefix_hits) for record in records],
    )


def _run(exercise: ModuleType, case: _Case) -> None:
    requests = {name: exercise.Request(name, prompt) for name, (prompt, _) in case.lengths.items()}
    limit = {name: prompt + answer for name, (prompt, answer) in case.lengths.items()}
    running: list[Any] = []
    waiting = list(requests.values())
    for step, (expected, hits) in enumerate(zip(case.steps, case.hits, strict=True)):
        for name, request in requests.items():
            request.hit = hits.get(name, 0)
        before = list(running), list(waiting)
        given = [(request.num_tokens, request.hit) for request in requests.values()]
        free = case.num_blocks - sum(request.num_blocks for request in running)
        got = exercise.schedule(running, waiting, free, case.block_size, case.budget, case.max_num_seqs)
        at = {
            "lengths (prompt, answer)": case.lengths, "num_blocks": case.num_blocks,
            "block_size": case.block_size, "budget": case.budget, "max_num_seqs": case.max_num_seqs,
            "step": step, "got": got,
        }  # fmt: skip
        kept = given == [(request.num_tokens, request.hit) for request in requests.values()]
        expect(kept, "`num_tokens` or `hit` of a request was changed", **at)
        unfinished = [name for name, request in requests.items() if request.num_tokens < limit[name]]
        present = sorted(request.name for request in [*running, *waiting])
        expect(present == unfinished, "a request is lost, or there twice", **at)
        _is_fair(before, running, waiting, at)
        _holds(case, requests, running, waiting, got, at)
        theirs = "vLLM chose another step" if case.name == "vLLM" else "vLLM would choose another step"
        expect(list(got.items()) == list(expected.items()), theirs, **at, expected=expected)
        for name, count in got.items():
            request = requests[name]
            request.num_computed += count
            if request.num_computed == request.num_tokens:
                request.num_tokens += 1
                if request.num_tokens == limit[name]:
                    running.remove(request)
                    request.num_blocks = 0


def _holds(
    case: _Case,
    requests: dict[str, Any],
    running: list[Any],
    waiting: list[Any],
    got: Any,
    at: dict[str, object],
) -> None:
    """What must be so in any step, whoever is chosen."""
    is_counts = isinstance(got, dict) and all(
        name in requests and isinstance(n, int) for name, n in got.items()
    )
    expect(is_counts, "the answer does not say how many tokens each request runs", **at)
    expect(all(count > 0 for count in got.values()), "a request runs in this step, with no token", **at)
    expect(sum(got.values()) <= case.budget, "more tokens run than the budget allows", **at)
    expect(len(running) <= case.max_num_seqs, "more requests run than max_num_seqs", **at)
    expect(set(got) <= {request.name for request in running}, "a request runs that is not in `running`", **at)
    held = {request.name: request.num_blocks for request in running}
    expect(sum(held.values()) <= case.num_blocks, "more blocks are held than there are", **at, held=held)
    for request in waiting:
        idle = request.num_blocks == request.num_computed == 0
        expect(idle, "a request waits and still has blocks, or computed tokens", **at, request=request)
    for name, count in got.items():
        room = requests[name].num_blocks * case.block_size
        enough = room >= requests[name].num_computed + count
        expect(enough, "a request has too few blocks for what it runs", **at, request=requests[name])


def _is_fair(
    before: tuple[list[Any], list[Any]], running: list[Any], waiting: list[Any], at: dict[str, object]
) -> None:
    """The order of those that stay, go and come."""
    ran, waited = before
    stay = [request for request in ran if any(request is other for other in running)]
    come = [request for request in running if any(request is other for other in waited)]
    expect(stay == ran[: len(stay)], "somebody was preempted who was not the newest", **at)
    expect(running == stay + come, "those that run are not in the order in which they came in", **at)
    expect(come == waited[: len(come)], "a request overtook one that waited before it", **at)
    back = ran[len(stay) :]
    expect(
        waiting == back + waited[len(come) :], "a preempted request is not at the front of the queue", **at
    )
    expect(not (back and come), "somebody came in although the step preempted", **at)
