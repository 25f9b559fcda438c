"""Make a failing example smaller.

An example is a list of prompt lengths, such as `[5, 1, 9]`, and `fails(example)` says whether some program
fails on it. It fails on the one that you are given.

Make it smaller, change by change, and keep a change only if the example still fails. There are two kinds of
change: take one request out, or make one length less by one, never below one. When there is none left with
which it still fails, return what you have. The requests keep their order. Leave the list that you are given
as it is.
"""

from collections.abc import Callable


def shrink(example: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """A smaller example on which it still fails; no single change makes it smaller yet."""
    raise NotImplementedError("write the body of shrink")
