"""A replay finds no difference in any run, and names the step and field of any that is put in."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tracing.harness import configs, ops, run
from tests.tracing.test_roundtrip import BUSY, CONFIG
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.replay import COMPARED, replay
from tinycb.scheduling import ChunkedScheduler
from tinycb.tracing import TraceError, TraceReader

FILE = [HealthCheck.function_scoped_fixture]


class Newest(ChunkedScheduler):
    """Admits the newest first: another policy, of one's own."""

    def schedule(self):
        self.waiting.reverse()
        output = super().schedule()
        self.waiting.reverse()
        return output


@settings(max_examples=100, deadline=None, suppress_health_check=FILE)
@given(config=configs, what=ops, finish=st.booleans())
def test_every_run_replays(tmp_path: Path, config, what, finish) -> None:
    path = tmp_path / "t"
    run(path, config, what, keyframe_every=6, finish=finish)
    assert replay(path) is None


def test_what_came_after_the_last_step_replays(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG, [*BUSY, ("add", 3, 4, 4), ("abort", 0), ("refuse", 1)], finish=False)
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["arrived"]
    assert not last["scheduled"]
    assert replay(path) is None


def test_an_id_that_is_aborted_and_used_again_in_a_static_batch_replays(tmp_path: Path) -> None:
    """The second one finishes in the step in which the first one's blocks are freed, and keeps its table."""
    executor = ScriptedExecutor({"a": [1] * 9, "b": [1] * 9})
    config = EngineConfig(batching="static", block_size=4, num_blocks=9, check=True)
    engine = Engine(config, executor, trace=tmp_path / "t")
    engine.add_request(Request("a", [1, 2, 3], SamplingParams(max_tokens=5)))
    engine.step()
    engine.abort("a")
    engine.add_request(Request("a", [1, 2, 3], SamplingParams(max_tokens=1)))
    engine.add_request(Request("b", [1, 2, 3], SamplingParams(max_tokens=3)))
    record = engine.step()
    assert record.finished == {"a": "length"}
    assert record.blocks_freed["a"]
    tables = dict(record.block_tables)
    while engine.has_unfinished_requests():
        engine.step()
    engine.close()
    with TraceReader(tmp_path / "t") as reader:
        assert reader[1].block_tables == tables
    assert replay(tmp_path / "t") is None


def test_a_trace_whose_tables_cannot_be_rebuilt_is_no_success(tmp_path: Path) -> None:
    """The engine under test outlives a trace that fails, and the replay must not."""
    path = tmp_path / "t"
    run(path, CONFIG, BUSY)
    lines = path.read_text().splitlines()
    index = next(i for i, line in enumerate(lines) if i > 1 and "origins" in json.loads(line))
    values = json.loads(lines[index])
    del values["origins"]
    lines[index] = json.dumps(values)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError, match="broken: line"):
        replay(path)


def test_a_policy_of_ones_own_replays_and_is_told_from_another(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG | {"batching": Newest, "max_num_seqs": 1}, BUSY)
    assert replay(path) is None
    difference = replay(path, scheduler=ChunkedScheduler)
    assert difference is not None
    assert (difference.step, difference.field) == (0, "admitted")
    assert str(difference).startswith("step 0 differs in admitted: recorded ['r")


def other(value):
    """A value of the same shape that is not the same."""
    if isinstance(value, dict):
        name = next(iter(value))
        return {"renamed": value[name], **{k: v for k, v in value.items() if k != name}}
    if isinstance(value, list):
        return value[1:]
    return value + "!" if isinstance(value, str) else value + 1


def altered(path: Path, field: str, occurrence: int) -> int | None:
    """Alter the field in the occurrence-th line that has it; returns the step, or None if there is none."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    have = [line for line in lines if "step" in line and line.get(field)]
    if field == "blocks_allocated":  # of a request that got none, there is nothing to take
        have = [line for line in have if next(iter(line[field].values()))]
    if len(have) <= occurrence:
        return None
    line = have[occurrence]
    if field in ("scheduled", "num_computed", "prefix_hits"):
        name = next(iter(line[field]))
        line[field][name] += 1
    elif field in ("block_tables", "blocks_allocated"):
        name = next(iter(line["tables" if field == "block_tables" else field]))
        line["tables" if field == "block_tables" else field][name][0] += 1
    elif field == "error":
        del line[field]
    elif field == "decisions":
        line[field][-1]["numbers"]["more"] = 1
    else:
        line[field] = other(line[field])
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return line["step"]


# A forward that no longer fails is told by what it then runs.
TOLD_BY = {"error": {"admitted", "scheduled"}}


@pytest.mark.parametrize("field", [f for f in COMPARED if f not in ("num_padded", "block_tables")])
def test_an_altered_field_is_named_at_its_step(tmp_path: Path, field: str) -> None:
    for occurrence in range(4):
        path = tmp_path / f"{occurrence}"
        run(path, CONFIG, BUSY, keyframe_every=1000)
        step = altered(path, field, occurrence)
        if step is None:
            assert occurrence > 0, f"no step of the run has {field}"
            break
        difference = replay(path)
        assert difference is not None, f"{field} of step {step} was altered and nothing was found"
        assert difference.step == step
        assert difference.field in {field} | TOLD_BY.get(field, set())


def test_an_altered_block_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG, BUSY, keyframe_every=1000)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    line = next(line for line in lines if line.get("tables"))
    next(iter(line["tables"].values()))[0] += 1
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    difference = replay(path)
    assert difference is not None
    assert (difference.step, difference.field) == (line["step"], "block_tables")


def test_altered_padding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG | {"batching": "static"}, BUSY)
    step = altered(path, "num_padded", 0)
    difference = replay(path)
    assert difference is not None
    assert (difference.step, difference.field) == (step, "num_padded")


def test_an_altered_order_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG, BUSY, keyframe_every=1000)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    line = next(line for line in lines if len(line.get("scheduled", {})) > 1)
    line["scheduled"] = dict(reversed(line["scheduled"].items()))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    difference = replay(path)
    assert difference is not None
    assert (difference.step, difference.field) == (line["step"], "scheduled")


def test_what_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read the trace"):
        replay(tmp_path / "missing")
    path = tmp_path / "t"
    run(path, CONFIG, BUSY)
    header, *rest = path.read_text().splitlines()
    values = json.loads(header)
    values["config"]["batching"] = "no_such_module:Policy"
    path.write_text("\n".join([json.dumps(values), *rest]) + "\n")
    with pytest.raises(ValueError, match="'no_such_module:Policy' cannot be imported"):
        replay(path)
