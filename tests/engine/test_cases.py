"""Scheduling and request handling on the inputs that have broken engines, on every way of batching."""

import pytest

from tests.engine.harness import POLICIES, Flaky, Scripts, answers, finish, request, script, scripted_engine
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor

pytestmark = pytest.mark.parametrize("batching", POLICIES)


def test_a_prompt_larger_than_the_pool_is_refused_and_the_others_go_on(batching):
    engine = scripted_engine(batching=batching, num_blocks=4, max_model_len=100)
    engine.add_request(request("ok", 5))
    with pytest.raises(ValueError, match=r"17 tokens.*16"):
        engine.add_request(request("huge", 17))
    first = engine.step()
    assert list(first.refused) == ["huge"]
    assert "17 tokens" in first.decisions[0].sentence
    finish(engine)
    assert answers(engine) == {"ok": script("ok", 4)}


@pytest.mark.parametrize("prompt", [1, 15, 16])
def test_a_lone_request_that_outgrows_the_pool_ends_with_length_where_the_pool_ends(batching, prompt):
    engine = scripted_engine(batching=batching, num_blocks=4, max_model_len=100)
    engine.add_request(request("long", prompt, max_tokens=60))
    engine.add_request(request("next", 3))
    finish(engine)
    long = engine.outputs["long"]
    assert long.finish_reason == "length"
    assert len(long.token_ids) == 17 - prompt  # the last token needs no slot
    assert engine.outputs["next"].token_ids == script("next", 4)


@pytest.mark.parametrize("length", [8, 16])
def test_a_prompt_wholly_in_the_prefix_cache_still_computes_its_last_token(batching, length):
    engine = scripted_engine(batching=batching)
    prompt = list(range(length))
    engine.add_request(request("first", prompt))
    finish(engine)
    engine.add_request(request("again", prompt))
    record = engine.step()
    assert record.prefix_hits == {"again": length - 4}
    assert record.scheduled == {"again": 4}
    finish(engine)


def test_one_prefix_admitted_twice_in_a_step_is_shared_and_counted(batching):
    engine = scripted_engine(batching=batching, max_num_batched_tokens=64)
    for name in "ab":
        engine.add_request(request(name, list(range(10))))
    record = engine.step()
    assert record.prefix_hits == {"b": 8}
    assert record.block_tables["a"][:2] == record.block_tables["b"][:2]
    assert [engine.pool.blocks[b].ref_count for b in record.block_tables["a"][:2]] == [2, 2]
    finish(engine)
    assert answers(engine) == {name: script(name, 4) for name in "ab"}


def test_work_after_a_preemption_is_sized_after_the_prefix_lookup(batching):
    if batching == "static":
        pytest.skip("a static batch reserves what it needs and never preempts")
    engine = scripted_engine(batching=batching, num_blocks=7, max_num_batched_tokens=32)
    for name, length in (("old", 8), ("new", 9)):
        engine.add_request(request(name, length, max_tokens=12))
    records = finish(engine)
    assert any(record.preempted == ["new"] for record in records)
    back = [record for record in records if "new" in record.admitted][1]
    hit = back.prefix_hits.get("new", 0)
    assert hit > 0
    assert back.num_computed["new"] == hit
    assert back.scheduled["new"] + hit == back.num_computed["new"] + back.scheduled["new"]
    assert answers(engine) == {"old": script("old", 12), "new": script("new", 12)}


