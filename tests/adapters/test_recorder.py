"""The recorder without vLLM: on a stand-in with tinycb's own policy inside, so that its traces replay."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace

import pytest

from tests.adapters.fake_vllm import FakeRequest, FakeScheduler, fake_config
from tinycb.adapters.recorder import Recorder, check_hooks
from tinycb.replay import replay
from tinycb.tracing import TraceReader

STOP = 99
ABORTED = SimpleNamespace(name="FINISHED_ABORTED")


class Recording(Recorder, FakeScheduler):
    pass


@pytest.fixture
def heard(caplog):
    """What the log says: vLLM's logger does not hand its lines on."""
    logging.getLogger("vllm").propagate = True
    return caplog


def serve(scheduler, arrivals, aborts=None, last=60):
    for step in range(last):
        for request in arrivals.get(step, ()):
            scheduler.add_request(request)
        if aborts and step in aborts:
            scheduler.finish_requests([aborts[step]], ABORTED)
        if not scheduler.requests:
            continue
        output = scheduler.schedule()
        tokens = {
            name: STOP if (name, step) == ("b", 4) else 10 + step for name in output.num_scheduled_tokens
        }
        scheduler.update_from_output(output, tokens)


def workload():
    shared = list(range(1, 9))
    return {
        0: [FakeRequest("a", [*shared, 50, 51], 9), FakeRequest("b", [*shared, 60], 12, (STOP,))],
        1: [FakeRequest("c", list(range(20, 33)), 6), FakeRequest("d", [*shared, 70], 7)],
        3: [FakeRequest("e", [5, 6, 7], 4)],
    }


@pytest.fixture
def trace(tmp_path, monkeypatch):
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("TINYCB_TRACE", str(path))
    return path


def test_a_recorded_run_replays_with_every_reason(trace):
    scheduler = Recording(fake_config())
    serve(scheduler, workload(), {6: "e"})
    scheduler.shutdown()
    assert replay(trace) is None
    with TraceReader(trace) as reader:
        reasons = {str(d.reason) for record in reader for d in record.decisions}
        hits = sum(len(record.prefix_hits) for record in reader)
        assert reader.header["engine"] == "vllm"
    assert {"preempted_for", "readmitted", "stop_token", "max_tokens", "aborted"} <= reasons
    assert {"no_free_blocks", "after_preemption"} <= reasons
    assert "not_stated" not in reasons
    assert hits


@pytest.mark.parametrize(
    "changed",
    [
        {"max_num_seqs": 2},
        {"max_num_batched_tokens": 5},
        {"prefix_caching": False},
        {"reserve_full_prompt": False},
    ],
    ids=str,
)
def test_other_settings_replay_too(trace, changed):
    scheduler = Recording(fake_config(**changed))
    serve(scheduler, workload())
    scheduler.shutdown()
    assert replay(trace) is None


def test_what_came_after_the_last_step_is_written_at_the_end(trace):
    scheduler = Recording(fake_config())
    serve(scheduler, workload(), last=2)
    scheduler.finish_requests(["c"], ABORTED)
    scheduler.shutdown()
    with TraceReader(trace) as reader:
        assert reader[-1].aborted == ["c"]
    assert scheduler.num_shutdowns == 1


def test_without_a_rule_that_explains_it_nothing_is_stated(trace):
    scheduler = Recording(fake_config())
    scheduler.scheduler_config.policy = "priority"
    scheduler.shutdown()
    other = Recording(fake_config(), scheduler_config=SimpleNamespace(**vars(scheduler.scheduler_config)))
    serve(other, workload())
    other.shutdown()
    with TraceReader(trace) as reader:
        reasons = {d.reason for record in reader for d in record.decisions if d.action in ("wait", "preempt")}
        sentences = [d.sentence for record in reader for d in record.decisions]
    assert {str(reason) for reason in reasons} <= {"not_stated", "budget_spent"}
    assert any("not stated" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"num_spec_tokens": 3}, "speculative decoding"),
        ({"connector": object()}, "KV connector"),
        ({"kv_cache_config": SimpleNamespace(kv_cache_groups=[1, 2])}, "2 kinds of KV cache"),
    ],
)
def test_what_has_no_words_is_not_recorded_and_the_engine_runs(trace, heard, changed, says):
    scheduler = Recording(fake_config(), **changed)
    serve(scheduler, workload())
    assert says in heard.text
    assert not trace.exists()
    assert not scheduler.requests


def test_no_path_and_a_bad_path_are_a_line_in_the_log(tmp_path, monkeypatch, heard):
    monkeypatch.delenv("TINYCB_TRACE", raising=False)
    serve(Recording(fake_config()), workload())
    assert "set TINYCB_TRACE" in heard.text
    monkeypatch.setenv("TINYCB_TRACE", str(tmp_path / "missing" / "t.jsonl"))
    scheduler = Recording(fake_config())
    serve(scheduler, workload())
    assert "cannot write the trace" in heard.text
    assert not scheduler.requests


def test_a_full_disk_never_stops_the_engine(monkeypatch, heard):
    monkeypatch.setenv("TINYCB_TRACE", "/dev/full")
    scheduler = Recording(fake_config())
    serve(scheduler, workload())
    scheduler.shutdown()
    assert not scheduler.requests
    assert "records nothing" in heard.text


def test_an_error_of_the_recorder_never_stops_the_engine(trace, heard):
    scheduler = Recording(fake_config())
    scheduler._tinycb_tape.free = None
    serve(scheduler, workload())
    assert not scheduler.requests
    assert "which runs on" in heard.text


def test_a_vllm_without_the_hooks_is_refused_by_name():
    with pytest.raises(ImportError, match=r"vLLM 9\.9 cannot be recorded.*_preempt_request.*0\.32\.0"):
        check_hooks(SimpleNamespace, "9.9")


def test_another_version_is_warned_of(heard):
    check_hooks(FakeScheduler, "0.33.1")
    assert "tested with vLLM 0.32.0, 0.33.0, and this is 0.33.1" in heard.text


def test_without_vllm_one_line_says_so():
    if importlib.util.find_spec("vllm"):
        pytest.skip("this interpreter has vLLM")
    with pytest.raises(ImportError, match="no vLLM whose v1 scheduler can be recorded"):
        importlib.import_module("tinycb.adapters.vllm")
