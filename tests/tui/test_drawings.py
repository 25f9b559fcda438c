"""Every panel, of any run, in any room: lines of the right width, and picks that lead somewhere."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from rich.cells import cell_len

from tests.tracing import harness
from tests.tui.harness import LOOK, whole
from tinycb.tracing import TraceReader
from tinycb.tui.look import Look
from tinycb.tui.panels import DRAWINGS
from tinycb.tui.session import Session

PLAIN = Look("plain")


def draw(session: Session, width: int, height: int, look: Look) -> None:
    view = session.view(look)
    for make in DRAWINGS:
        panel = make()
        panel.update(view, width, height)
        wide, tall = panel.extent
        for left, top in {
            (0, 0),
            (max(0, wide - width), max(0, tall - height)),
            (max(0, wide - width) // 2, 0),
        }:
            for y in range(height):
                line = panel.line(y, left, top)
                assert line.width == width
                assert sum(cell_len(segment.text) for segment in line.segments()) == width
        anchor = panel.anchor()
        if anchor is not None:
            x, y, _, _ = anchor
            assert 0 <= x <= wide
            assert 0 <= y < max(1, tall)
        assert isinstance(panel.note(), str)


def pick(session: Session, width: int, height: int) -> None:
    """Every cell and every arrow choose something that every panel can show, or nothing."""
    index, selection = session.index, session.selection
    view = session.view(LOOK)
    for make in DRAWINGS:
        panel = make()
        panel.update(view, width, height)
        picks = [panel.at(x, y, 0, 0) for y in range(height) for x in range(0, width, 3)]
        picks += [panel.move(dx, dy) for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (10, 0), (0, -10))]
        for chosen in set(picks) - {None}:
            assert chosen is not None
            session.choose(chosen)
            assert session.index == index or make.name == "timeline"
            place = session.view(LOOK).place
            if place is not None and place.slot is not None and place.query is not None:
                packed = session.snapshots.at(session.index).packed
                assert packed.slot_mapping[place.query] == place.slot
            session.index, session.selection = index, selection


@settings(max_examples=40)
@given(
    config=harness.configs,
    what=harness.ops,
    width=st.integers(40, 160),
    height=st.integers(1, 30),
    data=st.data(),
)
def test_any_run(tmp_path_factory: pytest.TempPathFactory, config, what, width, height, data) -> None:
    path = tmp_path_factory.mktemp("run") / "t"
    harness.run(path, config, what)
    with TraceReader(path) as reader:
        if not len(reader):
            return
        session = whole(Session(reader))
        names = sorted({entry.request_id for entry in session.history.lives}) or ["r0"]
        for index in data.draw(st.lists(st.integers(0, len(reader) - 1), min_size=3, max_size=8)):
            session.go(index)
            name = data.draw(st.sampled_from(names))
            position = data.draw(st.none() | st.integers(0, 20))
            session.selection = type(session.selection)(name, position)
            session.zoomed = data.draw(st.booleans())
            draw(session, width, height, data.draw(st.sampled_from([LOOK, PLAIN])))
            pick(session, width, height)
            for _ in range(2):
                session.choose_request(1)
