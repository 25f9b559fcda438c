"""Where every panel goes, for any size of the terminal: all at once, or one at a time behind tabs.

Pure arithmetic on names and rectangles; `screen.py` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Arrangement", "Box", "arrange", "arrange_pair"]

SMALLEST = (60, 16)
WIDE = (110, 34)  # from here on, all panels fit


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells, its border included."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Arrangement:
    """mode: "small" (too small), "tabs" or "all". boxes: of every panel that is shown."""

    mode: str
    boxes: dict[str, Box]


def arrange(width: int, height: int, tab: str, num_requests: int) -> Arrangement:
    """tab: the panel that is in front where not all fit. num_requests: how tall a timeline pays.

    Behind tabs, a panel that needs little leaves the rest to the reasons, which are always of interest.
    """
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return Arrangement("small", {})
    if width < WIDE[0] or height < WIDE[1]:
        place = 5
        body = height - 3 - place
        boxes = {tab: Box(0, 2, width, body), "place": Box(0, 2 + body, width, place)}
        needs = {"timeline": num_requests + 3, "batch": 10, "budget": 7, "place": 5}.get(tab, body)
        if tab == "place":
            boxes, body = {"place": Box(0, 2, width, place)}, height - 3
        if needs <= body - 5:
            boxes[tab] = Box(0, 2, width, needs)
            boxes["why"] = Box(0, 2 + needs, width, body - needs)
        return Arrangement("tabs", boxes)
    return Arrangement("all", _all(width, height, num_requests))


def _all(width: int, height: int, num_requests: int) -> dict[str, Box]:
    place = 5
    body = height - 2 - place
    timeline = max(7, min(num_requests + 3, body * 28 // 100))
    left = width - max(50, min(86, width * 42 // 100))
    right = width - left
    top = 1 + timeline
    middle = body - timeline
    batch = 10
    low = middle - batch
    mask = left * 56 // 100
    budget = 7
    why = max(5, (middle - budget) * 48 // 100)
    requests = middle - budget - why
    return {
        "timeline": Box(0, 1, width, timeline),
        "batch": Box(0, top, left, batch),
        "mask": Box(0, top + batch, mask, low),
        "blocks": Box(mask, top + batch, left - mask, low),
        "why": Box(left, top, right, why),
        "requests": Box(left, top + why, right, requests),
        "budget": Box(left, top + why + requests, right, budget),
        "place": Box(0, top + middle, width, place),
    }


def arrange_pair(width: int, height: int, tab: str, num_requests: int) -> Arrangement:
    """Two runs side by side, the numbers of both below. Behind tabs, both show the same panel."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return Arrangement("small", {})
    everything = width >= WIDE[0] and height >= WIDE[1]
    totals = 14 if height >= 45 else 9 if height >= 24 else 5
    top = 1 if everything else 2
    body = height - totals - 1 - top
    columns = _column(body, num_requests) if everything else {tab: (0, body)}
    half = width // 2
    boxes = {"totals": Box(0, top + body, width, totals)}
    for name, (y, tall) in columns.items():
        boxes[f"left-{name}"] = Box(0, top + y, half, tall)
        boxes[f"right-{name}"] = Box(half, top + y, width - half, tall)
    return Arrangement("all" if everything else "tabs", boxes)


def _column(body: int, num_requests: int) -> dict[str, tuple[int, int]]:
    """The panels of one run, one below the other, as (y, height)."""
    heights = {"timeline": max(6, min(num_requests + 3, body * 30 // 100)), "batch": 10}
    left = body - sum(heights.values())
    if left >= 16:
        heights["blocks"] = left // 2
        left -= left // 2
    heights["why"] = left
    result, y = {}, 0
    for name, tall in heights.items():
        result[name] = (y, tall)
        y += tall
    return result
