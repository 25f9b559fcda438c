"""The GPU benchmark without a GPU: every part in tiny, each failure a part's own, the page from the rows."""

import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu_attention import FLEX_DECODES, Work, decode, make, prompts
from benchmarks.gpu_correct import cases, check, grids
from benchmarks.gpu_engine import serve
from benchmarks.gpu_machine import Machine, ceilings
from benchmarks.gpu_page import lines

from .batches import Backend

COMPILED = [{"name": "paged bf16 D=128", "registers": 100, "spilled": 0, "shared": 72_000}]


def rows_of(part: object) -> list[dict]:
    rows: list[dict] = []
    part(Machine.dry(600.0), rows.append)
    return json.loads(json.dumps(rows))  # a row is what a line of JSON can hold


def test_ceilings() -> None:
    assert {row["what"] for row in rows_of(ceilings) if row["rate"] > 0} == {"copy", "bf16 matmul"}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("part", [decode, prompts], ids=["decode", "prompts"])
def test_every_contender_answers_alike_or_says_why_not(triton_backend: Backend, part: object) -> None:
    rows = rows_of(part)
    finished = [row for row in rows if "failed" not in row]
    contenders = {row["contender"] for row in finished}
    assert {"tinycb paged", "FlexAttention"} <= contenders
    assert any("SDPA" in contender for contender in contenders)
    assert all(row["off"] < 1e-5 and row["seconds"] > 0 for row in finished)
    failed = [row for row in rows if "failed" in row]
    assert {row["contender"] for row in failed} == {"torch varlen"}, "CUDA's, and named with its reason"
    assert all(len(row["failed"]) > 20 for row in failed)


def test_the_engine_serves_with_graphs_or_says_why_not(triton_backend: Backend) -> None:
    rows = [row for row in rows_of(serve) if "batch" in row]
    assert {row["graphs"] for row in rows} == {False, True}
    assert all(row["tokens/s"] > 0 for row in rows)


def test_the_grids_are_right_and_a_wrong_kernel_is_reported(
    triton_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(grids)
    assert len(rows) == len(cases(is_dry=True))
    assert not any(row["wrong"] for row in rows)
    import tests.kernels.batches as batches

    monkeypatch.setattr(batches, "oracle", lambda batch: batch.q.double().numpy() + 1)
    assert any("paged: off by" in line for line in check(cases(is_dry=True)[0], "cpu"))


def test_the_real_grid_covers_what_it_is_said_to() -> None:
    grid = cases(is_dry=False)
    assert {case.dtype for case in grid} == {"fp32", "bf16", "fp16"}
    assert {case.head_dim for case in grid} == {64, 128}
    assert {case.block_size for case in grid} >= {1, 2, 8, 16, 32, 64, 128, 256}
    assert len(set(map(str, grid))) == len(grid) < 100, "each compiles for seconds"


def test_operations_and_bytes_are_counted() -> None:
    work = make([(3, 5), (1, 2)], Machine.dry())
    assert isinstance(work, Work)
    heads, dim = work.q.shape[1:]
    assert work.flops == 4 * heads * dim * (3 + 4 + 5 + 2)
    assert work.bytes_moved == 4 * dim * (2 * 4 * heads + 2 * 7 * 1)
    assert all(number * context * 4096 < 100e9 for number, context in FLEX_DECODES)


def test_a_part_that_runs_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(mark)!r}).touch()"
    script = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    )
    begin = time.monotonic()
    assert gpu.run_apart([sys.executable, "-c", script], 0.6) == "it was ended after 1 s"
    assert time.monotonic() - begin < 30
    time.sleep(2)
    assert not mark.exists()
    assert gpu.run_apart([sys.executable, "-c", "raise SystemExit(3)"], 60) == "it failed with exit code 3"


def test_a_part_that_fails_keeps_its_rows_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(command: list[str], seconds: float) -> str:
        name, notes = command[command.index("--part") + 1], Path(command[command.index("--part") + 2])
        notes.write_text('{"what": "copy", "rate": 1.0, "unit": "B/s"}\n{"what": "cut o')
        return "ok" if name == "engine" else "it failed with exit code 1"

    monkeypatch.setattr(gpu, "run_apart", end)
    assert gpu.main(["--dry-run", "--json", str(tmp_path / "gpu.json"), "--only", "ceilings", "engine"]) == 1
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert [part["outcome"] for part in parts.values()] == ["it failed with exit code 1", "ok"]
    assert all(len(part["rows"]) == 1 for part in parts.values())
    page = "\n".join(lines(json.loads((tmp_path / "gpu.json").read_text()), COMPILED))
    assert "**ceilings: it failed with exit code 1**" in page


def test_a_part_runs_from_the_command_line_in_any_folder(tmp_path: Path, triton_backend: Backend) -> None:
    command = [sys.executable, str(gpu.ROOT / "benchmarks" / "gpu.py"), "--dry-run", "--only", "ceilings"]
    assert gpu.run_apart([*command, "--json", str(tmp_path / "gpu.json")], 120) == "ok"
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert results["machine"]["gpu"].startswith("none")
    assert len(results["parts"]["ceilings"]["rows"]) == 2


def test_the_page_says_what_has_not_run_and_shows_what_has() -> None:
    page = "\n".join(lines(None, COMPILED))
    assert "no compiled kernel has been executed" in page
    assert "| paged bf16 D=128 | 100 | 0 | 72,000 |" in page
    timed = {"seconds": 1e-4, "B/s": 3.4e12, "FLOP/s": 4e14, "off": 1e-3}
    race = [
        {"batch": "B 1", "contender": "tinycb paged", **timed},
        {"batch": "B 1", "contender": "torch varlen", "failed": "ImportError: none"},
    ]
    engine = [
        {"what": "weights read by a step", "bytes": 15e9},
        {"batch": 1, "graphs": True, "decode_step": 5e-3, "tokens/s": 200.0, "kv_bytes": 1e9},
        {"batch": 1, "graphs": False, "failed": "no time was left"},
    ]
    parts = {
        "ceilings": [
            {"what": "copy", "rate": 4e12, "unit": "B/s"},
            {"what": "bf16 matmul", "rate": 8e14, "unit": "FLOP/s"},
        ],
        "decode": race,
        "prompts": race,
        "engine": engine,
        "grids": [{"case": "fp32 D 64", "wrong": []}, {"case": "bf16 D 64", "wrong": ["paged: off by 1"]}],
    }
    machine = {"gpu": "NVIDIA H200, 580.1", "torch": "2.11", "triton": "3.6", "python": "3.12"}
    results = {
        "machine": machine,
        "parts": {name: {"outcome": "ok", "seconds": 1, "rows": rows} for name, rows in parts.items()},
    }
    page = "\n".join(lines(results, COMPILED))
    assert "| B 1 | tinycb paged | 100 | 3.40 | 85 % | 400 | 50 % | 1.0e-03 |" in page
    assert "| B 1 | torch varlen | ImportError: none |" in page
    assert "| 1 | yes | 5.00 | 1.25 × | 200 |" in page
    assert "2 batches, 1 of them right" in page
    assert "- bf16 D 64: paged: off by 1" in page
    assert "no compiled kernel has been executed" not in page
