"""The theorems about schedulers and engines hold of ours, and notice schedulers that are wrong."""

import json
from pathlib import Path

import pytest

from tinycb import EngineConfig
from tinycb.engine import Engine
from tinycb.executors import LlamaExecutor
from tinycb.model.checkpoint import LoadedModel, ModelError, load
from tinycb.proofs.engine_theorems import ENGINE, Alone, WatchedLlama, alone, tiny_engine
from tinycb.proofs.example_table import examples_of
from tinycb.proofs.serving import CHUNKED, SCHEDULER, scheduler_engine, write_trace
from tinycb.proofs.serving_run import Law, Run, serve
from tinycb.proofs.theorem import Counterexample
from tinycb.proofs.workloads import Arrival, Serving, Workload
from tinycb.replay import replay
from tinycb.scheduling import ChunkedScheduler, ContinuousScheduler
from tinycb.tracing import TraceReader

BY_NAME = {theorem.name: theorem for theorem in (*SCHEDULER, *CHUNKED, *ENGINE)}


@pytest.mark.parametrize("policy", ["chunked", "continuous", "static"])
@pytest.mark.parametrize("theorem", SCHEDULER, ids=str)
def test_what_holds_of_every_scheduler(theorem, policy):
    theorem.prove(policy)


@pytest.mark.parametrize("theorem", CHUNKED, ids=str)
def test_what_chunked_prefill_promises(theorem):
    theorem.prove("chunked")


@pytest.mark.parametrize("theorem", ENGINE, ids=str)
def test_what_holds_of_the_engine_on_a_real_model(theorem):
    theorem.prove(tiny_engine)


# ── schedulers of somebody else ───────────────────────────────────────────────────────────────────────────


class LastComeFirstServed(ContinuousScheduler):
    """Whoever came last goes first: a right one in every way but one."""

    def add(self, request):
        self.waiting.appendleft(request)


class Lazy(ChunkedScheduler):
    """Never admits while anybody runs, and forgets requests longer than eight tokens."""

    def schedule(self):
        held, self.waiting = self.waiting, type(self.waiting)(r for r in self.waiting if r.num_tokens <= 8)
        output = super().schedule()
        self.waiting.extend(r for r in held if r.num_tokens > 8)
        return output


class ByName(ChunkedScheduler):
    """Sorts its queue by the requests' names."""

    def schedule(self):
        self.waiting = type(self.waiting)(sorted(self.waiting, key=lambda request: request.request_id))
        return super().schedule()


@pytest.mark.parametrize("theorem", SCHEDULER, ids=str)
def test_a_scheduler_that_is_fair_to_nobody_who_waits_fails_one_theorem_only(theorem):
    verdict = theorem.verdict(LastComeFirstServed, shrink=False, max_examples=40)
    assert verdict.holds == (theorem.name != "nobody_starves")


def test_a_scheduler_that_forgets_long_requests_is_found_with_one_request():
    verdict = BY_NAME["somebody_advances"].verdict(Lazy)
    assert len(verdict.example.workload.arrivals) == 1
    assert verdict.example.workload.arrivals[0].prompt == 9
    assert verdict.failure.words == "requests wait in step 0 and nobody runs"


def test_a_scheduler_that_looks_at_names_decides_otherwise_under_other_names():
    verdict = BY_NAME["same_decisions_from_the_same_inputs"].verdict(ByName)
    assert not verdict.holds
    assert len(verdict.example.workload.arrivals) == 2


def test_a_counterexample_has_words_a_picture_and_a_trace(tmp_path):
    theorem = BY_NAME["nobody_starves"]
    with pytest.raises(Counterexample) as caught:
        theorem.prove(LastComeFirstServed)
    assert "still waits after step" in caught.value.words
    assert caught.value.picture.startswith("step  0")

    verdict = theorem.verdict(LastComeFirstServed)
    path = tmp_path / "starved.jsonl"
    error = write_trace(theorem, LastComeFirstServed, verdict.example, path)
    assert str(error) == str(verdict.failure)
    with TraceReader(path) as reader:
        assert len(reader) == len(verdict.failure.picture.split("\n")[0].split()) - 1
    assert replay(path, scheduler=LastComeFirstServed) is None


