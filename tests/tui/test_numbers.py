"""Every number on the screen, against the trace."""

from pathlib import Path

import pytest

from tests.tui.harness import LOOK, drawing, whole
from tinycb.tracing import TraceReader
from tinycb.tui.session import Session

WIDE = 2000


@pytest.fixture(params=["chunked", "continuous", "static"])
def steps(tours: dict[str, Path], request: pytest.FixtureRequest):
    """Every record with a function that draws a panel of its step."""
    with TraceReader(tours[request.param]) as reader:
        session = whole(Session(reader))

        def lines(index: int, name: str, width: int = WIDE) -> list[str]:
            session.go(index)
            panel = drawing(name)
            panel.update(session.view(LOOK), width, 200)
            return [panel.line(y, 0, 0).plain for y in range(panel.extent[1])]

        yield reader, lines


def test_the_batch_has_the_arrays_of_the_kernels(steps) -> None:
    reader, lines = steps
    for index, record in enumerate(reader):
        if not record.scheduled:
            continue
        packed = record.packed
        rows = {line.split()[0]: line.split()[1:] for line in lines(index, "batch")}
        assert list(map(int, rows["slot_mapping"])) == packed.slot_mapping.tolist()
        assert list(map(int, rows["query_start_loc"])) == packed.query_start_loc.tolist()
        assert list(map(int, rows["seq_lens"])) == packed.seq_lens.tolist()
        real = packed.slot_mapping >= 0
        assert [int(p) for p in rows["position"] if p != "·"] == packed.positions[real].tolist()
        assert len(rows["token"]) == len(packed.token_ids)
        new = [text.strip() for text in record.sampled_texts.values()]
        assert [word.removeprefix("→") for word in rows["samples"]] == [
            t[:10] + "…" * (len(t) > 11) for t in new
        ]


def test_the_requests(steps) -> None:
    reader, lines = steps
    for index, record in enumerate(reader):
        table = [line.replace("▸", " ").split() for line in lines(index, "requests")[1:]]
        by_letter = {cells[0]: cells for cells in table}
        assert [cells[0] for cells in table[: len(record.running)]] == record.running
        state = reader.state(index)
        for name, count in record.scheduled.items():
            cells = by_letter[name]
            assert cells[2].split("/")[0] == str(record.num_computed[name] + count)
            assert int(cells[4]) == len(record.block_tables[name])
            if name in state.requests:
                request = state.requests[name]
                assert cells[3].split("/")[0] == str(request.num_tokens - request.num_prompt_tokens)
        assert [cells[0] for cells in table if cells[1] in ("waits", "preempted")] == [
            request.request_id for request in state.waiting
        ]


def test_the_budgets(steps) -> None:
    reader, lines = steps
    chunked = reader.header["config"]["batching"] == "chunked"
    for index, record in enumerate(reader):
        _, step, _, _, memory = lines(index, "budget", 120)
        words = step.split()
        tokens = sum(record.scheduled.values())
        assert int(words[1]) + int(words[5]) == tokens
        if chunked:
            assert words[-2:] == [str(8 - tokens), "left"]
        used = reader.num_blocks - record.num_free_blocks
        assert memory.endswith(f"{used} of {reader.num_blocks} blocks")
        assert f"of N_max {reader.num_blocks * reader.block_size} tokens" in memory


def test_the_reasons(steps) -> None:
    reader, lines = steps
    for index, record in enumerate(reader):
        text = lines(index, "why")
        for decision in record.decisions:
            assert any(line.endswith(f" {decision.sentence}") for line in text)


def test_the_blocks(steps) -> None:
    reader, lines = steps
    for index, record in enumerate(reader):
        drawn = lines(index, "blocks", 15 * 7 + 30)
        numbers, slots = drawn[0].split("│")[0].split(), drawn[1].split("│")[0].split()
        assert len(numbers) == len(slots) == reader.num_blocks
        tables = record.block_tables
        for block_id, (number, text) in enumerate(zip(numbers, slots, strict=True)):
            owners = [name for name, table in tables.items() if block_id in table]
            fresh = any(block_id in ids for ids in record.blocks_allocated.values())
            assert ("+" in number) == fresh
            assert len(owners) < 2 or f"×{len(owners)}" in number
            if owners:
                filled = set()
                for name in owners:
                    length = record.num_computed[name] + record.scheduled[name]
                    filled.add(min(4, length - 4 * tables[name].index(block_id)))
                letter = text.strip("()_")[0]
                assert letter in owners
                assert (0 if text.startswith("(") else text.count(letter)) in {max(0, n) for n in filled}
        free = sum(set(text) <= {"·", "░"} for text in slots)
        assert free == record.num_free_blocks
