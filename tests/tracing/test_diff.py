"""Two traces compared: equal, renamed, parted, with other tokens."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.cli import main
from tinycb.executors import ScriptedExecutor
from tinycb.replay import replay
from tinycb.scheduling import Decision, Reason
from tinycb.tracing import TraceReader
from tinycb.tracing.diff import compare

SHIPPED = Path(str(files("tinycb") / "data" / "vllm_preemption.jsonl"))
CONFIG = EngineConfig(block_size=4, num_blocks=12, max_num_batched_tokens=12, max_num_seqs=3)


def run(path, config=CONFIG, names="abcd", scripts=None):
    tokens = scripts or {name: [10 + i] * 9 for i, name in enumerate(names)}
    with Engine(config, ScriptedExecutor(tokens), trace=path) as engine:
        for index, name in enumerate(names):
            params = SamplingParams(max_tokens=9, ignore_eos=True)
            engine.add_request(Request(name, [index + 1] * (5 + index), params))
        while engine.has_unfinished_requests():
            engine.step()
    return path


def records(path):
    with TraceReader(path) as reader:
        result = list(reader)
        for record in result:
            rows = list(record.rows)
            record.rows_source = lambda rows=rows: rows
    return result


def test_a_run_equals_itself_in_every_way(tmp_path):
    path = run(tmp_path / "a.jsonl")
    for blocks in ("renamed", "exact", "ignore"):
        result = compare(records(path), records(path), blocks=blocks, reasons=True)
        assert result.is_equal
        assert result.num_tokens == 36
        assert result.requests == set("abcd")


def test_block_ids_are_equal_up_to_renaming_or_not(tmp_path):
    path = run(tmp_path / "a.jsonl")
    left, right = records(path), records(path)
    for record in right:
        rows = [replace(row, block_table=[11 - n for n in row.block_table]) for row in record.rows]
        record.rows_source = lambda rows=rows: rows
        record.blocks_allocated = {k: [11 - n for n in v] for k, v in record.blocks_allocated.items()}
    assert compare(left, right).is_equal
    assert compare(left, right, blocks="exact").parting.field == "block_tables"


def test_a_swapped_pair_of_blocks_is_no_renaming(tmp_path):
    path = run(tmp_path / "a.jsonl")
    left, right = records(path), records(path)
    rows = right[3].rows
    rows[0] = replace(rows[0], block_table=[*rows[1].block_table])
    parting = compare(left, right).parting
    assert (parting.index, parting.field) == (3, "block_tables")


def test_requests_of_other_names_are_matched_by_their_prompts(tmp_path):
    left, right = run(tmp_path / "a.jsonl"), run(tmp_path / "b.jsonl", names="wxyz")
    result = compare(records(left), records(right), reasons=True)
    assert result.is_equal
    assert result.renamed_requests


def test_tokens_are_compared_beside_the_decisions(tmp_path):
    left = run(tmp_path / "a.jsonl")
    right = run(tmp_path / "b.jsonl", scripts={n: [10 + i] * 4 + [7] * 5 for i, n in enumerate("abcd")})
    result = compare(records(left), records(right))
    assert result.parting is None
    assert not result.is_equal
    assert (result.token_difference.request_id, result.token_difference.place) == ("a", 4)
    assert result.token_difference.tokens == (10, 7)


def test_where_they_part_both_reasons_are_told(tmp_path, capsys):
    left = run(tmp_path / "a.jsonl")
    right = run(tmp_path / "b.jsonl", replace(CONFIG, max_num_seqs=2))
    assert main(["diff", str(left), str(right)]) == 1
    out = capsys.readouterr().out
    assert "max_num_seqs differs: 3 in A, 2 in B" in out
    assert "d waits: 3 running requests" in out or "c waits" in out
    assert "waits: 2 running requests, and the limit is 2" in out


def test_a_larger_pool_alone_is_no_difference(tmp_path, capsys):
    left = run(tmp_path / "a.jsonl", replace(CONFIG, num_blocks=40, max_model_len=40))
    right = run(tmp_path / "b.jsonl", replace(CONFIG, num_blocks=50, max_model_len=40))
    assert main(["diff", str(left), str(right)]) == 0
    assert "the same decisions in all" in capsys.readouterr().out


def test_a_reason_that_is_not_stated_agrees_with_any(tmp_path):
    path = run(tmp_path / "a.jsonl")
    left, right = records(path), records(path)
    place = next(i for i, r in enumerate(right) if any(d.action == "wait" for d in r.decisions))
    right[place].decisions = [
        Decision(d.request_id, d.action, Reason.NOT_STATED) if d.action == "wait" else d
        for d in right[place].decisions
    ]
    assert compare(left, right, reasons=True).is_equal
    right[place].decisions = []
    assert compare(left, right, reasons=True).parting.field == "decisions"


def test_the_shorter_run_is_over(tmp_path):
    path = run(tmp_path / "a.jsonl")
    parting = compare(records(path), records(path)[:-2]).parting
    assert parting.field == "length"
    assert parting.values == ("goes on", "over")
    assert parting.decisions(1) == []


@pytest.mark.parametrize("flags", [(), ("--json",), ("--blocks", "exact", "--reasons")])
def test_the_command_says_equal(tmp_path, capsys, flags):
    path = run(tmp_path / "a.jsonl")
    assert main(["diff", str(path), str(path), *flags]) == 0
    assert capsys.readouterr().out


def test_a_file_that_is_no_trace_is_one_line(tmp_path, capsys):
    path = tmp_path / "no.jsonl"
    path.write_text("hello\n")
    assert main(["diff", str(path), str(path)]) == 2
    assert "is not a trace" in capsys.readouterr().err


def test_the_shipped_vllm_run_replays_and_shows_preemption():
    """So that who has no vLLM can see what it does in a tight pool."""
    assert replay(SHIPPED) is None
    with TraceReader(SHIPPED) as reader:
        assert reader.header["engine"] == "vllm"
        assert reader.header["vllm"]["version"] == "0.32.0"
        assert sum(len(record.preempted) for record in reader) == 3
        assert reader[0].new_requests[0].prompt.startswith("The capital of France")
        assert all(record.sampled.keys() == record.sampled_texts.keys() for record in reader)
