"""What was measured, as a file of JSON beside the page, so that the page can be drawn again.

An entry is one system on one workload in one dtype. A later run replaces the entries that it measures and
leaves the others, unless machine or versions have changed: then they say nothing beside the new ones, and go.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinycb.profiling import PRODUCTS

__all__ = ["Entry", "Memory", "ProfileEntry", "Results"]


@dataclass(slots=True)
class Memory:
    """Bytes. peak: above what the imports took, mapped files left out. cache: of the blocks ever used.

    weights: the model's, and the packed copy of a table that is the head too.
    """

    peak: int
    weights: int
    cache: int

    @property
    def ratio(self) -> float:
        return self.peak / (self.weights + self.cache)


@dataclass(slots=True)
class Entry:
    """speeds: output tokens a second, a number a round. beside: those of tinycb's default in the same rounds.

    same: how its tokens agree with the reference's. busy: processors that other processes kept busy, at most.
    """

    workload: str
    dtype: str
    system: str
    speeds: list[float]
    beside: list[float]
    same: str
    date: str
    busy: float = 0.0
    memory: Memory | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.dtype, self.system

    @property
    def speed(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.speeds)

    @property
    def ratio(self) -> float:
        """How many times as fast tinycb's default was: the median of the rounds' own ratios."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.beside, self.speeds, strict=True))


@dataclass(slots=True)
class ProfileEntry:
    """Where tinycb's default spent the seconds of a run: `tinycb.profiling.Profile`, of one workload."""

    workload: str
    dtype: str
    steps: int
    output_tokens: int
    seconds: float
    parts: dict[str, float]
    date: str
    busy: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.workload, self.dtype

    @property
    def floor(self) -> float:
        """Seconds of the matrix products alone."""
        return self.parts[PRODUCTS]


@dataclass(slots=True)
class Results:
    """All of the page."""

    machine: str
    model: str
    versions: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    profiles: list[ProfileEntry] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Results:
        """What the file holds. Raises ValueError where it is missing or is none of ours."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            entries = [_entry(entry) for entry in raw["entries"]]
            profiles = [ProfileEntry(**entry) for entry in raw["profiles"]]
            return cls(raw["machine"], raw["model"], raw["versions"], entries, profiles)
        except FileNotFoundError:
            raise ValueError(f"there is no {path}: measure first") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a file of this benchmark ({error!r:.80}); remove it") from None

    @classmethod
    def continued(cls, path: Path, machine: str, model: str) -> Results:
        """What the file holds of this machine and model, to be added to; nothing if it is about others."""
        found = cls.read(path) if path.exists() else cls(machine, model)
        return found if (found.machine, found.model) == (machine, model) else cls(machine, model)

    def note_versions(self, versions: Mapping[str, str]) -> None:
        """What systems say of themselves. Where one has changed, older figures are let go."""
        if any(self.versions.get(name, version) != version for name, version in versions.items()):
            self.entries, self.profiles, self.versions = [], [], {}
        self.versions.update(versions)

    def put(self, entry: Entry) -> None:
        """In the place of what was measured before."""
        self.entries = [*(old for old in self.entries if old.key != entry.key), entry]

    def put_profile(self, entry: ProfileEntry) -> None:
        """In the place of the one before."""
        self.profiles = [*(old for old in self.profiles if old.key != entry.key), entry]

    def find(self, workload: str, dtype: str, system: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == (workload, dtype, system)), None)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def _entry(raw: dict[str, Any]) -> Entry:
    memory = raw.pop("memory")
    return Entry(**raw, memory=Memory(**memory) if memory else None)
