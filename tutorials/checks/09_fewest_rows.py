"""Small machines in every combination, the cards that tinycb knows, and a row that floating point loses."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb.costs.devices import DEVICES
from tinycb.learn import expect

HINTS = [
    "Write down both times: bytes / bandwidth, and operations / flops. Only one of them has the rows in it.",
    "Set them equal and solve for the rows. What happens to the number of weights?",
    "Whole numbers: multiply both sides until no division is left, then divide once, rounding up: -(-a // "
    "b).",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `fewest_rows` is right."""
    for weights, element, bandwidth, flops in product((1, 7, 100), (1, 2, 4), (1, 3, 10), (1, 4, 10, 37, 60)):
        _one_case(exercise, weights, element, bandwidth, flops)
    for device in DEVICES.values():
        for dtype, element in (("bfloat16", 2), ("float32", 4)):
            _one_case(exercise, 10**9, element, int(device.bandwidth), int(device.flops[dtype]))
    _one_case(exercise, 10**9, 2, 3 * 10**12, 90_000 * 10**12 + 1)  # just above 30,000 rows


def _one_case(exercise: ModuleType, weights: int, element: int, bandwidth: int, flops: int) -> None:
    got = exercise.fewest_rows(weights, element, bandwidth, flops)
    case = {
        "weights": weights,
        "element_bytes": element,
        "bandwidth": bandwidth,
        "flops": flops,
        "got": got,
    }
    expect(type(got) is int and got >= 1, "the answer is not a whole number of at least one row", **case)

    def computing_is_slower(rows: int) -> bool:  # both times, times bandwidth * flops
        return 2 * weights * rows * bandwidth >= weights * element * flops

    expect(computing_is_slower(got), "with that many rows it still waits for memory", **case)
    expect(got == 1 or not computing_is_slower(got - 1), "fewer rows would have been enough", **case)
