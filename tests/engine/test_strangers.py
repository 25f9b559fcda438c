"""Executors and schedulers of one's own that misbehave, and answers nobody takes: named, undone, let go."""

import numpy as np
import pytest

from tests.engine.harness import POLICIES, Scripts, answers, finish, request, script, scripted_engine
from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.executors import ExecutorOutput, ScriptedExecutor
from tinycb.generation import StuckError
from tinycb.replay import replay
from tinycb.scheduling import ChunkedScheduler, SchedulerOutput


class Stranger(ScriptedExecutor):
    """Answers with whatever `answer(step)` is."""

    def __init__(self, answer) -> None:
        super().__init__({})
        self.scripts = Scripts()
        self.answer = answer

    def execute(self, step):
        return self.answer(step) if self.answer is not None else super().execute(step)


def tokens(token, **more):
    return lambda step: ExecutorOutput({r.request_id: token for r in step.sampling}, **more)


BAD = {
    "nothing": (lambda step: None, "ExecutorOutput, not None"),
    "a dict": (lambda step: {"a": 1}, "ExecutorOutput, not {'a': 1}"),
    "no token": (tokens(None), "neither a token nor an error for 'a'"),
    "text": (tokens("x"), "token for 'a' must be a non-negative integer, not 'x'"),
    "a negative": (tokens(-1), "not -1"),
    "a fraction": (tokens(1.5), "not 1.5"),
    "an error of nobody's": (tokens(1, errors={"zz": "bad"}), "'zz', which this step does not run"),
    "both": (tokens(1, errors={"a": "bad"}), "both a token and an error for 'a'"),
    "no text": (
        lambda step: ExecutorOutput({}, errors={r.request_id: KeyError(1) for r in step.sampling}),
        "error for 'a' must be a string",
    ),
}


@pytest.mark.parametrize("batching", POLICIES)
@pytest.mark.parametrize(("answer", "named"), BAD.values(), ids=BAD.keys())
def test_an_executor_s_bad_answer_is_named_and_the_step_undone(tmp_path, batching, answer, named):
    config = EngineConfig(batching=batching, block_size=4, num_blocks=16, check=True)
    engine = Engine(config, Stranger(answer), trace=tmp_path / "t")
    for name in "ab":
        engine.add_request(request(name, 9))
    with pytest.raises((RuntimeError, TypeError)) as caught:
        engine.step()
    assert named in str(caught.value)
    assert engine.pool.num_free == 16
    engine.executor.answer = None
    finish(engine)
    engine.close()
    assert answers(engine) == {name: script(name, 4) for name in "ab"}
    assert replay(tmp_path / "t") is None


def test_numpy_s_integers_become_tokens():
    engine = Engine(EngineConfig(num_blocks=16), Stranger(tokens(np.int64(3))))
    (output,) = engine.generate([[1, 2]], SamplingParams(max_tokens=2))
    assert [type(token) for token in output.token_ids] == [int, int]


def test_a_request_that_goes_wrong_in_the_midst_of_its_prompt_ends_there_and_replays(tmp_path):
    config = EngineConfig(max_num_batched_tokens=4, block_size=4, num_blocks=16, check=True)

    def answer(step):
        return ExecutorOutput({}, errors={r.request_id: "bad" for r in step.requests if r.request_id == "a"})

    engine = Engine(config, Stranger(answer), trace=tmp_path / "t")
    for name in "ab":
        engine.add_request(request(name, 9))
    assert engine.step().finished == {"a": "error"}
    engine.executor.answer = None
    finish(engine)
    engine.close()
    assert engine.outputs["b"].token_ids == script("b", 4)
    assert replay(tmp_path / "t") is None


def test_what_came_before_a_scheduler_raised_is_in_the_next_record(tmp_path):
    class Stumbles(ChunkedScheduler):
        stumbled = False

        def schedule(self):
            if not self.stumbled:
                self.stumbled = True
                raise RuntimeError("stumbled")
            return super().schedule()

    engine = Engine(EngineConfig(batching=Stumbles, num_blocks=8), Stranger(None), trace=tmp_path / "t")
    engine.add_request(request("a", 3))
    with pytest.raises(RuntimeError, match="stumbled"):
        engine.step()
    record = engine.step()
    assert (record.step, record.arrived, record.admitted) == (0, ["a"], ["a"])
    finish(engine)
    assert engine.outputs["a"].metrics.ttft_steps == 1