@pytest.mark.parametrize("prompt", [3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("output", [1, 3, 4, 5, 8, 9])
def test_a_request_whose_blocks_just_fit_is_never_preempted(batching, prompt, output):
    blocks = -(-(prompt + output - 1) // 4)
    engine = scripted_engine(batching=batching, num_blocks=blocks, max_model_len=64)
    engine.add_request(request("a", prompt, max_tokens=output))
    records = finish(engine)
    assert not any(record.preempted for record in records)
    assert answers(engine) == {"a": script("a", output)}


@pytest.mark.parametrize("prompt", [15, 16])
def test_a_prompt_as_long_as_max_model_len_ends_with_length(batching, prompt):
    engine = scripted_engine(batching=batching, max_model_len=16)
    engine.add_request(request("a", prompt, max_tokens=9))
    finish(engine)
    assert engine.outputs["a"].finish_reason == "length"
    assert len(engine.outputs["a"].token_ids) == 1


def test_a_prompt_longer_than_max_model_len_is_refused(batching):
    engine = scripted_engine(batching=batching, max_model_len=16)
    with pytest.raises(ValueError, match=r"17 tokens, max_model_len is 16"):
        engine.add_request(request("a", 17))


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (lambda: Request("x", []), "prompt_token_ids is empty"),
        (lambda: Request("x", [1, -1]), r"prompt_token_ids\[1\].*-1"),
        (lambda: Request("x", [1, 2.5]), r"prompt_token_ids\[1\].*2\.5"),
        (lambda: Request("x", "text"), r"prompt_token_ids\[0\].*'t'"),
        (lambda: Request("x", None), "prompt_token_ids.*None"),
        (lambda: Request("", [1]), "request_id"),
        (lambda: Request(7, [1]), "request_id"),
        (lambda: Request("x", [1], {"max_tokens": 3}), "sampling_params"),
        (lambda: Request("x", [1], arrival_time=float("nan")), "arrival_time.*nan"),
        (lambda: Request("ok", [1]), "request_id 'ok' is in use"),
        (lambda: Request("x", [1], SamplingParams(stop="end")), "stop strings need a tokenizer"),
    ],
)
def test_a_bad_request_is_refused_by_name_and_disturbs_nothing(batching, bad, named):
    engine = scripted_engine(batching=batching)
    engine.add_request(request("ok", 3))
    with pytest.raises(ValueError, match=named):
        engine.add_request(bad())
    finish(engine)
    assert answers(engine) == {"ok": script("ok", 4)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -3),
        ("max_tokens", 2.0),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", float("nan")),
        ("seed", -1),
        ("seed", 1.5),
        ("stop", [""]),
        ("stop", [3]),
        ("stop_token_ids", [-2]),
        ("stop_token_ids", 5),
        ("ignore_eos", 1),
        ("logprobs", -1),
    ],
)
def test_a_bad_sampling_parameter_is_a_value_error_that_names_it(batching, field, value):
    with pytest.raises(ValueError, match=rf"^{field} "):
        SamplingParams(**{field: value})


def test_every_running_request_advances_while_a_long_prompt_comes_in_chunks(batching):
    if batching == "static":
        pytest.skip("a static batch admits nobody while it runs")
    engine = scripted_engine(batching=batching, num_blocks=64, max_num_batched_tokens=6)
    for name in "ab":
        engine.add_request(request(name, 2, max_tokens=30))
    engine.step()
    engine.add_request(request("long", 40, max_tokens=2))
    while not engine.outputs.get("long"):
        record = engine.step()
        assert record.sampled.keys() >= {"a", "b"}
        assert batching == "continuous" or sum(record.scheduled.values()) <= 6
    finish(engine)


def test_a_pool_too_small_for_two_lets_the_oldest_always_advance(batching):
    engine = scripted_engine(
        batching=batching, num_blocks=5, reserve_full_prompt=False, prefix_caching=False, max_model_len=30
    )
    for name in "abc":
        engine.add_request(request(name, 7, max_tokens=11))
    records = finish(engine)
    for record in records:
        if record.preempted:
            assert record.running, "somebody runs in every step that preempts"
    order = [name for record in records for name in record.finished]
    assert order == list("abc")
    assert sum(len(record.preempted) for record in records) <= 12
    assert answers(engine) == {name: script(name, 11) for name in "abc"}


@pytest.mark.parametrize("moment", ["waiting", "mid-chunk", "decoding", "finished", "twice", "unknown"])
def test_an_abort_frees_each_block_once_and_disturbs_nobody(batching, moment):
    engine = scripted_engine(batching=batching, num_blocks=24, max_num_seqs=2, max_num_batched_tokens=8)
    engine.add_request(request("stay", 3, max_tokens=12))
    engine.add_request(request("go", 20, max_tokens=6))
    engine.add_request(request("late", 5, max_tokens=6))
    steps = {"waiting": 0, "mid-chunk": 2, "decoding": 5, "twice": 5, "unknown": 3, "finished": 0}[moment]
    for _ in range(steps):
        engine.step()
    if moment == "finished":
        while "go" not in engine.step().finished:
            pass
    name = "nobody" if moment == "unknown" else "go"
    first = engine.abort(name)
    assert first == (moment not in ("finished", "unknown"))
    if moment == "twice":
        assert not engine.abort(name)
    record = engine.step()
    assert record.aborted == (["go"] if first else [])
    finish(engine)
    assert engine.outputs["go"].finish_reason == ("abort" if first else "length")
    assert engine.outputs["stay"].token_ids == script("stay", 12)
    assert engine.outputs["late"].token_ids == script("late", 6)


