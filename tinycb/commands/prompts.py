"""The prompts of a run: from the command line, or from a file with a prompt or a JSON object a line.

A bad one is named by its line and left out; the others are served. What depends on the model, such as a
prompt that is too long, is checked when the request is added.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tinycb.commands.errors import CommandError, one_line
from tinycb.request import Request, SamplingParams
from tinycb.view.signs import letter

__all__ = ["PromptSpec", "from_arguments", "from_file"]

_OWN_FIELDS = ("prompt", "prompt_token_ids", "id")
_FIELDS = (*_OWN_FIELDS, *(field.name for field in fields(SamplingParams)))


@dataclass(slots=True)
class PromptSpec:
    """One prompt to serve. where: what to call it, "" if it is the only one. text or token_ids is None."""

    where: str
    request_id: str
    text: str | None
    token_ids: list[int] | None
    params: SamplingParams


def from_arguments(texts: Sequence[str], defaults: Mapping[str, Any]) -> tuple[list[PromptSpec], list[str]]:
    """Prompts given as arguments, and what is wrong with the others."""
    specs, problems = [], []
    for number, text in enumerate(texts, start=1):
        where = f"prompt {number}" if len(texts) > 1 else ""
        if text and _is_unicode(text):
            specs.append(PromptSpec(where, letter(number - 1), text, None, SamplingParams(**defaults)))
        else:
            why = "is not UTF-8 text" if text else "is empty; give at least one character"
            problems.append(f"{where or 'the prompt'} {why}")
    return specs, problems


def from_file(name: str, defaults: Mapping[str, Any]) -> tuple[list[PromptSpec], list[str]]:
    """Prompts of a file, "-" for standard input, and a problem for each bad line, as `FILE:LINE: why`.

    Lines are JSON objects if the file is called .jsonl or the first line that is not blank is one.
    Raises CommandError if there is no such file, or nothing in it.
    """
    shown = "<stdin>" if name == "-" else name
    lines = [(number, line) for number, line in enumerate(_read(name), start=1) if line.strip()]
    if not lines:
        raise CommandError(f"{shown} holds no prompt; give a prompt a line, or a JSON object a line")
    is_json = name.lower().endswith((".jsonl", ".ndjson")) or _is_object(lines[0][1])

    specs: list[PromptSpec] = []
    problems: list[str] = []
    used: dict[str, str] = {}
    for number, line in lines:
        where = f"{shown}:{number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            problems.append(f"{where}: is not UTF-8 text")
            continue
        try:
            spec = _from_object(text, where, defaults) if is_json else _from_text(text, where, defaults)
            if spec.request_id in used:
                raise ValueError(
                    f"the id {spec.request_id!r} is taken by {used[spec.request_id]}; ids must differ"
                )
        except ValueError as error:
            problems.append(f"{where}: {one_line(error)}")
            continue
        if spec.request_id:
            used[spec.request_id] = where
        specs.append(spec)
    _name_the_others(specs, used)
    return specs, problems


def _read(name: str) -> list[bytes]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read --prompts {name}: {error.strerror or error}") from None
    return data.removeprefix(b"\xef\xbb\xbf").splitlines()


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return line.lstrip().startswith(b'{"')


def _is_unicode(text: str) -> bool:
    """Whether the text can be encoded: half of a surrogate pair, or a byte that is no UTF-8, cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _from_text(text: str, where: str, defaults: Mapping[str, Any]) -> PromptSpec:
    return PromptSpec(where, "", text, None, SamplingParams(**defaults))


def _from_object(line: str, where: str, defaults: Mapping[str, Any]) -> PromptSpec:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f'must be a JSON object such as {{"prompt": "…"}}, not {line.strip():.40}')
    for name in values:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_FIELDS)}"
            raise ValueError(f"unknown field {name!r}; {hint}")
    text, token_ids = values.get("prompt"), values.get("prompt_token_ids")
    if (text is None) == (token_ids is None):
        raise ValueError('give either "prompt" or "prompt_token_ids"')
    request_id = values.get("id", "")
    if "id" in values and (not isinstance(request_id, str) or not request_id):
        raise ValueError(f"id must be a non-empty string, not {request_id!r}")
    chosen = {name: value for name, value in values.items() if name not in _OWN_FIELDS}
    params = SamplingParams(**{**defaults, **chosen})
    if token_ids is not None:
        if not isinstance(token_ids, list):
            raise ValueError(f"prompt_token_ids must be a list of integers, not {token_ids!r:.40}")
        Request("checked", token_ids, params).check()
    elif not isinstance(text, str) or not text:
        raise ValueError(f"prompt must be a text of at least one character, not {text!r:.40}")
    elif not _is_unicode(text):
        raise ValueError(f"prompt holds half of a surrogate pair, which is no character: {text!r:.40}")
    return PromptSpec(where, request_id, text, token_ids, params)


def _name_the_others(specs: Sequence[PromptSpec], used: Mapping[str, str]) -> None:
    """Whoever has no id of its own is called by its letter, unless that is taken."""
    taken = set(used)
    for index, spec in enumerate(specs):
        if not spec.request_id:
            name, number = letter(index), 2
            while name in taken:
                name, number = f"{letter(index)}{number}", number + 1
            spec.request_id = name
            taken.add(name)
