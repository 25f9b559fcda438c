"""Counterexamples in files: written when a theorem fails, run again until it holds.

    {"format": "tinycb counterexample", "version": 1, "kind": "paged", "subject": "my_kernels:paged",
     "theorem": "memory_of_nobody_is_never_read", "exact": false, "gpu": false, "words": "…", "example": {…}}

Beside it goes a test for pytest that does the same as `tinycb check --replay FILE`. An example is plain data,
so the file holds all of it, and stays valid whatever becomes of the strategies.

Next: `worker.py`, which runs it where nothing can be harmed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tinycb.proofs.encoding import decode, encode
from tinycb.proofs.registry import find_theorem
from tinycb.proofs.worker import Worker

__all__ = ["Found", "read", "replay", "write"]

FORMAT, VERSION = "tinycb counterexample", 1

TEST = '''\
"""{theorem} did not hold for {subject}.
Found by `tinycb check`, which wrote this; the example is in the file beside it."""

from pathlib import Path

from tinycb.proofs.replay import replay


def test_{theorem}():
    replay(Path(__file__).with_name("{name}"))
'''


@dataclass(frozen=True)
class Found:
    """A counterexample and all it takes to try it again."""

    kind: str
    subject: str
    theorem: str
    example: Any
    exact: bool = False
    gpu: bool = False
    words: str = ""


def write(found: Found, folder: Path) -> tuple[Path, Path]:
    """Write the counterexample and the test beside it; returns both paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.kind}-{found.theorem}.json"
    values = {"format": FORMAT, "version": VERSION} | asdict(found) | {"example": encode(found.example)}
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    test = folder / f"test_{found.kind}_{found.theorem}.py"
    text = TEST.format(theorem=found.theorem, subject=found.subject.replace("\\", "/"), name=path.name)
    test.write_text(text, encoding="utf-8")
    return path, test


def read(path: Path) -> Found:
    """Raises ValueError, naming the file, if it is no counterexample or of an unknown version."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise ValueError("it is not a counterexample of tinycb check")
        if (version := values.pop("version", None)) != VERSION:
            raise ValueError(f"it is of version {version}, and this tinycb reads version {VERSION}")
        known = {field.name for field in fields(Found)}
        found = Found(**{name: value for name, value in values.items() if name in known})
        return Found(**{**vars(found), "example": decode(found.example)})
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"cannot replay {path}: {error}") from None


def replay(path: str | Path) -> None:
    """Try a counterexample again, in a process of its own, on the subject that the file names.

    Raises:
        Counterexample: the theorem still fails.
        CannotLoad: the subject cannot be imported. ValueError: the file cannot be read.
        CannotTry: not on this machine.
    """
    found = read(Path(path))
    theorem = find_theorem(found.kind, found.theorem, exact=found.exact)
    with Worker(found.subject, found.kind, exact=found.exact, gpu=found.gpu) as worker:
        worker.check(theorem.name, found.example, picture=True)
