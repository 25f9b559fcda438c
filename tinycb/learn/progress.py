"""What the learner has run and solved, in the user's cache folder. Losing it costs nothing but the ticks."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tinycb.user_cache import cache_root

__all__ = ["Progress"]


@dataclass
class Progress:
    """ran: numbers of chapters. passed: names of exercises. hints: name → how many have been shown."""

    ran: list[int] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    hints: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def file() -> Path:
        return cache_root() / "learn" / "progress.json"

    @classmethod
    def load(cls) -> Progress:
        """What is known; of a file that is missing or broken, nothing."""
        try:
            data = json.loads(cls.file().read_text("utf-8"))
            return cls(
                [int(number) for number in data["ran"]],
                [str(name) for name in data["passed"]],
                {str(name): int(count) for name, count in data["hints"].items()},
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls()

    def save(self) -> None:
        """Write it whole or not at all; where nothing can be written, nothing is kept."""
        path = self.file()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".progress.{os.getpid()}")
            unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
            os.replace(unfinished, path)

    def note_run(self, number: int) -> None:
        self.ran = sorted({*self.ran, number})
        self.save()

    def note_passed(self, name: str) -> None:
        self.passed = sorted({*self.passed, name})
        self.save()

    def next_hint(self, name: str, count: int) -> int:
        """The number of the hint to show now, from 0; after the last one it begins again."""
        shown = self.hints.get(name, 0)
        self.hints[name] = shown + 1
        self.save()
        return shown % count
