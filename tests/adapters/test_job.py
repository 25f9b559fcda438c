"""The loop that serves a workload on vLLM, with a stand-in for vLLM: who is added when, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from tinycb.adapters import vllm_job
from tinycb.workloads import Piece


class FakeLLM:
    """Answers a token a step; a prompt of over 50 tokens is refused as vLLM's own type of error."""

    made: FakeLLM
    interrupt_at = -1  # the step in which Ctrl-C is pressed

    def __init__(self, model: str, **arguments) -> None:
        if model == "broken":
            raise RuntimeError("no such\n  architecture")
        FakeLLM.made = self
        self.model, self.arguments, self.calls = model, arguments, []
        self.added: list[tuple[str, int, float | None, list[int]]] = []
        self.live: dict[str, list] = {}
        self.num_steps = self.num_shutdowns = 0
        core = SimpleNamespace(scheduler=SimpleNamespace(shutdown=self._shutdown))
        self.engine_core = SimpleNamespace(engine_core=core)
        self.llm_engine = self
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 100)

    def _shutdown(self):
        self.num_shutdowns += 1

    def collective_rpc(self, name):
        self.calls.append(name)

    def add_request(self, name, prompt, params, arrival_time=None):
        ids = prompt["prompt_token_ids"]
        if len(ids) > 50:
            raise LookupError("your prompt is too long (parameter=input_tokens, value=51)")
        self.added.append((name, self.num_steps, arrival_time, ids))
        self.live[name] = [params["max_tokens"], []]

    def abort_request(self, names):
        for name in names:
            del self.live[name]

    def has_unfinished_requests(self):
        return bool(self.live)

    def step(self):
        if self.num_steps == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        self.num_steps += 1
        outputs = []
        for name, (limit, tokens) in list(self.live.items()):
            tokens.append(self.num_steps)
            finished = len(tokens) == limit
            best = SimpleNamespace(token_ids=tokens, text="x" * len(tokens), finish_reason="length")
            outputs.append(
                SimpleNamespace(request_id=name, finished=finished, outputs=[best], prompt_token_ids=[1])
            )
            if finished:
                del self.live[name]
        return outputs


@pytest.fixture(autouse=True)
def fake_vllm(monkeypatch):
    module, params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    module.LLM, module.SamplingParams = FakeLLM, dict
    params.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "")


def job(requests, **settings):
    return {"model": "m", "arguments": {}, "requests": requests} | settings


def request(name, max_tokens=3, **settings):
    params = {"max_tokens": max_tokens}
    return {"id": name, "prompt_token_ids": [1, 2], "params": params} | settings


def test_requests_come_before_their_step_and_aborts_too():
    requests = [request("a", 4), request("b", 9, step=2), request("c", 1, step=8)]
    result = vllm_job.run_job(job(requests, aborts=[{"id": "b", "step": 4}]))
    assert [(name, step) for name, step, *_ in FakeLLM.made.added] == [("a", 0), ("b", 2), ("c", 4)]
    assert [a["finish_reason"] for a in result["outputs"]] == ["length", "abort", "length"]
    assert result["outputs"][1]["token_ids"] == [3, 4]
    assert not result["interrupted"]
    assert FakeLLM.made.num_shutdowns == 1


def test_arrivals_are_waited_for_and_count_from_when_they_were_due():
    start = time.time()
    vllm_job.run_job(job([request("a", time=0.0), request("b", time=0.15)]))
    (_, _, first, _), (_, _, second, _) = FakeLLM.made.added
    assert second - first == pytest.approx(0.15)
    assert time.time() - start >= 0.15
    assert start <= first <= start + 0.1


def test_pieces_become_the_tokens_that_our_engine_gets():
    vllm_job.run_job(job([{"id": "a", "pieces": [("x", 3), ("y", 4)], "params": {"max_tokens": 1}}]))
    assert FakeLLM.made.added[0][3] == Piece("x", 3).tokens(100) + Piece("y", 4).tokens(100)


def test_a_refused_request_is_told_and_the_others_are_served():
    requests = [request("a"), request("b", prompt_token_ids=[1] * 51), request("c")]
    result = vllm_job.run_job(job(requests))
    assert [a.get("error", "served") for a in result["outputs"]] == [
        "served", "LookupError: your prompt is too long", "served"]  # fmt: skip


def test_an_interrupt_ends_the_step_and_keeps_what_there_is(monkeypatch, tmp_path):
    monkeypatch.setattr(FakeLLM, "interrupt_at", 2)
    jobs, results = tmp_path / "jobs", tmp_path / "results"
    jobs.write_text(json.dumps([job([request("a", 2), request("b", 99), request("c", time=60)])] * 2))
    before = signal.getsignal(signal.SIGINT)
    assert vllm_job.main(str(jobs), str(results)) == 130
    (line,) = results.read_text().splitlines()
    assert json.loads(line) == {
        "outputs": [
            {
                "id": "a",
                "prompt_token_ids": [1],
                "token_ids": [1, 2],
                "text": "xx",
                "finish_reason": "length",
            },
            {
                "id": "b",
                "prompt_token_ids": [1],
                "token_ids": [1, 2, 3],
                "text": "xxx",
                "finish_reason": "abort",
            },
        ],
        "interrupted": True,
    }
    assert signal.getsignal(signal.SIGINT) is before
    assert FakeLLM.made.num_shutdowns == 1


def test_pipeline_stages_in_eager_mode_get_a_batch_to_wake_them():
    vllm_job.run_job(job([request("a")], arguments={"pipeline_parallel_size": 2, "enforce_eager": True}))
    assert FakeLLM.made.calls == ["execute_dummy_batch"]
    vllm_job.run_job(job([request("a")], arguments={"pipeline_parallel_size": 2}))
    assert FakeLLM.made.calls == []


def test_a_scheduler_of_ones_own_is_not_replaced(tmp_path):
    with pytest.raises(ValueError, match=r"scheduler_cls is mine\.Mine already.*Recorder, YourScheduler"):
        vllm_job.run_job(job([], trace=str(tmp_path / "t"), arguments={"scheduler_cls": "mine.Mine"}))


def test_what_vllm_raises_is_one_line_of_the_results(tmp_path):
    jobs, results = tmp_path / "jobs", tmp_path / "results"
    jobs.write_text(json.dumps([job([], model="broken"), job([request("a")])]))
    assert vllm_job.main(str(jobs), str(results)) == 1
    (line,) = results.read_text().splitlines()
    assert json.loads(line) == {"error": "RuntimeError: no such architecture"}
