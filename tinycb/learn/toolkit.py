"""`here`: what a chapter says, runs and asks with; `pictures.py` has how it shows a run.

Everything that it prints goes through `screen.py`; every run goes through `runs.py` and leaves a trace. The
guide for authors is in `tinycb/learn/__init__.py`.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tinycb.config import EngineConfig
from tinycb.learn.files import ChapterFile
from tinycb.learn.notes import Notes
from tinycb.learn.pictures import Pictures
from tinycb.learn.questions import Prediction, ask
from tinycb.learn.runs import Run, lesson_config, recorded_run, scripted_run, served_run
from tinycb.learn.screen import Screen
from tinycb.learn.source import find_source
from tinycb.learn.words import short_path
from tinycb.request import SamplingParams

if TYPE_CHECKING:
    from tinycb.engine import Engine
    from tinycb.model.checkpoint import LoadedModel

__all__ = ["VLLM_VERSION", "Toolkit"]

VLLM_VERSION = "0.32.0"
PATIENCE = 8.0  # seconds that a run may take before it is not run once more
FAST_MODEL, REAL_MODEL = "tiny-random", "smollm2-135m"


class Toolkit(Pictures):
    """One chapter's. fast: the tiny random model instead of SmolLM2. notes: what the chapter did."""

    def __init__(self, chapter: ChapterFile, fast: bool) -> None:
        self.chapter = chapter
        self.fast = fast
        super().__init__(Screen())
        self.notes = Notes()
        self.model_name = FAST_MODEL if fast else REAL_MODEL
        self._warm: set[tuple[str, str]] = set()

    # ── saying ────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str) -> None:
        """Prose with computed numbers in it: Markdown, usually an f-string. Indented lines are fine."""
        self.notes.said.append(inspect.cleandoc(text))
        self.screen.prose(inspect.cleandoc(text))

    def claim(self, holds: bool, text: str) -> None:
        """Prose that a run must bear out. Raises AssertionError if it does not hold."""
        if not holds:
            raise AssertionError(f"the run does not bear this out: {inspect.cleandoc(text)}")
        self.say(text)

    def term(self, name: str, meaning: str) -> None:
        """Define a term, once in the whole course, where it first appears. Both must be plain literals."""
        self.notes.terms.append(name)
        self.screen.prose(f"**{name}**: {meaning}")

    # ── code ──────────────────────────────────────────────────────────────────────────────────────────

    def show_source(self, name: str, start: str | None = None, end: str | None = None) -> None:
        """Print source from the project by name; see `tinycb.learn.source.find_source`."""
        excerpt = find_source(name, start, end)
        lines = (
            f"line {excerpt.first}"
            if excerpt.first == excerpt.last
            else f"lines {excerpt.first}–{excerpt.last}"
        )
        caption = f"{excerpt.file}, {lines}"
        self.notes.sources.append(name)
        self.screen.code(excerpt.text, caption, excerpt.first)

    def vllm(self, file: str, name: str, remark: str = "") -> None:
        """Where the same thing stands in vLLM. file: such as `vllm/v1/core/sched/scheduler.py`."""
        self.notes.vllm.append((file, name))
        self.screen.prose(f"In vLLM {VLLM_VERSION}: `{file}`, `{name}`. {remark}".rstrip())

    # ── running ───────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def model(self) -> LoadedModel:
        """The chapter's model: `.model`, `.config`, `.tokenizer`. Loaded when first asked for."""
        from tinycb.commands.errors import CommandError
        from tinycb.commands.loading import load_model

        try:
            return load_model(self.model_name, lesson_config())
        except CommandError as error:
            if self.fast or "not installed" not in str(error):
                raise
            raise CommandError(
                f"{error}; or add --fast, which uses a tiny random model that needs no download", error.code
            ) from None

    @cached_property
    def reference(self) -> Any:
        """transformers' `LlamaForCausalLM` with the weights of `model`: what answers are compared with."""
        from tinycb.learn.reference import reference_model

        return reference_model(self.model_name, self.model.model)

    def encode(self, text: str, chat: bool = False) -> list[int]:
        """Token ids of a text; with `chat`, of a user's message, where the model has a chat template."""
        tokenizer = self.model.tokenizer
        assert tokenizer is not None
        return tokenizer.chat(text) if chat and tokenizer.chat_template else list(tokenizer.encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        tokenizer = self.model.tokenizer
        assert tokenizer is not None
        return tokenizer.decode(token_ids)

    def config(self, **changes: Any) -> EngineConfig:
        """A lesson's configuration: four places, 4096 tokens of cache, no prefix caching; and `changes`."""
        return lesson_config(**changes)

    def engine(self, **changes: Any) -> Engine:
        """An engine on the chapter's model, to step by hand. `changes`: fields of EngineConfig."""
        from tinycb.commands.loading import make_engine

        return make_engine(self.model, self.config(**changes))

    def serve(
        self,
        name: str,
        prompts: Sequence[str | Sequence[int]],
        max_tokens: int | Sequence[int] = 16,
        *,
        arrive: Sequence[int] | None = None,
        chat: bool = False,
        ignore_eos: bool = False,
        times: int = 1,
        **changes: Any,
    ) -> Run:
        """Serve prompts on the chapter's model; the requests are A, B, C and so on.

        max_tokens: one for all, or one a prompt. arrive: before which step each comes. times: run it so
        often at most, in `PATIENCE` seconds, and keep the fastest, where seconds are compared.
        changes: fields of EngineConfig.
        """
        config = self.config(**changes)
        ids = [self.encode(p, chat) if isinstance(p, str) else list(p) for p in prompts]
        texts = [p if isinstance(p, str) else None for p in prompts]
        limits = [max_tokens] * len(ids) if isinstance(max_tokens, int) else list(max_tokens)
        params = [SamplingParams(max_tokens=limit, ignore_eos=ignore_eos) for limit in limits]
        self._warm_up(config)
        order = list(arrive) if arrive is not None else [0] * len(ids)
        runs: list[Run] = []
        while len(runs) < times and (not runs or sum(run.seconds for run in runs) < PATIENCE):
            runs.append(served_run(self.model, name, ids, texts, params, order, config))
        return self._noted(min(runs, key=lambda run: run.seconds))

    def script(
        self,
        name: str,
        requests: Mapping[str, tuple[int | Sequence[int], int | Sequence[int]]],
        *,
        arrive: Mapping[str, int] | None = None,
        **changes: Any,
    ) -> Run:
        """A worked example without a model: `{"A": (prompt, answer)}`, each a count or token ids."""
        return self._noted(scripted_run(name, requests, arrive or {}, self.config(**changes)))

    def recorded(self, name: str, path: str | Path) -> Run:
        """A run out of a trace that is there already. It is shown like any other, and has no golden table."""
        return recorded_run(name, path)

    def _warm_up(self, config: EngineConfig) -> None:
        from tinycb.commands.loading import warm_up

        if (config.attention, config.backend) not in self._warm:
            warm_up(self.model, config)
            self._warm.add((config.attention, config.backend))

    def _noted(self, run: Run) -> Run:
        self.notes.runs[run.name] = run
        return run

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────

    def predict(self, question: str, choices: Sequence[str] = ()) -> Prediction:
        """Ask before the run; later `.see(answer, because)` with what the run gave. Choices, or free."""
        prediction = ask(self.screen, question, choices)
        self.notes.predictions.append(prediction)
        return prediction

    def exercise(self, name: str) -> None:
        """Show an exercise, by its file's name without `.py`, and how to check it."""
        import ast

        found = next((e for e in self.chapter.exercises if e.name == name), None)
        if found is None:
            there = ", ".join(e.name for e in self.chapter.exercises) or "none"
            raise LookupError(
                f"chapter {self.chapter.number} has no exercise {name}; in tutorials/exercises: {there}"
            )
        self.notes.exercises.append(name)
        number = self.chapter.number
        task = ast.get_docstring(ast.parse(found.blank.read_text("utf-8"))) or name
        self.screen.prose(f"### Exercise {name}\n\n{task}")
        self.show(
            Text("get it, and check it:   ").append(f"tinycb learn --check {number}", style="bold"),
            Text("a hint, then the next:  ").append(f"tinycb learn --hint {number}", style="bold"),
            Text("how it can be done:     ").append(f"tinycb learn --solution {number}", style="bold"),
        )

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def finish(self, run: Run, next_: str = "") -> None:
        """Keep the run's trace, say how to open it, and what to read next (Markdown)."""
        path = self._keep(run)
        self.notes.kept.append(path)
        shown = short_path(path)
        for what, command in (
            ("step through this run", f"tinycb tui {shown}"),
            ("be asked before its steps", f"tinycb tui --quiz {shown}"),
        ):
            self.show(Text(f"{what}:"), Text(f"  {command}", style="bold", no_wrap=True, overflow="ignore"))
        if next_:
            self.notes.next.append(next_)
            self.screen.prose(f"**What to read next**: {inspect.cleandoc(next_)}")

    def _keep(self, run: Run) -> Path:
        from tinycb.user_cache import cache_root

        name = f"chapter-{self.chapter.number:02d}{'-fast' if self.fast else ''}.jsonl"
        for folder in (cache_root() / "learn", Path.cwd()):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                unfinished = folder / f".{name}.{os.getpid()}"
                shutil.copyfile(run.path, unfinished)
                os.replace(unfinished, folder / name)
            except OSError:
                continue
            return folder / name
        return run.path
