"""Readers of traffic files: good rows, bad rows by their line, and the public samples where they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinycb.workloads import Piece, WorkloadError, open_workload, read_workload

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.2792720,110,27
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,230,1317,Conversation log
45.5,GPT-4,10,0,10,Conversation log
"""
FILE = [HealthCheck.function_scoped_fixture]


def write(folder: Path, text: str, name: str = "work.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_times_are_relative_and_every_prompt_is_its_own(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, AZURE))
    assert [a.time for a in workload.arrivals] == pytest.approx([0, 0.052, 1.299312], abs=1e-6)
    assert [(a.prompt_tokens, a.output_tokens) for a in workload.arrivals] == [
        (4808, 10),
        (3180, 8),
        (110, 27),
    ]
    heads = {tuple(a.token_ids(1000)[:20]) for a in workload.arrivals}
    assert len(heads) == 3
    assert workload.problems == []


def test_azure_2024_times_with_a_zone_are_read_too(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    text += "2024-05-10 00:00:00+00:00,5,5\n2024-05-10 00:00:01.509930+00:00,2399,6\n"
    workload = read_workload(write(tmp_path, text))
    assert [a.time for a in workload.arrivals] == pytest.approx([0, 1.5])
    assert "line 3: goes back in time, by 0.00993 s" in workload.problems[0]


def test_a_failed_burstgpt_request_is_reported_by_its_line(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, BURST))
    assert [(a.time, a.prompt_tokens, a.output_tokens) for a in workload.arrivals] == [
        (0, 472, 18),
        (40.5, 1087, 230),
    ]
    assert workload.problems == ["work.csv line 4: Response tokens must be an integer of at least 1, not '0'"]


def test_mooncake_hash_ids_become_shared_prefixes(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [0, 1, 9]},
    ]
    workload = read_workload(write(tmp_path, "\n".join(map(json.dumps, rows)), "m.jsonl"))
    first, second = (a.token_ids(50_000) for a in workload.arrivals)
    assert (len(first), len(second)) == (1100, 1030)
    assert first[:1024] == second[:1024]
    assert first[1024:1030] != second[1024:1030]
    assert workload.arrivals[1].time == 3.0


def test_own_format_round_trips_ids_lengths_and_prefixes(tmp_path: Path) -> None:
    rows = [
        {"arrival_time": 1, "id": "a", "prompt_token_ids": [5, 6, 7], "output_tokens": 2},
        {"arrival_time": 1.5, "prompt_tokens": 40, "output_tokens": 3, "prefix": ["system", 30]},
        {"arrival_time": 2, "prompt_tokens": 50, "output_tokens": 3, "prefix": ["system", 30]},
    ]
    workload = read_workload(write(tmp_path, "\n\n".join(map(json.dumps, rows)), "own.jsonl"))
    a, b, c = workload.arrivals
    assert (a.request_id, a.token_ids(10), a.prompt_tokens) == ("a", [5, 6, 7], 3)
    assert b.token_ids(1000)[:30] == c.token_ids(1000)[:30]
    assert b.token_ids(1000)[30:] != c.token_ids(1000)[30:40]
    assert (b.prompt_tokens, c.prompt_tokens) == (40, 50)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("2023-11-16 18:17:05.0,-3,8", "ContextTokens must be an integer of at least 1, not '-3'"),
        ("2023-11-16 18:17:05.0,many,8", "ContextTokens must be an integer of at least 1, not 'many'"),
        ("yesterday,3,8", "TIMESTAMP must be a date and time, not 'yesterday'"),
        ("2023-11-16 18:17:05.0,3", "another number of columns"),
        ("2023-11-16 18:17:05.0,3,4,5", "another number of columns"),
        ("2023-11-16 18:17:01.0,3,4", "goes back in time"),
        ("2023-11-16 18:17:05.0,99999999999,4", "must be an integer"),
    ],
)
def test_a_bad_row_is_told_by_its_line_and_the_others_are_kept(tmp_path: Path, row: str, says: str) -> None:
    head, first, *rest = AZURE.splitlines()
    workload = read_workload(write(tmp_path, "\n".join([head, first, row, *rest])))
    assert len(workload) == 3
    (problem,) = workload.problems
    assert problem.startswith("work.csv line 3: ")
    assert says in problem


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no JSON object"),
        ('{"arrival_time": 0, "prompt_tokens": 3}', "output_tokens must be"),
        ('{"arrival_time": -1, "prompt_tokens": 3, "output_tokens": 1}', "arrival_time must be a time"),
        ('{"arrival_time": 0, "prompt_tokens": 3, "output_tokens": 1, "x": 1}', "unknown field 'x'"),
        ('{"arrival_time": 0, "prompt_token_ids": [-1], "output_tokens": 1}', "prompt_token_ids must be"),
        ('{"arrival_time": 0, "prompt_tokens": 3, "output_tokens": 1, "prefix": ["s", 3]}', "leaves nothing"),
        (
            '{"arrival_time": 0, "id": "a", "prompt_tokens": 3, "output_tokens": 1}',
            "the id 'a' of an earlier",
        ),
        ('{"arrival_time": NaN, "prompt_tokens": 3, "output_tokens": 1}', "arrival_time must be a time"),
    ],
)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, line: str, says: str) -> None:
    good = '{"arrival_time": 0, "id": "a", "prompt_tokens": 3, "output_tokens": 1}'
    workload = read_workload(write(tmp_path, f"{good}\n{line}\n", "own.jsonl"))
    assert len(workload) == 1
    assert workload.problems[0].startswith("own.jsonl line 2: ")
    assert says in workload.problems[0]


