"""`tinycb bench` on the tiny model, and `tinycb doctor --measure`: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tinycb.costs.devices import DEVICES, Device, find_device, save_measured

WORK = "poisson:requests=4,rate=100,prompt=10,output=4"
TINY = ("--model", "tiny-random", "--num-blocks", "256", "--quiet")
FAST = Device("cpu", 1e10, {"float32": 1e11}, 2**30, "made up for a test", layer_overhead=1e-4)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_modelled_lies_beside_measured_and_the_error_is_stated(cli: Cli) -> None:
    save_measured(FAST)
    result = cli("bench", WORK, *TINY)
    assert result.code == 0, result.err
    assert "requests answered                                    4" in result.out
    measured, modelled = result.out.split("modelled beside measured")
    assert "output tokens/s" in measured.split("\nmeasured ")[1]
    assert "decode only" in modelled
    assert "modelled from: made up for a test" in modelled


def test_json_has_the_error_by_kind_of_step(cli: Cli) -> None:
    save_measured(FAST)
    values = json.loads(cli("bench", WORK, *TINY, "--json").out)
    assert values["exact"]["answered"] == 4
    assert values["measured"]["ttft"]["p50"] > 0
    every = values["error"]["all"]
    assert every["count"] == values["exact"]["steps"]
    assert every["sum_error"] == pytest.approx(every["modelled"] / every["measured"] - 1)


def test_without_figures_of_this_machine_it_says_how_to_get_them(cli: Cli) -> None:
    result = cli("bench", WORK, *TINY)
    assert result.code == 0
    assert (
        "no modelled seconds: this machine has not been measured yet: tinycb doctor --measure" in result.out
    )


def test_arrivals_are_waited_for_in_real_time(cli: Cli) -> None:
    values = json.loads(
        cli("bench", "poisson:requests=3,rate=10,prompt=8,output=2,seed=4", *TINY, "--json").out
    )
    assert values["measured"]["duration"] > 0.05


def test_a_request_that_does_not_fit_is_told_and_the_rest_is_served(cli: Cli, tmp_path: Path) -> None:
    lines = [{"arrival_time": 0, "prompt_tokens": n, "output_tokens": 2} for n in (9, 900, 9)]
    (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = cli("bench", "w.jsonl", *TINY, "--json")
    assert result.code == 2
    assert json.loads(result.out)["exact"]["answered"] == 2
    assert "w.jsonl line 2: the prompt has 900 tokens" in result.err_lines[0]


def test_interference_compares_continuous_with_budgets(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("--interference", "--long-prompt", "200", "--budgets", "40,72", "--figure", "gaps")
    result = cli("bench", *arguments, *TINY)
    assert result.code == 0, result.err
    rows = [line for line in result.out.splitlines() if line.startswith(("continuous", "chunked"))]
    assert [" ".join(row.split()[:3]) for row in rows][1:] == ["chunked, 72 4", "chunked, 40 7"]
    assert rows[0].split()[1] == "1"
    assert "measured" in (tmp_path / "gaps.svg").read_text()
    assert (tmp_path / "gaps.png").is_file()


def test_the_doctor_measures_and_keeps_the_figures(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinycb.costs.measure.COPY_BYTES", 2**20)
    result = cli("doctor", "--measure")
    assert result.code == 0
    for words in ("copy", "products", "attention", "layer", "kept in"):
        assert words in result.out
    device = find_device("cpu")
    assert "measured" in device.source
    assert device.bandwidth > 1e8 < device.flops["float32"]
    assert cli("budget", "smollm2-135m", "--device", "cpu", "--dtype", "float32").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a WORKLOAD, or --interference"),
        ([WORK, "--interference"], "give a WORKLOAD, or --interference"),
        (["nothing.csv"], "cannot be read"),
        (["--interference", "--budgets", "8"], "--budgets must be an integer of at least 9"),
        (["--interference", "--long-prompt", "x"], "--long-prompt must be an integer"),
        (["--interference", "--trace", "t"], "leave out --trace"),
        (["--interference", "--long-prompt", "5000"], "the prompt has 5000 tokens"),
        ([WORK, "--slo", "x:1"], "--slo must be of"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, arguments: list[str], says: str) -> None:
    result = cli("bench", *arguments, *TINY)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err_lines) == 1
    assert says in result.err


def test_devices_have_no_overhead_that_nobody_measured() -> None:
    assert all(device.layer_overhead == 0 for device in DEVICES.values())
