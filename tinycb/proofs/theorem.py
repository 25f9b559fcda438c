"""A theorem: a sentence, where to look for a counterexample, and how to tell one.

    theorem.prove(my_kernel)          raises Counterexample, in words, if the kernel breaks it
    theorem.verdict(my_kernel)        the same as a value: holds or not, how many examples, the smallest one

The search and the shrinking are Hypothesis's. An example is plain data (a dataclass of numbers and tuples),
never tensors: what is random in it is drawn again from its seed, so it can be printed, saved and replayed.

Next: `strategies.py` for the examples, `oracle.py` for what is right, `attention.py` and `serving.py` for the
theorems.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import SearchStrategy

__all__ = ["CannotTry", "Counterexample", "Scope", "Theorem", "Verdict"]


class Counterexample(AssertionError):
    """A theorem does not hold. The message says in words what was seen; `picture` shows it, where it can.

    picture: text, or a function that makes it, called once and only when somebody looks: a search meets many
    counterexamples on its way to the smallest.
    """

    def __init__(self, words: str, picture: str | Callable[[], str] = "") -> None:
        super().__init__(words)
        self.words = words
        self._picture = picture

    @property
    def picture(self) -> str:
        """The picture, or nothing where drawing it fails as well: it runs the code under test again."""
        if not isinstance(self._picture, str):
            try:
                self._picture = self._picture()
            except Exception:
                self._picture = ""
        return self._picture


class CannotTry(Exception):
    """An example cannot be tried on this machine, for want of memory for example. The message says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the examples may range over.

    dtypes: names such as "float32". heads: pairs (query heads, KV heads). device: where the tensors lie.
    cost: roughly how much a single example may take: 1 is small (Triton interpreted), 3 is roomy.
    """

    dtypes: tuple[str, ...] = ("float32",)
    heads: tuple[tuple[int, int], ...] = ((1, 1), (4, 4), (8, 2), (6, 2), (5, 1), (14, 2))
    device: str = "cpu"
    cost: int = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search came to. examples: tried in all. needed: how many until the first that failed.

    example: the smallest one found that fails. failure: what it raised, a Counterexample or an exception of
    the subject's own. untried: why examples were left out, if any were; `holds` says nothing about those.
    """

    theorem: Theorem
    holds: bool
    examples: int
    needed: int | None = None
    example: Any = None
    failure: BaseException | None = None
    seconds: float = 0.0
    untried: str = ""


@dataclass(frozen=True)
class Theorem:
    """`check(subject, example)` returns if the example agrees, and raises Counterexample if it does not.

    name: what a test is called. about: which kind of subject, one of `registry.KINDS`. statement: one
    sentence, true of a right subject.
    """

    name: str
    about: str
    statement: str
    examples: Callable[[Scope], SearchStrategy[Any]] = field(repr=False)
    check: Callable[[Any, Any], None] = field(repr=False)
    max_examples: int = 50

    def __str__(self) -> str:
        return self.name

    @property
    def budget(self) -> int:
        """Examples to try: `max_examples`, and ten times that in Hypothesis's profile "thorough"."""
        return self.max_examples * (10 if settings.get_current_profile_name() == "thorough" else 1)

    def prove(self, subject: Any, scope: Scope | None = None, **search: Any) -> None:
        """Search for a counterexample and raise it if there is one. For keywords see `verdict`."""
        verdict = self.verdict(subject, scope, **search)
        if verdict.failure is not None:
            if isinstance(verdict.failure, Counterexample) and verdict.failure.picture:
                verdict.failure.add_note(verdict.failure.picture)
            verdict.failure.add_note(f"smallest example: {verdict.example}")
            verdict.failure.add_note(f"theorem {self.name}: {self.statement}")
            raise verdict.failure

    def verdict(
        self,
        subject: Any,
        scope: Scope | None = None,
        *,
        max_examples: int | None = None,
        seed: int | None = None,
        seconds: float | None = None,
        shrink: bool = True,
        on_example: Callable[[int], None] | None = None,
    ) -> Verdict:
        """Try examples until one fails or enough have passed, and shrink a failing one.

        max_examples: None for `self.budget`. seed: None tries the same examples every time. seconds: stop
        searching, and shrinking, after that. shrink: False keeps the first example that fails. on_example:
        told the count as it grows.
        """
        start = time.monotonic()
        search = _Search(self, subject, None if seconds is None else start + seconds, on_example)
        run = settings(
            max_examples=max_examples or self.budget,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        )(hypothesis.given(self.examples(scope or Scope()))(search.try_one))
        if seed is None:  # every theorem has examples of its own, and they are the same every time
            seed = zlib.crc32(f"{self.about} {self.name}".encode())
        run = hypothesis.seed(seed)(run)
        try:
            run()
        except BaseException:
            if search.failure is None or isinstance(search.failure, KeyboardInterrupt):
                raise
        return Verdict(
            theorem=self,
            holds=search.failure is None,
            examples=search.count,
            needed=search.needed,
            example=search.example,
            failure=search.failure,
            seconds=time.monotonic() - start,
            untried=search.untried,
        )


class _Search:
    """One search: counts, remembers the last failing example (Hypothesis ends on the smallest), and stops."""

    def __init__(
        self, theorem: Theorem, subject: Any, until: float | None, on_example: Callable[[int], None] | None
    ) -> None:
        self.theorem, self.subject, self.until, self.on_example = theorem, subject, until, on_example
        self.count = 0
        self.needed: int | None = None
        self.example: Any = None
        self.failure: BaseException | None = None
        self.untried = ""

    def try_one(self, example: Any) -> None:
        late = self.until is not None and time.monotonic() > self.until
        if late and (self.failure is None or example != self.example):
            return  # out of time: let what is left of the search pass by
        if self.needed is None:
            self.count += 1
            if self.on_example is not None:
                self.on_example(self.count)
        try:
            self.theorem.check(self.subject, example)
        except CannotTry as error:
            self.untried = str(error)
            self.count -= self.needed is None
        except Exception as error:
            if self.needed is None:
                self.needed = self.count
            self.example, self.failure = example, error
            raise
