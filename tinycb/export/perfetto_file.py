"""Perfetto's native format: tracks, slices, instants, counters and flows, written as they come.

    file = PerfettoFile(stream)
    track = file.track("A", parent=file.track("requests"))
    file.begin(track, 0.010, "decode", {"step": 3})
    file.end(track, 0.012)
    file.flush()

Built with PyPI's `perfetto`, and only what `flush` has not yet written is held. A name is written once and
then called by its number. Knows nothing of requests. Next: `perfetto.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

__all__ = ["Notes", "PerfettoFile"]

Notes = Mapping[str, int | float | str | Sequence[str]]

_SEQUENCE = 1  # all packets come from one writer
_CLEARED, _NEEDED = 1, 2  # SequenceFlags: this packet begins the numbering of names, and those need it
_BY_RANK = TrackDescriptor.ChildTracksOrdering.EXPLICIT
_APART = TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE  # rows of one name stay two rows


class PerfettoFile:
    """Times are seconds from the beginning, not negative. Events of a track may come in any order of time,
    but for two at one moment, which happen in the order in which they are given.

    num_events: slices, instants and counter values so far.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.num_events = 0
        self._stream = stream
        self._builder = TraceProtoBuilder()
        self._last_uuid = 0
        self._names: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _CLEARED

    def flush(self) -> None:
        """Write what has come since the last time. Raises OSError as the stream does."""
        self._stream.write(self._builder.serialize())
        self._builder = TraceProtoBuilder()

    # ── tracks ────────────────────────────────────────────────────────────────────────────────────────

    def track(self, name: str, parent: int = 0, rank: int = 0) -> int:
        """A row of slices, or what holds other rows, and its number. rank: its place below its parent."""
        return self._describe(name, parent, rank).uuid

    def counter(self, name: str, unit: str, parent: int = 0, rank: int = 0) -> int:
        """A row that is drawn as a curve."""
        descriptor = self._describe(name, parent, rank)
        descriptor.counter.unit_name = unit
        return descriptor.uuid

    def _describe(self, name: str, parent: int, rank: int) -> Any:
        self._last_uuid += 1
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = self._last_uuid
        descriptor.name = _whole(name)
        descriptor.child_ordering = _BY_RANK
        descriptor.sibling_merge_behavior = _APART
        if parent:
            descriptor.parent_uuid = parent
            descriptor.sibling_order_rank = rank
        return descriptor

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        track: int,
        time: float,
        name: str,
        notes: Notes | None = None,
        *,
        from_flow: int = 0,
        once: bool = False,
    ) -> None:
        """A slice begins, inside of the one that is open on its track.

        from_flow: the flow that ends here. once: no other slice is called so, and its name is not kept.
        """
        event = self._event(track, time, TrackEvent.TYPE_SLICE_BEGIN, "" if once else name, notes)
        if once:
            event.name = name
        if from_flow:
            event.terminating_flow_ids.append(from_flow)

    def end(self, track: int, time: float) -> None:
        """The slice that began last on the track, of those that are open, ends."""
        self._event(track, time, TrackEvent.TYPE_SLICE_END)

    def instant(
        self, track: int, time: float, name: str, notes: Notes | None = None, *, to_flow: int = 0
    ) -> None:
        """Something happened. to_flow: the flow that begins here."""
        event = self._event(track, time, TrackEvent.TYPE_INSTANT, name, notes)
        if to_flow:
            event.flow_ids.append(to_flow)

    def count(self, counter: int, time: float, value: int) -> None:
        """The counter has this value from here on."""
        self._event(counter, time, TrackEvent.TYPE_COUNTER).counter_value = value

    def _event(self, track: int, time: float, kind: int, name: str = "", notes: Notes | None = None) -> Any:
        packet = self._packet()
        packet.timestamp = round(time * 1e9)
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        if kind != TrackEvent.TYPE_SLICE_END:
            self.num_events += 1
        if name:
            event.name_iid = self._number(self._names, name, packet, "event_names")
        for label, value in (notes or {}).items():
            note = event.debug_annotations.add()
            note.name_iid = self._number(self._labels, label, packet, "debug_annotation_names")
            _set(note, value)
        return event

    def _packet(self) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDED
        return packet

    @staticmethod
    def _number(numbers: dict[str, int], name: str, packet: Any, table: str) -> int:
        """The name's number; a new name is put down in the packet that is the first to use it."""
        number = numbers.get(name)
        if number is None:
            number = numbers[name] = len(numbers) + 1
            getattr(packet.interned_data, table).add(iid=number, name=_whole(name))
        return number


def _set(note: Any, value: Any) -> None:
    if isinstance(value, str):
        note.string_value = _whole(value)
    elif isinstance(value, int) and abs(value) < 1 << 63:
        note.int_value = value
    elif isinstance(value, int):
        note.string_value = str(value)
    elif isinstance(value, float):
        note.double_value = value
    else:
        for one in value:
            _set(note.array_values.add(), one)


def _whole(text: str) -> str:
    """Text as UTF-8 can hold it: a token may be half a character, which Python keeps as a lone surrogate."""
    return text.encode("utf-8", "replace").decode("utf-8")
