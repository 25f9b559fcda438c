"""Workloads: what arrives, when, and how long it gets.

`traffic.py` says what a workload is, `readers.py` reads public files and `synthetic.py` makes them up;
`open_workload` takes either by name. `tour.py` is the run that `tinycb tui` opens with.
"""

from __future__ import annotations

from tinycb.workloads.readers import read_workload
from tinycb.workloads.synthetic import SyntheticTraffic, parse_synthetic
from tinycb.workloads.traffic import Arrival, Piece, Workload, WorkloadError

__all__ = [
    "Arrival",
    "Piece",
    "SyntheticTraffic",
    "Workload",
    "WorkloadError",
    "open_workload",
    "parse_synthetic",
    "read_workload",
]


def open_workload(name: str, limit: int | None = None) -> Workload:
    """A file, or `poisson:…` or `bursty:…`. limit: the first so many requests. Raises WorkloadError."""
    made = parse_synthetic(name)
    if made is None:
        return read_workload(name, limit)
    workload = made.make()
    return workload if limit is None else workload.limit(limit)
