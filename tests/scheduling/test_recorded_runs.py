"""Our chunked scheduler against 60 recorded runs of vLLM 0.32.0, step by step, block tables included."""

import json
from pathlib import Path

import pytest

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor

RUNS = sorted((Path(__file__).parent.parent / "data" / "vllm_scheduler").glob("*.json"))


def test_all_sixty_runs_are_here():
    assert len(RUNS) == 60


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_chunked_decides_as_vllm_did(path):
    run = json.loads(path.read_text())
    scripts = {request["id"]: request["outputs"] for request in run["requests"]}
    engine = Engine(EngineConfig(**run["config"], check=True), ScriptedExecutor(scripts))
    for want in run["steps"]:
        for request in run["requests"]:
            if request["arrive_step"] == want["step"]:
                params = SamplingParams(max_tokens=len(request["outputs"]), ignore_eos=True)
                engine.add_request(Request(request["id"], request["prompt_token_ids"], params))
        record = engine.step()
        got = {
            "step": record.step,
            "scheduled": list(record.scheduled.items()),
            "computed": record.num_computed,
            "block_table": record.block_tables,
            "running": record.running,
            "num_waiting": record.num_waiting,
            "num_free_blocks": record.num_free_blocks,
            "preempted": record.preempted,
            "sampled": record.sampled,
            "finished": list(record.finished),
        }
        assert got == {**want, "scheduled": list(want["scheduled"].items())}, f"step {want['step']}"
    assert not engine.has_unfinished_requests()
    assert engine.pool.num_free == engine.pool.num_blocks