def test_after_an_abort_in_mid_prefill_only_computed_blocks_are_in_the_cache(batching):
    engine = scripted_engine(batching=batching, max_num_batched_tokens=8)
    prompt = list(range(30))
    engine.add_request(request("go", prompt))
    record = engine.step()
    computed = record.scheduled["go"]
    engine.abort("go")
    engine.add_request(request("again", prompt))
    record = engine.step()
    assert record.prefix_hits.get("again", 0) <= computed // 4 * 4
    finish(engine)
    assert engine.outputs["again"].token_ids == script("again", 4)


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_forward_that_fails_is_undone_and_the_engine_goes_on(batching, fail_at, prefix_caching):
    prompt = list(range(20))
    config = {"batching": batching, "prefix_caching": prefix_caching, "max_num_batched_tokens": 24}
    engine = scripted_engine(**config)
    engine.executor.fail_at = {fail_at}
    for name in "ab":
        engine.add_request(request(name, prompt))
    for _ in range(fail_at):
        engine.step()
    free = list(engine.pool.free_list)
    state = [(r.request_id, r.num_computed_tokens, list(r.block_table)) for r in engine.scheduler.running]
    cached = {b.block_id for b in engine.pool.blocks if b.prefix}
    with pytest.raises(RuntimeError, match="the device went away"):
        engine.step()
    assert list(engine.pool.free_list) == free
    assert state == [
        (r.request_id, r.num_computed_tokens, list(r.block_table)) for r in engine.scheduler.running
    ]
    assert {b.block_id for b in engine.pool.blocks if b.prefix} == cached
    finish(engine)
    assert answers(engine) == {name: script(name, 4) for name in "ab"}


def test_prompt_and_output_are_computed_again_after_a_preemption(batching):
    engine = scripted_engine(batching=batching, num_blocks=6, prefix_caching=False, max_num_batched_tokens=64)
    for name in "ab":
        engine.add_request(request(name, 8, max_tokens=9))
    records = finish(engine)
    back = [record for record in records if "b" in record.admitted][-1]
    if batching != "static":
        lost = next(record for record in records if record.preempted)
        assert back.scheduled["b"] > 8, "the output so far is computed again too"
        assert lost.decisions[0].numbers["computed"] == back.scheduled["b"] - 1
    assert answers(engine) == {name: script(name, 9) for name in "ab"}


def test_a_hit_beside_a_miss_leaves_both_tables_whole(batching):
    engine = scripted_engine(batching=batching, max_num_batched_tokens=64)
    engine.add_request(request("seed", list(range(12))))
    finish(engine)
    engine.add_request(request("hit", [*range(12), 50, 51]))
    engine.add_request(request("miss", 14))
    record = engine.step()
    assert record.prefix_hits == {"hit": 12}
    tables = record.block_tables
    width = 5 if batching == "static" else 4
    assert len(tables["hit"]) == len(tables["miss"]) == width
    assert not set(tables["hit"]) & set(tables["miss"])
    finish(engine)


def test_an_executor_that_owes_a_token_is_named_and_the_step_undone(batching):
    class Forgetful(ScriptedExecutor):
        def execute(self, step):
            output = super().execute(step)
            output.token_ids.pop("b", None)
            return output

    engine = Engine(EngineConfig(batching=batching, check=True), Forgetful({"a": [1, 2], "b": [3, 4]}))
    for name in "ab":
        engine.add_request(request(name, 3, max_tokens=2))
    with pytest.raises(RuntimeError, match="neither a token nor an error for 'b'"):
        engine.step()
    assert engine.pool.num_free == engine.pool.num_blocks


def test_one_request_s_own_error_ends_it_alone(batching):
    engine = Engine(EngineConfig(batching=batching, check=True), Flaky(Scripts()))
    engine.executor.scripts = {"short": [1, 2], "long": [5, 6, 7, 8, 9]}
    engine.add_request(request("short", 3, max_tokens=5))
    engine.add_request(request("long", 3, max_tokens=5))
    finish(engine)
    assert engine.outputs["short"].finish_reason == "error"
    assert "script ends after 2 tokens" in engine.outputs["short"].error
    assert engine.outputs["short"].token_ids == [1, 2]
    assert engine.outputs["long"].token_ids == [5, 6, 7, 8, 9]


def test_an_empty_step_counts_as_a_step(batching):
    engine = scripted_engine(batching=batching)
    assert [engine.step().step for _ in range(3)] == [0, 1, 2]
    assert engine.step().scheduled == {}
