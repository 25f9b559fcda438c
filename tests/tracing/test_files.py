"""Files: cut, broken, foreign, huge, killed, on a full disk. One clear line, or what is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.tracing.harness import run
from tests.tracing.test_roundtrip import BUSY, CONFIG
from tinycb import EngineConfig
from tinycb.tracing import NewRequest, StepRecord, TraceError, TraceReader, TraceWriter, lines, make_header

HEADER = make_header(EngineConfig(num_blocks=64), model="none")


def one_line(error: pytest.ExceptionInfo[TraceError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_file_cut_at_every_byte_of_its_last_line(tmp_path: Path) -> None:
    path, cut = tmp_path / "a", tmp_path / "b"
    seen = run(path, CONFIG, BUSY, keyframe_every=len(BUSY))
    data = path.read_bytes()
    start = data.rindex(b"\n", 0, -1) + 1
    for end in range(start, len(data) + 1):
        cut.write_bytes(data[:end])
        with TraceReader(cut) as reader:
            whole = end == len(data)
            assert len(reader) == len(seen) - (not whole)
            assert reader.truncated == (start < end < len(data))
            assert reader[-1].step == len(reader) - 1
            assert reader.state(-1).step == len(reader) - 1


def test_a_file_that_ends_with_a_keyframe(tmp_path: Path) -> None:
    path = tmp_path / "t"
    seen = run(path, CONFIG, BUSY, keyframe_every=4)
    at = path.read_bytes().rindex(b'\n{"keyframe":')
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"\n", at + 1) + 1])
    with TraceReader(path) as reader:
        assert 0 < len(reader) < len(seen)
        assert len(reader) % 4 == 0
        assert reader.state(-1).free == seen[len(reader) - 1].free


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a trace: it is empty"),
        (b'{"format": "tinycb-tr', "is not a trace: it ends before its first line does"),
        (b"PK\x03\x04\x00\xff\n", "is not a trace: line 1 is not JSON"),
        (b"[1, 2]\n", "is not a trace: line 1 holds a list"),
        (b'{"a": 1}\n{"b": 2}\n', 'is not a trace: its first line has no "format": "tinycb-trace"'),
        (b'{"format":"tinycb-trace","version":7}\n', "has trace version 7; the versions known here are 1"),
        (b'{"format":"tinycb-trace","version":1}\n', "the header's block_size is None"),
        (
            b'{"format":"tinycb-trace","version":1,"block_size":1,"num_blocks":1}\n',
            "the header's config is None",
        ),
        (
            b'{"format":"tinycb-trace","version":1,"block_size":1,"num_blocks":1,"config":{},"keyframe_every":[]}\n',
            "the header's keyframe_every",
        ),
        (
            b'{"format":"tinycb-trace","version":1,"block_size":1,"num_blocks":1,"config":{},"eos_token_ids":2}\n',
            "eos_token_ids is 2",
        ),
    ],
)
def test_what_is_no_trace_is_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError) as error:
        TraceReader(path)
    assert message in one_line(error)
    assert str(path) in one_line(error)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(TraceError, match="cannot read the trace"):
            TraceReader(path)
    for path in (tmp_path / "no" / "such" / "folder", tmp_path):
        with pytest.raises(TraceError) as error:
            TraceWriter(path, HEADER)
        assert one_line(error).startswith(f"cannot write the trace {path}: ")


@pytest.mark.parametrize(
    "bad", [b"\x00\xff\x00", b'{"step":9,"arri', b"[]", b'{"step":9,"scheduled":[1]}', b"{}"]
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "t"
    seen = run(path, CONFIG, BUSY, keyframe_every=4)
    all_lines = path.read_bytes().split(b"\n")
    number = next(i for i, line in enumerate(all_lines) if line.startswith(b'{"step":9,'))
    path.write_bytes(b"\n".join([*all_lines[:number], bad, *all_lines[number + 1 :]]))
    with TraceReader(path) as reader:
        assert len(reader) == len(seen)
        for read in (lambda: reader[9], lambda: reader.state(10), lambda: list(reader)):
            with pytest.raises(TraceError) as error:
                read()
            assert f"{path} is broken: line {number + 1} " in one_line(error)
        assert reader.state(8).free == seen[8].free  # before it, and from the next keyframe on, all is well
        assert reader.state(len(seen) - 1).free == seen[-1].free


def test_a_lost_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG, BUSY, keyframe_every=100)
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in text if not line.startswith('{"step":9,')))
    with TraceReader(path) as reader, pytest.raises(TraceError, match="is not step 9, which comes next"):
        list(reader)


def test_a_replaced_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG, BUSY)
    with TraceReader(path) as reader:
        TraceWriter(path, HEADER).close()
        with pytest.raises(TraceError, match="has become shorter"):
            reader.refresh()


def test_text_of_any_kind_survives(tmp_path: Path) -> None:
    texts = ["\ud800", "\u2028\n", "𝔘\x00", '"\\']
    path = tmp_path / "t"
    with TraceWriter(path, HEADER) as writer:
        new = NewRequest("ü\n", [1] * 4, {}, 0.5, prompt="".join(texts), texts=texts)
        writer.write(StepRecord(0, arrived=["ü\n"], new_requests=[new]))
    with TraceReader(path) as reader:
        assert reader[0].new_requests == [new]
        assert list(reader.state(0).waiting[0].texts) == texts


def test_steps_are_written_in_order_and_only_while_open(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", HEADER)
    writer.write(StepRecord(3))
    with pytest.raises(ValueError, match="step 4 comes next in the trace, not step 6"):
        writer.write(StepRecord(6))
    writer.write(StepRecord(4))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.write(StepRecord(5))
    with TraceReader(tmp_path / "t") as reader:
        assert list(reader.steps) == [3, 4]
        assert reader[1].step == 4
        assert reader.state(0).step == 3


def test_the_header_names_lines_that_exist(tmp_path: Path) -> None:
    root = Path(lines.__file__).parents[2]
    assert HEADER["config"]["num_blocks"] == HEADER["num_blocks"] == 64
    texts = {}
    for name, place in HEADER["sources"].items():
        file, _, number = place.rpartition(":")
        path = root / file if (root / file).exists() else root / "kernels" / file
        texts[name] = path.read_text().splitlines()[int(number) - 1].strip()
    assert texts["slot_mapping"].startswith("slot_mapping[real] = ")
    assert texts["block_table"].startswith("block_table[r, ")
    assert texts["mask"].startswith("return same_request & ")


# ── the system says no ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_that_is_full_from_the_start() -> None:
    with pytest.raises(TraceError, match="cannot write the trace /dev/full: No space left on device"):
        TraceWriter("/dev/full", HEADER)


FULL_DISK = """
    import resource, sys, warnings
    from tests.tracing.harness import Executor
    from tinycb import Engine, EngineConfig, Request, SamplingParams

    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
    engine = Engine(EngineConfig(num_blocks=32), Executor(), trace=sys.argv[1])
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    for i in range(3):
        engine.add_request(Request(f"r{i}", [1, 2, 3], params))
    with warnings.catch_warnings(record=True) as told:
        while engine.has_unfinished_requests():
            engine.step()
        engine.close()
    assert [len(engine.outputs[f"r{i}"].token_ids) for i in range(3)] == [40, 40, 40]
    print(*(warning.message for warning in told), sep="\\n")
    print(engine.trace_error)
