"""Readers of public traffic files, and of tinycb's own: each becomes a `Workload`.

    azure      TIMESTAMP,ContextTokens,GeneratedTokens           Azure LLM inference traces, 2023 and 2024
    burstgpt   Timestamp,…,Request tokens,Response tokens,…      BurstGPT; a response of 0 tokens failed
    mooncake   {"timestamp": ms, "input_length", "output_length", "hash_ids"}      one id for 512 tokens
    tinycb     {"arrival_time": s, "prompt_tokens" or "prompt_token_ids", "output_tokens", "id", "prefix"}

Which one a file is, its first line tells. A row that cannot be used is a line in `Workload.problems` with its
number, and is left out; nothing is left out without one. Times are taken relative to the first good row's.

Mooncake's hash ids are chained by nature: equal ids at the head of two prompts mean equal tokens, so they
become pieces with those keys, and the prefix cache finds what Mooncake's found.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tinycb.workloads.traffic import Arrival, Piece, Workload, WorkloadError

__all__ = ["MOONCAKE_BLOCK", "read_workload"]

MOONCAKE_BLOCK = 512  # tokens that one hash id stands for
MAX_TOKENS = 10_000_000  # of a prompt or an output: more is no length but a mistake
_Row = Mapping[str, Any]
_Parsed = tuple[str | None, float, Sequence[Piece] | Sequence[int], int]


def read_workload(path: str | Path, limit: int | None = None) -> Workload:
    """Read a file. limit: good rows to take; what comes after them is not looked at.

    Raises WorkloadError if the file cannot be read, is of no known kind, or has no good row.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            first = file.readline()
            file.seek(0)
            kind, rows = _rows(path, first, file)
            workload = _collect(path, rows, kind, limit)
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror or error}") from None
    if not workload.arrivals:
        bad = (
            f"; {len(workload.problems)} bad, the first: {workload.problems[0]}" if workload.problems else ""
        )
        raise WorkloadError(f"{path} has no request{bad}")
    return workload


def _rows(
    path: Path, first: str, file: Any
) -> tuple[Callable[[_Row, int], _Parsed], Iterator[tuple[int, Any]]]:
    """The parser for this kind of file, and its rows by line number; a row that is no row is an exception."""
    columns = [name.strip() for name in first.strip().split(",")]
    if first.lstrip().startswith("{"):
        kind = _mooncake if '"hash_ids"' in first else _own
        return kind, _json_rows(file)
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= set(columns):
        return _azure, _csv_rows(file)
    if {"Timestamp", "Request tokens", "Response tokens"} <= set(columns):
        return _burstgpt, _csv_rows(file)
    if not first.strip():
        raise WorkloadError(f"{path} has no request: it is empty")
    raise WorkloadError(
        f"{path} is no workload that is known here: its first line is neither Azure's or BurstGPT's header "
        f"nor a JSON object, but {first.strip()[:60]!r}"
    )


def _csv_rows(file: Any) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(file, skipinitialspace=True)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, ValueError(f"is no row of CSV ({error})")
            continue
        short = any(value is None for value in row.values()) or None in row
        yield reader.line_num, ValueError("has another number of columns than the header") if short else row


def _json_rows(file: Any) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = ValueError("is not JSON")
        yield number, value if isinstance(value, dict | ValueError) else ValueError("is no JSON object")


def _collect(
    path: Path, rows: Iterator[tuple[int, Any]], parse: Callable[[_Row, int], _Parsed], limit: int | None
) -> Workload:
    """Keep the good rows, say what is wrong with the others. Time may stand still but not run backwards."""
    problems: list[str] = []
    names: set[str] = set()
    latest = -math.inf

    def good() -> Iterator[Arrival]:
        nonlocal latest
        for number, row in rows:
            try:
                if isinstance(row, ValueError):
                    raise row
                name, time, prompt, output = parse(row, number)
                name = name or f"line{number}"
                if name in names:
                    raise ValueError(f"has the id {name!r} of an earlier request")
                if time < latest:
                    raise ValueError(f"goes back in time, by {latest - time:.3g} s against the row before it")
            except ValueError as error:
                problems.append(f"{path.name} line {number}: {error}")
                continue
            names.add(name)
            latest = time
            yield Arrival(name, time, prompt, output, f"{path.name} line {number}")

    arrivals = list(good() if limit is None else islice(good(), limit))
    start = arrivals[0].time if arrivals else 0.0
    shifted = [Arrival(a.request_id, a.time - start, a.prompt, a.output_tokens, a.where) for a in arrivals]
    return Workload(path.stem, shifted, problems)


