"""The benchmark's parts: what is served, how it is compared and kept, and a page that says just that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.speed.agreement import compare
from benchmarks.speed.figure import draw
from benchmarks.speed.machine import machine_name
from benchmarks.speed.page import write_page
from benchmarks.speed.results import Entry, Memory, ProfileEntry, Results
from benchmarks.speed.running import ServeError, serve
from benchmarks.speed.workloads import WORKLOADS, Work, warm_up
from tinycb.profiling import ELSE, PRODUCTS


def test_the_workloads_are_those_that_are_spoken_of() -> None:
    works = {name: workload.make(49_152) for name, workload in WORKLOADS.items()}
    assert [len(works[name].prompts) for name in ("mixed16", "mixed64")] == [16, 64]
    for work in (works["mixed16"], works["mixed64"]):
        assert {len(p) for p in work.prompts} <= set(range(8, 129))
        assert set(work.lengths) <= set(range(4, 97))
    assert (works["decode-heavy"].prompt_tokens, works["decode-heavy"].output_tokens) == (32 * 16, 32 * 256)
    assert (works["prefill-heavy"].prompt_tokens, works["prefill-heavy"].output_tokens) == (32 * 512, 32 * 8)
    assert WORKLOADS["mixed16"].make(49_152) == works["mixed16"]
    assert max(map(max, WORKLOADS["mixed16"].make(256).prompts)) < 256
    assert max(warm_up(works["decode-heavy"]).lengths) == 4


def test_agreement_counts_up_to_the_first_difference() -> None:
    found = compare([[1, 2, 3], [4, 5, 6], [7]], [[1, 2, 3], [4, 9, 6], [7, 8]])
    assert found.differing == {1: 1, 2: 1}
    assert found.share == pytest.approx((3 + 1 + 1) / 8)
    assert not found.is_full
    assert str(found) == "1 of 3, 62 % of tokens"
    assert str(compare([[1]], [[1]])) == "all"


# ── a system in its own process ───────────────────────────────────────────────────────────────────────────


@dataclass
class Script:
    """A system that runs this Python."""

    code: str
    title: str = "a script"
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]


def run(code: str, timeout: float = 60.0) -> tuple[list[tuple[str, float]], dict[str, str]]:
    found: list[tuple[str, float]] = []
    works = {"one": Work([[1]], [1]), "two": Work([[2]], [1])}
    versions = serve(
        Script(code),  # type: ignore[arg-type]
        Path("model"),
        "float32",
        works,
        lambda name, result: found.append((name, result["seconds"])),
        timeout=timeout,
    )
    return found, versions


ANSWERS = """
import json, sys
job = json.load(open(sys.argv[1]))
print("chatter", {})
print(json.dumps({"versions": {"it": "1"}}))
for i, name in enumerate(list(job["works"])[:%d]):
    print(json.dumps({"workload": name, "seconds": i + 1.0, "tokens": []}), flush=True)
