"""The one kind of error a user sees: a line on stderr, and an exit code."""

from __future__ import annotations

__all__ = ["EXIT_BAD_INPUT", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_OK", "CommandError", "one_line"]

EXIT_OK = 0
EXIT_FAILED = 1  # the command ran and the answer is no: a replay that differs, something missing
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A line that names the thing and what would be right."""

    def __init__(self, message: str, code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


def one_line(error: BaseException | str, limit: int = 400) -> str:
    """An error's text on one line; of an exception that says nothing, its name."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 2] + " …"
