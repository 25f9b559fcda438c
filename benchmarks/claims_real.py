"""The claims that need a machine: decode against copy bandwidth, a long prompt among decoding requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.commands.neighbours import busy_neighbours
from tinycb.costs.devices import Device
from tinycb.costs.measure import copy_bandwidth, measure_this_machine
from tinycb.costs.roofline import CostModel
from tinycb.executors import LlamaExecutor
from tinycb.interference import interfere
from tinycb.model.checkpoint import LoadedModel, load
from tinycb.view.results import seconds

__all__ = ["decode_section", "interference_section"]

MODEL = "smollm2-135m"
STEPS = 24
Table = Callable[..., str]


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _quiet(before: float) -> str:
    """A sentence on who else was busy, before and after."""
    share = max(before, _neighbours())
    if share < 0.3:
        return "No other process was busy before or after."
    return (
        f"Other processes kept {share:.1f} processors busy meanwhile, so these seconds are too long; the "
        "fastest step of many suffers least."
    )


def _neighbours() -> float:
    return sum(neighbour.share for neighbour in busy_neighbours())


def _decode_step(loaded: LoadedModel, rows: int) -> float:
    """Seconds of a decode step of `rows` requests at about fifty tokens: the fastest of many."""
    config = EngineConfig(max_num_seqs=rows, prefix_caching=False)
    engine = Engine(config, LlamaExecutor(loaded, config), clock=time.perf_counter)
    for index in range(rows):
        params = SamplingParams(max_tokens=STEPS + 2, ignore_eos=True)
        engine.add_request(Request(f"r{index}", [(31 * index + i) % 40_000 + 200 for i in range(32)], params))
    records = [engine.step() for _ in range(STEPS)]
    return min(
        r.time_end - r.time_start for r in records if len(r.sampled) == rows == sum(r.scheduled.values())
    )


def decode_section(table: Table, section: Table, verdict: Table) -> str:
    """Bytes a decode step must move, over the time it takes, beside the bandwidth of a copy."""
    busy = _neighbours()
    copy = copy_bandwidth()
    device: Device = measure_this_machine(_say)
    loaded = load(MODEL, device="cpu", dtype="float32")
    kept = loaded.model.bytes_per_weight
    cost = CostModel(loaded.config, device, "float32", bytes_per_weight=kept)
    rows, shares, times = [], [], []
    for count in (1, 4, 16):
        _say(f"{MODEL}: {count} rows decode")
        spent = _decode_step(loaded, count)
        work = cost.work([(1, 32 + STEPS // 2)] * count)
        rate = work.bytes / spent
        shares.append(rate / copy)
        times.append(spent)
        modelled = cost.floor(work).seconds
        rows.append(
            [
                str(count),
                f"{work.bytes / 1e6:,.0f} MB",
                seconds(spent),
                f"{rate / 1e9:.1f} GB/s",
                f"{100 * shares[-1]:.0f} %",
                seconds(modelled),
                f"{100 * (modelled / spent - 1):+.0f} %",
            ]
        )
    overhead = device.layer_overhead * loaded.config.num_layers
    bare = shares[0] * times[0] / (times[0] - overhead)
    text = verdict(
        shares[0] > 0.5,
        f"One row moves its bytes at {100 * shares[0]:.0f} % of the rate of a plain copy: what is left is "
        "launches and Python. Each further row reads the same weights: a step of sixteen rows takes "
        f"{times[-1] / times[0]:.1f} times as long as a step of one.",
        f"One row reaches {100 * shares[0]:.0f} % of the rate of a plain copy. Beside the bytes of a small "
        f"model, {loaded.config.num_layers} layers of launches and Python weigh much: "
        f"{seconds(overhead)} a step, measured apart. Without them its rate is {100 * bare:.0f} % of "
        f"a copy's: small products read weights at {device.bandwidth / 1e9:.1f} GB/s"
        + (", and those kept smaller are widened on the way." if kept < 4 else "."),
    )
    text += f"\n{MODEL} in fp32; its weights, integers in the file, are kept at {kept:.2f} bytes each. "
    text += f"A copy here: {copy / 1e9:.1f} GB/s. The model: {device.source}. {_quiet(busy)}\n"
    head = (
        "rows, measured",
        "bytes (exact)",
        "fastest step",
        "rate",
        "of a copy's",
        "modelled step",
        "its error",
    )
    return section("Decode is bound by memory bandwidth", text, table(head, rows))


def interference_section(table: Table, section: Table, verdict: Table) -> str:
    """Eight requests decode on this machine; a prompt of 2,048 tokens arrives."""
    busy = _neighbours()
    loaded = load(MODEL, device="cpu", dtype="float32")
    runs = []
    for name, settings in (
        ("continuous", {"batching": "continuous"}),
        ("chunked, 512", {"max_num_batched_tokens": 512}),
        ("chunked, 256", {"max_num_batched_tokens": 256}),
        ("chunked, 64", {"max_num_batched_tokens": 64}),
    ):
        _say(f"{MODEL}: a long prompt, {name}")
        config = EngineConfig(prefix_caching=False, **settings)
        run = interfere(Engine(config, LlamaExecutor(loaded, config), clock=time.perf_counter), name)
        assert run is not None
        runs.append(run)
    first, last = runs[0], runs[-1]
    text = verdict(
        last.worst < first.worst / 4,
        f"Whole, the prompt makes everybody wait {seconds(first.worst)} once, {first.slowdown:.0f} times the "
        f"gap before; with a budget of 64 the worst gap is {seconds(last.worst)}, and the prompt's own TTFT "
        f"is {last.ttft / first.ttft:.2f} times what it was.",
        f"The worst gap falls from {seconds(first.worst)} to {seconds(last.worst)} only.",
    )
    text += f"\n{_quiet(busy)}\n"
    rows = [
        [run.name, str(run.chunks), seconds(run.before), seconds(run.worst), seconds(run.ttft)]
        for run in runs
    ]
    head = ("measured", "forwards of the prompt", "gap before", "worst gap", "TTFT of the prompt")
    return section("The same on this machine: 2,048 tokens among eight requests", text, table(head, rows))