def test_hash_ids_that_do_not_fit_the_length_are_a_bad_row(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0]}
    with pytest.raises(
        WorkloadError, match=r"has no request; 1 bad, .*hash_ids must be 3 ids, for 1100 tokens"
    ):
        read_workload(write(tmp_path, json.dumps(row), "m.jsonl"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("a,b\n1,2\n", "no workload that is known here"),
        (AZURE.split("\n")[0], "has no request"),
    ],
)
def test_a_file_without_requests_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        read_workload(write(tmp_path, text))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read: No such file"):
        read_workload(tmp_path / "none.csv")


@given(text=st.text(max_size=300), head=st.sampled_from(["", AZURE, BURST, '{"arrival_time": 0}\n']))
@settings(suppress_health_check=FILE, max_examples=60)
def test_whatever_a_file_holds_it_is_read_or_refused_by_name(tmp_path, text: str, head: str) -> None:
    path = tmp_path / "w"
    path.write_text(head + text, encoding="utf-8", errors="replace")
    try:
        workload = read_workload(path)
    except WorkloadError as error:
        message = str(error)
        workload = None
    if workload is None:
        assert str(path) in message
        return
    times = [a.time for a in workload.arrivals]
    assert times == sorted(times)
    assert times[0] == 0
    for arrival in workload.arrivals:
        assert arrival.prompt_tokens >= 1 <= arrival.output_tokens


def test_limit_scale_and_rate(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, AZURE))
    assert len(workload.limit(2)) == 2
    assert len(read_workload(tmp_path / "work.csv", limit=2)) == 2
    assert [a.prompt_tokens for a in workload.scale(0.01).arrivals] == [48, 32, 1]
    assert [a.output_tokens for a in workload.scale(0.01).arrivals] == [1, 1, 1]
    faster = workload.at_rate(100)
    assert faster.rate == pytest.approx(100)
    assert faster.span == pytest.approx(0.02)
    with pytest.raises(WorkloadError, match="all requests arrive at once"):
        workload.limit(1).at_rate(5)


def test_scaling_keeps_what_prompts_share() -> None:
    workload = open_workload("poisson:requests=6,shared_prefix=64,num_prefixes=1,prompt=30").scale(0.5)
    heads = {tuple(a.token_ids(500)[:32]) for a in workload.arrivals}
    assert len(heads) == 1


def test_a_piece_is_a_prefix_of_a_longer_one_with_its_key() -> None:
    assert Piece("k", 40).tokens(99)[:13] == Piece("k", 13).tokens(99)


DATA = os.environ.get("TINYCB_DATA")


@pytest.mark.skipif(DATA is None, reason="TINYCB_DATA names no folder of public samples")
@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("azure_2023_code_1000.csv", 1000),
        ("azure_2023_conv_1000.csv", 1000),
        ("mooncake_conversation_300.jsonl", 300),
    ],
)
def test_public_samples_are_read_without_a_bad_row(name: str, requests: int) -> None:
    assert DATA is not None
    workload = read_workload(Path(DATA) / name)
    assert (len(workload), workload.problems) == (requests, [])
    if "mooncake" in name:
        blocks = [piece.key for a in workload.arrivals for piece in a.prompt if isinstance(piece, Piece)]
        assert len(set(blocks)) < len(blocks)
