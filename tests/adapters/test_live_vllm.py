"""vLLM itself, live: recorded, and compared with what tinycb's own scheduler and model do."""

from __future__ import annotations

import pytest

from tests.adapters.live_workloads import WORKLOADS, Workload
from tinycb import Engine, Request, SamplingParams
from tinycb.replay import replay
from tinycb.tracing import TraceReader
from tinycb.tracing.diff import compare

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def model():
    from tinycb.model.checkpoint import load

    return load("smollm2-135m", dtype="float32")


def serve(workload: Workload, engine: Engine) -> None:
    """As `vllm_job.py` drives vLLM: what comes before a step is added before it."""
    waiting = dict(workload.requests)
    step = 0
    while waiting or engine.has_unfinished_requests():
        for name, (prompt, length, arrive) in list(waiting.items()):
            if arrive <= step:
                del waiting[name]
                params = SamplingParams(max_tokens=length, ignore_eos=True)
                engine.add_request(Request(name, prompt, params))
        for name, at in workload.aborts.items():
            if at == step:
                engine.abort(name)
        if engine.has_unfinished_requests():
            engine.step()
        step += 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_our_scheduler_makes_every_decision_that_vllm_made(live_runs, name):
    """Block tables by number, prefix hits, evictions, counts, and reasons with their numbers included."""
    assert replay(live_runs[name][0]) is None


@pytest.mark.smollm2
@pytest.mark.parametrize("name", WORKLOADS)
def test_our_run_and_vllms_are_equal_to_the_token(live_runs, model, tmp_path, name):
    from tinycb.executors import LlamaExecutor

    workload, trace = WORKLOADS[name], tmp_path / "ours.jsonl"
    with Engine(workload.config, LlamaExecutor(model, workload.config), trace=trace) as engine:
        serve(workload, engine)
    with TraceReader(trace) as ours, TraceReader(live_runs[name][0]) as theirs:
        result = compare(ours, theirs, blocks="exact", reasons=True)
    assert result.parting is None, result.parting
    assert result.token_difference is None
    assert result.steps == len(ours)


def test_the_workloads_exercise_what_they_are_named_for(live_runs):
    seen: dict[str, set[str]] = {}
    for name, (path, _) in live_runs.items():
        with TraceReader(path) as reader:
            seen[name] = {str(d.reason) for record in reader for d in record.decisions}
            hits = sum(len(record.prefix_hits) for record in reader)
        assert "not_stated" not in seen[name], name
        if name == "shared prefixes":
            assert hits >= 4
    assert {"preempted_for", "readmitted", "no_free_blocks"} <= seen["preemption"]
    assert {"chunk", "budget_spent"} <= seen["long prompts"]
    assert {"aborted", "max_num_seqs"} <= seen["aborts"]


def test_the_trace_has_the_tokens_that_vllm_answered(live_runs):
    for path, answer in live_runs.values():
        with TraceReader(path) as reader:
            tokens: dict[str, list[int]] = {}
            for record in reader:
                for request_id, token in record.sampled.items():
                    tokens.setdefault(request_id, []).append(token)
        for output in answer["outputs"]:
            if output["finish_reason"] != "abort":
                assert tokens[output["id"]] == output["token_ids"]
