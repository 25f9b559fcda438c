"""A `StepRecord` as one line of JSON, and back.

A step's line has the field names of `StepRecord`; a field that is missing holds its default. Four names
beside them are the file's own bookkeeping, and are no part of the record:

    arrivals   how many requests had arrived before this line; it grows from line to line, as `step` does,
               so that the file can be bisected by either
    origins    id → [number, offset, prompt length] of each request that this step takes from the queue for
               the first time: it was the number-th to arrive, in the line at that byte offset
    dropped    the numbers of those that left the queue because they were aborted
    tables     id → block table of those admitted with a prefix hit; without a hit it is `blocks_allocated`

Knows nothing of files or keyframes. Next: `run_state.py`, what these lines add up to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple

from tinycb.scheduling.decisions import Decision, Reason
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["Moves", "Origin", "TraceError", "from_json", "step_from_json", "step_to_json", "to_json"]


class TraceError(OSError):
    """A trace that cannot be read or written. Its text is one line that names the file."""


class Origin(NamedTuple):
    """Where a request came from: it was the `number`-th to arrive, in the line at byte `offset`."""

    number: int
    offset: int
    num_prompt_tokens: int


@dataclass(slots=True)
class Moves:
    """What a line says beside its record; the module's docstring has the words."""

    arrivals: int = 0
    origins: dict[str, Origin] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    tables: dict[str, list[int]] = field(default_factory=dict)


_BOOKKEEPING = frozenset({"arrivals", "origins", "dropped", "tables"})
_ALWAYS = frozenset(
    {"scheduled", "num_computed", "sampled", "running", "num_waiting", "num_free_blocks", "time_start"}
    | {"time_end"}
)
_OWN_CODE = frozenset({"step", "decisions", "new_requests", "extra", "block_size", "rows_source"})
_PLAIN = [f.name for f in fields(StepRecord) if f.name not in _OWN_CODE]
_SOME = [name for name in _PLAIN if name not in _ALWAYS]
_NEW_REQUEST = [f.name for f in fields(NewRequest) if f.name != "extra"]
_KNOWN = frozenset({f.name for f in fields(StepRecord)} - {"extra", "block_size", "rows_source"})
_COUNTED = frozenset({"scheduled", "num_computed", "sampled"})  # id → integer
_SINGLE: dict[str, tuple[type, ...]] = {"error": (str, type(None)), "time_start": (float, int)}
_SINGLE["time_end"] = _SINGLE["time_start"]
_TYPES: dict[str, tuple[type, ...]] = {
    f.name: _SINGLE.get(f.name)
    or (type(f.default_factory() if f.default_factory is not MISSING else f.default),)
    for f in fields(StepRecord)
    if f.name in _KNOWN and f.name != "step"
}


def _plain(value: Any) -> Any:
    """Numbers of numpy, which an executor or a scheduler of one's own may use."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trace cannot hold {value!r:.80} of type {type(value).__name__}")


_encoder = json.JSONEncoder(separators=(",", ":"), default=_plain)


def to_json(value: Mapping[str, Any]) -> bytes:
    """One line of JSON, its newline included. ASCII only, so that any text, however broken, survives."""
    return _encoder.encode(value).encode("ascii") + b"\n"


def from_json(line: bytes) -> dict[str, Any]:
    """Raises ValueError, saying what is wrong, unless the line holds one JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__} and not an object")
    return value


def step_to_json(record: StepRecord, moves: Moves) -> bytes:
    line: dict[str, Any] = {"step": record.step, "arrivals": moves.arrivals}
    for name in _PLAIN:
        value = getattr(record, name)
        if value or name in _ALWAYS:
            line[name] = value
    if record.decisions:
        line["decisions"] = [_decision_to_dict(decision) for decision in record.decisions]
    if record.new_requests:
        line["new_requests"] = [_new_request_to_dict(request) for request in record.new_requests]
    if moves.origins:
        line["origins"] = moves.origins
    if moves.dropped:
        line["dropped"] = moves.dropped
    if moves.tables:
        line["tables"] = moves.tables
    for name, value in record.extra.items():
        line.setdefault(name, value)
    return to_json(line)


def step_from_json(line: Mapping[str, Any], block_size: int) -> tuple[StepRecord, Moves]:
    """Raises ValueError, naming the field, if it cannot be what `step_to_json` wrote."""
    record = StepRecord(step=line["step"], block_size=block_size)
    for name, value in line.items():
        if name in _KNOWN:
            types = _TYPES.get(name)
            if types is not None and not isinstance(value, types):
                raise ValueError(f"has a {type(value).__name__} for {name}")
            if name in _COUNTED and not all(type(number) is int for number in value.values()):
                raise ValueError(f"has what is no integer in {name}")
            setattr(record, name, value)
        elif name not in _BOOKKEEPING:
            record.extra[name] = value
    try:
        record.decisions = [_decision_from_dict(d) for d in line.get("decisions", ())]
        record.new_requests = [_new_request_from_dict(d) for d in line.get("new_requests", ())]
        origins = {name: Origin(*origin) for name, origin in line.get("origins", {}).items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"has a field of another shape ({error!r:.80})") from None
    moves = Moves(line.get("arrivals", 0), origins, line.get("dropped", []), line.get("tables", {}))
    return record, moves


class _OtherReason(str):
    """The reason of a scheduler of one's own, with its sentence, where its enum is not at hand."""

    text: str


def _decision_to_dict(decision: Decision) -> dict[str, Any]:
    values = {
        "request_id": decision.request_id,
        "action": decision.action,
        "reason": str(decision.reason),
        "numbers": dict(decision.numbers),
    }
    if not isinstance(decision.reason, Reason):
        values["text"] = getattr(decision.reason, "text", str(decision.reason))
    return values


def _decision_from_dict(values: Mapping[str, Any]) -> Decision:
    reason: Any
    try:
        reason = Reason(values["reason"])
    except ValueError:
        reason = _OtherReason(values["reason"])
        reason.text = values.get("text", values["reason"])
    return Decision(values["request_id"], values["action"], reason, values["numbers"])


def _new_request_to_dict(request: NewRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in _NEW_REQUEST}
    values["prompt_token_ids"] = list(request.prompt_token_ids)
    return _without_none(values) | request.extra


def _new_request_from_dict(values: Mapping[str, Any]) -> NewRequest:
    known = {name: values[name] for name in _NEW_REQUEST if name in values}
    params = known["sampling_params"]
    known["sampling_params"] = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}
    extra = {name: value for name, value in values.items() if name not in known}
    return NewRequest(**known, extra=extra)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