"""


def test_results_are_read_as_they_come_and_chatter_is_not() -> None:
    assert run(ANSWERS % 2) == ([("one", 1.0), ("two", 2.0)], {"it": "1"})


@pytest.mark.parametrize(
    ("code", "named"),
    [("import sys; print('no luck', file=sys.stderr); sys.exit(3)", "no luck"), (ANSWERS % 1, "failed")],
)
def test_a_system_that_fails_or_leaves_something_out_is_named(code: str, named: str) -> None:
    with pytest.raises(ServeError, match=f"a script .*{named}"):
        run(code)


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = f"""
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(child)!r}, "w").write(str(process.pid))
time.sleep(600)
"""
    with pytest.raises(ServeError, match="took over 3 s"):
        run(code, timeout=3)
    for _ in range(100):
        state = subprocess.run(["ps", "-o", "stat=", "-p", child.read_text()], capture_output=True, text=True)
        if state.stdout.strip() in ("", "Z"):
            return
        time.sleep(0.05)
    pytest.fail("the child goes on")


# ── what is kept, and the page ────────────────────────────────────────────────────────────────────────────


def entry(
    workload: str, system: str, speeds: Sequence[float], beside: Sequence[float], **more: object
) -> Entry:
    values: dict[str, object] = {"same": "all", "date": "2026-01-02", **more}
    return Entry(workload, "float32", system, [*speeds], [*beside], **values)  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    found = Results("a machine", "a model", {"torch": "2"})
    memory = Memory(peak=150 * 2**20, weights=90 * 2**20, cache=10 * 2**20)
    for made in (
        entry("mixed16", "tinycb", [100, 300, 200], [100, 300, 200], memory=memory),
        entry("mixed16", "vllm-compiled", [50, 200, 250], [100, 300, 200], busy=0.9),
        entry("mixed16", "transformers-static-8", [20], [100]),
        entry("mixed16", "transformers-static-16", [25], [100], same="15 of 16, else ties"),
        entry("prefill-heavy", "tinycb", [10], [10]),
        entry("prefill-heavy", "vllm-compiled", [20], [10]),
    ):
        found.put(made)
    parts = {PRODUCTS: 3.0, "packing": 0.5, ELSE: 0.5}
    found.put_profile(ProfileEntry("mixed16", "float32", 8, 400, 4.0, parts, "2026-01-02"))
    return found


def test_a_figure_is_the_median_and_a_ratio_that_of_the_rounds_ratios(
    results: Results, tmp_path: Path
) -> None:
    write_page(results, tmp_path)
    page = (tmp_path / "speed.md").read_text()
    assert "a model on a machine, on 2026-01-02: torch 2." in page
    assert "| **tinycb** | 200 | 10.0 | all |" in page
    assert "| vLLM, compiled | 200 (1.50 ×) † | 20.0 (0.50 ×) | all |" in page  # of 2, 1.5 and 0.8
    assert "| transformers, static batches of 16 | 25.0 (4.00 ×) | – | 15 of 16, else ties |" in page
    assert "† other processes" in page
    assert "| mixed16 | 1.50 × | 4.00 × | 5.33 × |" in page  # the better mode of transformers
    assert "| prefill-heavy | 0.50 × | – | – |" in page
    assert "Below it: prefill-heavy." in page
    assert "| mixed16, fp32 | 90 | 10 | 150 | 1.50 × |" in page
    assert "times weights and cache: not kept." in page
    assert f"| {PRODUCTS} | 375.00 (75.0 %) |" in page
    assert "| **a step** | **500.0** |" in page
    assert "| times the products alone | 1.33 |" in page
    assert all(len(line) <= 120 or line.startswith("|") for line in page.splitlines())


def test_results_come_back_as_they_were_written(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "speed.json")
    assert Results.read(tmp_path / "speed.json") == results
    assert Results.continued(tmp_path / "speed.json", "a machine", "a model") == results


def test_a_later_run_replaces_what_it_measures_and_keeps_the_rest(results: Results) -> None:
    results.put(entry("mixed16", "vllm-compiled", [400], [200]))
    assert len(results.entries) == 6
    assert results.find("mixed16", "float32", "vllm-compiled").ratio == 0.5  # type: ignore[union-attr]
    results.note_versions({"torch": "2", "vllm": "1"})
    assert len(results.entries) == 6


def test_figures_of_another_machine_model_or_version_are_let_go(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    results.write(path)
    assert Results.continued(path, "another", "a model").entries == []
    assert Results.continued(path, "a machine", "another").entries == []
    results.note_versions({"torch": "3"})
    assert (results.entries, results.profiles, results.versions) == ([], [], {"torch": "3"})


@pytest.mark.parametrize("text", ["", "[]", '{"machine": 1}', "{"])
def test_a_file_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "speed.json").write_text(text)
    with pytest.raises(ValueError, match=r"speed\.json is not a file of this benchmark"):
        Results.read(tmp_path / "speed.json")


def test_the_figure_has_a_bar_a_system_and_no_background(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw(results, tmp_path / "speed.svg")
    picture = (tmp_path / "speed.svg").read_text()
    for text in ("mixed16, fp32", "prefill-heavy, fp32", "vLLM, compiled", ">200<", ">25.0<"):
        assert text in picture
    assert picture.count("#ffffff") == 0
    assert not draw(Results("a machine", "a model"), tmp_path / "none.svg")


def test_a_dtype_has_bars_only_for_the_systems_that_were_measured_in_it(
    results: Results, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    results.put(Entry("mixed16", "bfloat16", "tinycb", [7], [7], "all", "2026-01-02"))
    assert draw(results, tmp_path / "speed.svg")
    picture = (tmp_path / "speed.svg").read_text()
    assert picture.count(">tinycb<") == 2
    assert picture.count(">vLLM, compiled<") == 1


def test_the_machine_is_named_by_processor_cores_and_memory() -> None:
    name = machine_name()
    assert (
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores"
        in name
    )
    assert name.endswith("GiB")
