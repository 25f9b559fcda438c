"""The packed row of a step: whose token each cell is, and what it does there.

    AAAAAAAAAAAAAAAAAAAAAAAABCDE      the letter of the request
    ████████████████████████▄▄▄▄      prefill or decode; padding is a dot

One cell is one token while they fit; a longer row is drawn to scale, with at least a cell for everybody.
Also the bars: a budget, and the blocks of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from tinycb.view.run_state import RequestView, Segment
from tinycb.view.signs import Glyphs, colour

__all__ = ["PackedRow", "bar", "blocks_bar", "packed_row"]


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Two lines of equal width. scale: tokens a cell stands for. hidden: requests that found no place."""

    letters: Text
    glyphs: Text
    scale: float = 1.0
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    segment: Segment
    tokens: int
    is_padding: bool

    @property
    def least(self) -> int:
        return 1 if self.is_padding else len(self.segment.letter)


def packed_row(segments: Sequence[Segment], width: int, glyphs: Glyphs) -> PackedRow:
    """Lay the segments side by side in at most `width` cells."""
    pieces = []
    for segment in segments:
        if segment.padding:
            pieces.append(_Piece(segment, segment.padding, True))
        if segment.num_tokens:
            pieces.append(_Piece(segment, segment.num_tokens, False))
    shown, room = [], width
    for piece in pieces:
        if piece.least > room:
            break
        shown.append(piece)
        room -= piece.least
    hidden = len(pieces) - len(shown)
    total = sum(piece.tokens for piece in shown)
    letters, row = Text(no_wrap=True), Text(no_wrap=True)
    for piece, cells in zip(shown, _share(shown, width), strict=True):
        segment, tint = piece.segment, colour(piece.segment.index)
        name = (segment.letter * cells)[:cells] if len(segment.letter) == 1 else segment.letter.ljust(cells)
        if piece.is_padding:
            letters.append(name, style=f"dim {tint}")
            row.append(glyphs.padding * cells, style="dim")
        else:
            letters.append(name, style=f"bold black on {tint}")
            row.append((glyphs.decode if segment.decodes else glyphs.prefill) * cells, style=tint)
    scale = max(1.0, total / max(1, len(letters)))
    return PackedRow(letters, row, scale, hidden)


def _share(pieces: Sequence[_Piece], width: int) -> list[int]:
    """Cells for each piece: a cell a token if all fit, else in proportion, with the least it needs."""
    exact = [max(piece.least, piece.tokens) for piece in pieces]
    if sum(exact) <= width:
        return exact
    cells = [piece.least for piece in pieces]
    wants = [piece.tokens - piece.least if piece.tokens > piece.least else 0 for piece in pieces]
    room, total = width - sum(cells), sum(wants) or 1
    shares = [room * want / total for want in wants]
    cells = [have + int(share) for have, share in zip(cells, shares, strict=True)]
    by_rest = sorted(range(len(pieces)), key=lambda i: int(shares[i]) - shares[i])
    for i in by_rest[: width - sum(cells)]:
        cells[i] += wants[i] > 0
    return cells


def bar(used: int, total: int, width: int, glyphs: Glyphs, style: str = "cyan") -> Text:
    """`used` of `total` as a bar; anything above nothing fills a cell at least."""
    full = min(width, -(-used * width // total)) if total and used > 0 else 0
    text = Text(glyphs.prefill * full, style=style, no_wrap=True)
    return text.append(glyphs.free * (width - full), style="dim")


def blocks_bar(requests: Sequence[RequestView], used: int, total: int, width: int, glyphs: Glyphs) -> Text:
    """The pool: who holds how much of it, in letters. A shared block is drawn once, with its first holder."""
    full = min(width, -(-used * width // total)) if total and used > 0 else 0
    holders = [view for view in requests if view.blocks]
    held, end, count = sum(view.blocks for view in holders), 0, 0
    text = Text(no_wrap=True)
    for view in holders:
        start, count = end, count + view.blocks
        end = round(full * count / held)
        name = (view.letter * (end - start))[: end - start]
        text.append(name, style=f"black on {colour(view.index)}")
    text.append(glyphs.prefill * (full - end), style="cyan")
    return text.append(glyphs.free * (width - full), style="dim")
