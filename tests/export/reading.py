"""Reads a Perfetto file back: slices with their notes, counters and flows, as the format defines them."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tinycb.tracing import StepRecord, TraceReader

pytest.importorskip("perfetto", reason="PyPI's perfetto is not installed")

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from tinycb.export.perfetto import PerfettoExport


@dataclass
class Slice:
    """begin, end: nanoseconds; an instant ends as it begins, and a slice may never. parent: what it is in."""

    track: str
    name: str
    begin: int
    notes: dict[str, Any]
    parent: Slice | None
    end: int | None = None
    flows_out: list[int] = field(default_factory=list)
    flows_in: list[int] = field(default_factory=list)


@dataclass
class Picture:
    """tracks: names in their order of rank. counters: name → (nanoseconds, value) in order."""

    title: str
    tracks: list[str]
    slices: list[Slice]
    counters: dict[str, list[tuple[int, int]]]

    def of(self, track: str, name: str | None = None) -> list[Slice]:
        return [s for s in self.slices if s.track == track and name in (None, s.name)]


def export(records: Iterable[StepRecord], header: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    exporter = PerfettoExport(stream, header)
    for record in records:
        exporter.observe(record)
    return stream.getvalue()


def export_file(path: Path) -> tuple[list[StepRecord], Picture]:
    with TraceReader(path) as reader:
        return list(reader), read(export(reader, reader.header))


def read(data: bytes) -> Picture:
    """Raises AssertionError where the file breaks a rule of the format."""
    trace = Trace.FromString(data)
    names: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}}
    tracks: dict[int, Any] = {}
    opened: defaultdict[int, list[Slice]] = defaultdict(list)
    slices: list[Slice] = []
    counters: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    latest: dict[int, int] = {}
    assert trace.packet[0].sequence_flags == 1
    for packet in trace.packet[1:]:
        assert (packet.trusted_packet_sequence_id, packet.sequence_flags) == (1, 2)
        for table, known in names.items():
            for entry in getattr(packet.interned_data, table):
                assert known.setdefault(entry.iid, entry.name) == entry.name
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in tracks
            tracks[descriptor.uuid] = descriptor
            continue
        event, time = packet.track_event, packet.timestamp
        track = tracks[event.track_uuid]
        stack = opened[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            counters[track.name].append((time, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = time
        else:
            name = event.name or names["event_names"][event.name_iid]
            notes = {names["debug_annotation_names"][n.name_iid]: _value(n) for n in event.debug_annotations}
            made = Slice(track.name, name, time, notes, stack[-1] if stack else None)
            made.flows_out, made.flows_in = list(event.flow_ids), list(event.terminating_flow_ids)
            slices.append(made)
            if event.type == TrackEvent.TYPE_INSTANT:
                made.end = time
            else:
                stack.append(made)
        assert time >= latest.get(event.track_uuid, 0), f"{track.name} goes back in time"
        latest[event.track_uuid] = time
    below = sorted((d.sibling_order_rank, d.name) for d in tracks.values() if d.parent_uuid)
    return Picture(next(iter(tracks.values())).name, [name for _, name in below], slices, dict(counters))


def _value(note: Any) -> Any:
    kind = note.WhichOneof("value")
    return getattr(note, kind) if kind else [_value(one) for one in note.array_values]