def test_an_engine_example_can_be_recorded_too(tmp_path):
    example = Serving(
        EngineConfig(num_blocks=8, block_size=4), Workload((Arrival(0, 5, 3), Arrival(1, 9, 2)))
    )
    path = tmp_path / "served.jsonl"
    assert write_trace(BY_NAME["same_bits_as_alone"], tiny_engine, example, path) is None
    with TraceReader(path) as reader:
        assert sum(len(record.sampled) for record in reader) == 5


def test_an_example_is_plain_data():
    example = Serving(
        EngineConfig(num_blocks=8, block_size=4), Workload((Arrival(0, 5, 3, 4, 2),), (1, 2), True)
    )
    assert Serving.from_dict(json.loads(json.dumps(example.to_dict()))) == example
    assert eval(repr(example)) == example


# ── what is said of the bounds ────────────────────────────────────────────────────────────────────────────


def test_the_bound_on_waiting_is_reached():
    """With room for one at a time, the last is admitted in the very step that the theorem allows."""
    arrivals = (Arrival(0, 4, 3), Arrival(0, 4, 1), Arrival(0, 1, 1))
    config = EngineConfig(num_blocks=8, block_size=1, max_num_batched_tokens=1)
    example = Serving(config, Workload(arrivals))
    run = serve(lambda: scheduler_engine("chunked", example), example, Law())
    admitted = next(i for i, record in enumerate(run.records) if "q2" in record.admitted)
    assert admitted == arrivals[0].work + arrivals[1].work


# ── the same bits on a real model ─────────────────────────────────────────────────────────────────────────


@pytest.mark.smollm2
def test_smollm2_has_the_same_bits_batched_chunked_preempted_and_resumed():
    try:
        loaded: LoadedModel = load("smollm2-135m", device="cpu")
    except ModelError as error:
        pytest.skip(str(error))

    def smollm2(config: EngineConfig, trace: Path | None = None) -> Engine:
        return Engine(config, LlamaExecutor(loaded, config), trace=trace)

    arrivals = (
        Arrival(0, 33, 4), Arrival(0, 1, 9), Arrival(0, 17, 8, shared=16), Arrival(1, 18, 5, shared=17),
        Arrival(2, 16, 9, shared=16), Arrival(2, 40, 3),
    )  # fmt: skip
    config = EngineConfig(
        block_size=8, num_blocks=11, max_num_batched_tokens=48, reserve_full_prompt=False, max_model_len=400
    )
    example = Serving(config, Workload(arrivals, failures=(3,)))
    records = []

    class Watch(Law):
        def stepped(self, run: Run, record, was_unfinished):
            records.append(record)

        def ended(self, run: Run):
            BY_NAME["same_bits_as_alone"].check.args[0](smollm2).ended(run)

    def make() -> Engine:
        engine = smollm2(config)
        engine.executor = WatchedLlama(engine.executor)
        return engine

    serve(make, example, Watch())
    assert max(len(record.scheduled) for record in records) >= 4
    assert any(record.preempted for record in records)
    assert any(record.prefix_hits for record in records)
    first: Alone = alone(smollm2, example.workload.request(0))
    assert len(first.tokens) == 4


# ── the examples are worth trying ─────────────────────────────────────────────────────────────────────────


def test_examples_batch_preempt_hit_abort_and_fail_often_enough():
    rows = [examples_of(theorem, "chunked") for theorem in SCHEDULER[1:4]]
    count = sum(row.examples for row in rows)

    def mean(field: str) -> float:
        return sum(getattr(row, field) * row.examples for row in rows) / count

    assert mean("requests") > 4
    assert mean("largest_batch") > 2.5
    assert mean("rows") > 1.5
    for field in ("preempting", "with_prefix_hits", "with_aborts", "with_failures"):
        assert mean(field) > 10, field