class Idle(ChunkedScheduler):
    """Never runs anybody."""

    def schedule(self):
        return SchedulerOutput()


class Punctual(ChunkedScheduler):
    """Runs nobody before the time of the first in the queue."""

    def schedule(self):
        if self.waiting and self.waiting[0].arrival_time > clock():
            return SchedulerOutput()
        return super().schedule()


class Ticks:
    """A clock that goes on by a second each time it is asked."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


clock = Ticks()


def test_a_scheduler_that_never_runs_anybody_is_named():
    engine = Engine(EngineConfig(batching=Idle, num_blocks=8), Stranger(None))
    named = r"2 requests wait, and no step runs any of them: .*\.Idle chose nobody"
    with pytest.raises(StuckError, match=named):
        engine.generate([[1, 2], [3]])
    assert not engine.has_unfinished_requests()
    with pytest.raises(StuckError, match=named.replace("2", "1")):
        next(engine.stream([1, 2]))
    assert not engine.has_unfinished_requests()


def test_a_scheduler_may_wait_for_a_later_arrival():
    engine = Engine(EngineConfig(batching=Punctual, num_blocks=8), Stranger(None), clock=clock)
    late = request("late", 3)
    late.arrival_time = clock() + 100
    engine.add_request(late)
    records = []
    (output,) = engine.generate(
        [[1, 2]], SamplingParams(max_tokens=2, ignore_eos=True), on_step=records.append
    )
    assert sum(not record.scheduled for record in records) > 10
    assert len(output.token_ids) == 2
    finish(engine)
    assert answers(engine) == {"late": script("late", 4)}


def test_a_scheduler_that_pauses_for_a_step_now_and_then_is_let_be():
    class Pauses(ChunkedScheduler):
        turn = 0

        def schedule(self):
            self.turn += 1
            return SchedulerOutput() if self.turn % 3 else super().schedule()

    engine = Engine(EngineConfig(batching=Pauses, num_blocks=8), Stranger(None))
    (output,) = engine.generate([[1, 2]], SamplingParams(max_tokens=5, ignore_eos=True))
    assert len(output.token_ids) == 5


@pytest.mark.parametrize("batching", POLICIES)
def test_a_stream_leaves_nothing_behind(batching):
    engine = scripted_engine(batching=batching)
    engine.add_request(request("other", 3, max_tokens=9))
    sampling = SamplingParams(max_tokens=2, ignore_eos=True)
    assert len(list(engine.stream([1, 2], sampling))) == 2
    left = engine.stream([1, 2], sampling)
    next(left)
    del left
    never_begun = engine.stream([1, 2], sampling)
    del never_begun
    finish(engine)
    assert list(engine.outputs) == ["other"]
    assert engine.pool.num_free == engine.pool.num_blocks


def test_a_generate_that_fails_leaves_no_answer_of_a_batch_behind():
    engine = scripted_engine(batching="static")
    engine.add_request(request("other", 3, max_tokens=9))

    def stop_after(record):
        if record.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate([[1], [2]], SamplingParams(max_tokens=2, ignore_eos=True), on_step=stop_after)
    finish(engine)
    assert list(engine.outputs) == ["other"]


def test_what_is_no_request_no_prompt_and_no_parameters_is_a_value_error():
    engine = scripted_engine()
    with pytest.raises(ValueError, match="takes a Request, not 'r0'"):
        engine.add_request("r0")
    for prompts in (None, 5, {"a": 1}):
        with pytest.raises(ValueError, match="prompts must be"):
            engine.generate(prompts)
    with pytest.raises(ValueError, match="sampling_params must be"):
        engine.generate([[1]], 5)
    for settings in ({"batching": dict}, {"kv_cache_memory": "9" * 400}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            EngineConfig(**settings)
    for number in (10**400, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature must be"):
            SamplingParams(temperature=number)
        bad = request("a", 3)
        bad.arrival_time = number
        with pytest.raises(ValueError, match="arrival_time must be"):
            engine.add_request(bad)