"""

KILLED = """
    import sys
    from tests.tracing.harness import Executor
    from tinycb import Engine, EngineConfig, Request, SamplingParams

    engine = Engine(EngineConfig(num_blocks=32), Executor(), trace=sys.argv[1])
    print("ready", flush=True)
    count = 0
    while True:
        if engine.step_count % 40 == 0:
            params = SamplingParams(max_tokens=50, ignore_eos=True)
            engine.add_request(Request(f"r{count}", [1, 2, 3], params))
            count += 1
        engine.step()
"""


def script(code: str, path: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on file sizes here")
def test_a_disk_that_fills_up_stops_the_trace_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t"
    process = script(FULL_DISK, path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    trouble = f"cannot write the trace {path}: File too large"
    assert out == f"{trouble}; the run goes on without its trace\n{trouble}\n"  # once
    with TraceReader(path) as reader:
        assert not reader.truncated
        assert len(reader) > 10
        assert reader.state(-1).running == ("r0", "r1", "r2")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL here")
def test_a_killed_run_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    process = script(KILLED, path)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        while path.stat().st_size < 200_000:
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    with TraceReader(path) as reader:
        assert [record.step for record in reader] == list(range(len(reader)))
        assert len(reader) > 256
        assert reader.state(-1).running
        assert reader[-1].packed.num_padded == 0


def test_a_trace_needs_no_model_and_no_screen() -> None:
    code = "import sys, tinycb.replay, tinycb.tracing; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "textual", "rich", "triton"} & set(out.split())
