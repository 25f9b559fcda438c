"""A long run: what it costs to look at one step of it."""

from pathlib import Path

from tinycb import EngineConfig
from tinycb.tracing import NewRequest, StepRecord, TraceReader, TraceWriter, lines, make_header
from tinycb.tracing.writer import KEYFRAME_EVERY

HEADER = make_header(EngineConfig(num_blocks=64), model="none")


def long_run(path: Path, steps: int, waiting: int) -> None:
    """One request that runs for ever, beside short ones that each run for a few steps, and a long queue."""
    first = [NewRequest(f"w{i}", [1, 2], {}, 0.0) for i in range(waiting)]
    long = NewRequest("long", [7] * 9, {}, 0.0)
    with TraceWriter(path, HEADER) as writer:
        for step in range(steps):
            short, old = f"s{step // 10}", f"s{step // 10 - 1}"
            record = StepRecord(step, running=["long", short], num_waiting=waiting)
            record.scheduled = {"long": 1, short: 1}
            record.num_computed = {"long": step, short: step % 10}
            record.sampled = {"long": step % 89, short: step % 83}
            if step == 0:
                record.new_requests = [long, *first]
                record.admitted = ["long"]
                record.blocks_allocated = {"long": [0, 1, 2]}
            if step % 10 == 0:
                record.new_requests = [*record.new_requests, NewRequest(short, [3, 4], {}, 0.0)]
                record.admitted = [*record.admitted, short]
                record.blocks_allocated[short] = [3 + step // 10 % 50]
                record.returned = [old] if step else []
            writer.write(record)


class CountingFile(lines.io.FileIO):
    count = 0

    def readinto(self, buffer):
        size = super().readinto(buffer)
        CountingFile.count += size
        return size

    def read(self, size=-1):
        data = super().read(size)
        CountingFile.count += len(data)
        return data


def test_any_step_of_a_long_run_costs_a_bounded_number_of_lines(tmp_path: Path, monkeypatch) -> None:
    path, steps, waiting = tmp_path / "t", 100_000, 20_000
    long_run(path, steps, waiting)
    data = path.read_bytes().split(b"\n")
    frames = [len(line) for line in data if line.startswith(b'{"keyframe"')]
    assert len(frames) == steps // KEYFRAME_EVERY
    assert max(frames) < KEYFRAME_EVERY * 40  # though 20,000 wait and an output is 100,000 tokens long
    first = len(data[1])  # the line of 20,000 arrivals, which is read only for the steps near it
    line = max(map(len, data[2:])) + 1
    bisection = 20 * 16_384

    monkeypatch.setattr(lines.io, "FileIO", CountingFile)
    for index in (0, 99_999, 51_199, 51_200, 3, 77_777):
        CountingFile.count = 0
        with TraceReader(path) as reader:
            record = reader[index]
            assert record.step == index
            assert CountingFile.count < bisection + (4 * first if index < KEYFRAME_EVERY else 0)
            tables = record.block_tables
            assert tables["long"] == [0, 1, 2]
            state = reader.state(index)
            assert state.num_waiting == waiting
            assert state.requests["long"].num_tokens == 9 + index + 1
            assert state.requests["long"].token_ids[-1] == index % 89
        assert CountingFile.count < 2 * bisection + KEYFRAME_EVERY * line + (
            6 * first if index < KEYFRAME_EVERY else 0
        )

    with TraceReader(path) as reader:  # what lies further back is read when somebody looks at it
        state = reader.state(77_777)
        assert list(state.requests["long"].token_ids) == [7] * 9 + [i % 89 for i in range(77_778)]
        assert state.waiting[12_345].request_id == "w12345"
        assert list(state.waiting[-1].token_ids) == [1, 2]