# ── one row of each kind ──────────────────────────────────────────────────────────────────────────────


def _azure(row: _Row, number: int) -> _Parsed:
    prompt = _length(row, "ContextTokens")
    return (
        None,
        _moment(row["TIMESTAMP"]),
        [Piece(f"azure {number}", prompt)],
        _length(row, "GeneratedTokens"),
    )


def _burstgpt(row: _Row, number: int) -> _Parsed:
    prompt, output = _length(row, "Request tokens"), _length(row, "Response tokens")
    return None, _seconds(row, "Timestamp"), [Piece(f"burstgpt {number}", prompt)], output


def _mooncake(row: _Row, number: int) -> _Parsed:
    length, output = _length(row, "input_length"), _length(row, "output_length")
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or len(ids) != -(-length // MOONCAKE_BLOCK):
        wanted = -(-length // MOONCAKE_BLOCK)
        found = len(ids) if isinstance(ids, list) else ids
        raise ValueError(f"hash_ids must be {wanted} ids, for {length} tokens, not {found!r:.40}")
    pieces = [Piece(f"mooncake {i}", MOONCAKE_BLOCK) for i in ids]
    pieces[-1] = Piece(pieces[-1].key, length - MOONCAKE_BLOCK * (len(ids) - 1))
    return None, _seconds(row, "timestamp") / 1000, pieces, output


def _own(row: _Row, number: int) -> _Parsed:
    known = {"id", "arrival_time", "prompt_tokens", "prompt_token_ids", "output_tokens", "prefix"}
    if unknown := set(row) - known:
        raise ValueError(f"has an unknown field {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    name = row.get("id")
    if name is not None and (not isinstance(name, str) or not name):
        raise ValueError(f"id must be a non-empty string, not {name!r:.40}")
    time, output = _seconds(row, "arrival_time"), _length(row, "output_tokens")
    if "prompt_token_ids" in row:
        ids = row["prompt_token_ids"]
        if not isinstance(ids, list) or not ids or any(type(i) is not int or i < 0 for i in ids):
            raise ValueError(f"prompt_token_ids must be a list of non-negative integers, not {ids!r:.40}")
        return name, time, ids, output
    own = Piece(f"own {name or number}", _length(row, "prompt_tokens"))
    if row.get("prefix") is None:
        return name, time, [own], output
    prefix = row["prefix"]
    if not isinstance(prefix, list) or len(prefix) != 2 or not isinstance(prefix[0], str):
        raise ValueError(f'prefix must be ["name", tokens], not {prefix!r:.40}')
    shared = Piece(f"prefix {prefix[0]}", _length({"prefix": prefix[1]}, "prefix"))
    if shared.length >= own.length:
        raise ValueError(f"a prefix of {shared.length} tokens leaves nothing of a prompt of {own.length}")
    return name, time, [shared, Piece(own.key, own.length - shared.length)], output


def _length(row: _Row, name: str) -> int:
    value = row.get(name)
    try:
        length = int(value) if isinstance(value, str) else value
    except ValueError:
        length = None
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_TOKENS:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r:.40}")
    return length


def _seconds(row: _Row, name: str) -> float:
    value = row.get(name)
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a time of at least 0, not {value!r:.40}")
    return number


def _moment(text: str) -> float:
    """Seconds since 1970 of `2023-11-16 18:17:03.9799600`, with or without a zone; UTC without."""
    day, _, fraction = text.strip().partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    zone = fraction[len(digits) :]
    try:
        whole = datetime.fromisoformat(
            f"{day}{zone or ('' if day.endswith('Z') or '+' in day else '+00:00')}"
        )
        return whole.timestamp() + (float(f"0.{digits}") if digits else 0.0)
    except ValueError:
        raise ValueError(f"TIMESTAMP must be a date and time, not {text!r:.40}") from None
