"""What a check of an exercise says when it fails: the property, in words, and the example at hand."""

from __future__ import annotations

__all__ = ["Wrong", "expect"]


class Wrong(AssertionError):
    """A property that does not hold. example: the values with which it was seen."""

    def __init__(self, what: str, example: dict[str, object]) -> None:
        super().__init__(what)
        self.what = what
        self.example = example

    def __str__(self) -> str:
        shown = ", ".join(f"{name} = {value!r}" for name, value in self.example.items())
        return f"{self.what} ({shown})" if shown else self.what


def expect(holds: bool, what: str, **example: object) -> None:
    """Raise Wrong unless it holds. what: the property that failed, as `the block size changed the answer`."""
    if not holds:
        raise Wrong(what, example)
