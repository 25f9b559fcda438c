"""From sampled tokens to text: whole characters only, cut before a stop string.

A token may hold half a character, and a stop string may lie across tokens. So text goes through two gates:
the tokenizer's stream keeps back bytes that are no whole character yet, and `certain` keeps back an ending
that could still become a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["OutputText", "TextStream", "TextTokenizer"]


class TextStream(Protocol):
    def push(self, token_id: int) -> str:
        """The text that this token completes."""
        ...

    def flush(self) -> str:
        """What is left: the bytes of an unfinished character, shown as the tokenizer shows them."""
        ...


class TextTokenizer(Protocol):
    """What the engine needs of a tokenizer; `tokenizer.py` has one."""

    def encode(self, text: str) -> list[int]: ...

    def token_text(self, token_id: int) -> str: ...

    def stream(self) -> TextStream: ...


class OutputText:
    """The text of one request as it grows. Without a tokenizer it stays empty."""

    def __init__(self, tokenizer: TextTokenizer | None, stop: Sequence[str] = ()) -> None:
        self.text = ""
        self._stream = tokenizer.stream() if tokenizer is not None else None
        self._stop = tuple(stop)
        self._hold = max((len(s) for s in self._stop), default=1) - 1
        self._searched = 0  # no stop string begins before this
        self._closed = False

    def push(self, token_id: int, may_stop: bool = True) -> str | None:
        """Add a token. Returns the stop string that it completes, if any; the text then ends before it.

        Of several, the one that is complete first, however the tokens cut the text.

        may_stop: False for the first `min_tokens` tokens, whose text is no part of any stop string.
        """
        if self._stream is None:
            return None
        self.text += self._stream.push(token_id)
        if not may_stop:
            self._searched = len(self.text)
            return None
        found = [(at + len(s), at, s) for s in self._stop if (at := self.text.find(s, self._searched)) >= 0]
        if found:
            _, at, string = min(found)
            self.text = self.text[:at]
            self._closed = True
            return string
        self._searched = max(self._searched, len(self.text) - self._hold)
        return None

    def close(self) -> None:
        """The request is done: nothing is kept back any more."""
        if not self._closed and self._stream is not None:
            self.text += self._stream.flush()
        self._closed = True

    def certain(self) -> str:
        """The text that no later token can take back."""
        return self.text if self._closed else self.text[: len(self.text) - self._held()]

    def _held(self) -> int:
        """How much of the end could still turn out to be the beginning of a stop string."""
        for length in range(min(self._hold, len(self.text)), 0, -1):
            if any(s.startswith(self.text[-length:]) for s in self._stop):
                return length
        return 0
