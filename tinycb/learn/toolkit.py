"""`here`: what a chapter says, shows, runs, measures and asks with. `tinycb.learn` has the guide for authors.

Everything that it prints goes through `screen.py`; every run goes through `runs.py` and leaves a trace.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tinycb.config import EngineConfig
from tinycb.learn.files import ChapterFile
from tinycb.learn.notes import Notes
from tinycb.learn.questions import Prediction, ask
from tinycb.learn.runs import Run, lesson_config, scripted_run, served_run
from tinycb.learn.screen import Screen
from tinycb.learn.source import find_source
from tinycb.learn.steps import step_rows, step_table
from tinycb.learn.words import short_path
from tinycb.request import SamplingParams

if TYPE_CHECKING:
    from tinycb.engine import Engine
    from tinycb.model.checkpoint import LoadedModel

__all__ = ["VLLM_VERSION", "Toolkit"]

VLLM_VERSION = "0.32.0"
PATIENCE = 8.0  # seconds that a run may take before it is not run once more
FAST_MODEL, REAL_MODEL = "tiny-random", "smollm2-135m"


class Toolkit:
    """One chapter's. fast: the tiny random model instead of SmolLM2. notes: what the chapter did."""

    def __init__(self, chapter: ChapterFile, fast: bool) -> None:
        self.chapter = chapter
        self.fast = fast
        self.screen = Screen()
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

    def show(self, *parts: RenderableType) -> None:
        """Anything that rich can print."""
        self.screen.show(*parts)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> None:
        """A table of computed values. Columns of numbers are set to the right; floats get three digits."""
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for index, column in enumerate(columns):
            numbers = all(isinstance(row[index], int | float) for row in rows)
            made.add_column(column, justify="right" if numbers else "left")
        for row in rows:
            made.add_row(*(Text(f"{v:.3g}" if isinstance(v, float) else str(v)) for v in row))
        self.show(*([Text(caption, style="dim")] if caption else []), made)

    def term(self, name: str, meaning: str) -> None:
        """Define a term, once in the whole course, where it first appears. Both must be plain literals."""
        self.notes.terms.append(name)
        self.screen.prose(f"**{name}**: {meaning}")

    # ── code ──────────────────────────────────────────────────────────────────────────────────────────

    def show_source(self, name: str, start: str | None = None, end: str | None = None) -> None:
        """Print source from the project by name; see `tinycb.learn.source.find_source`."""
        excerpt = find_source(name, start, end)
        caption = f"{excerpt.file}, lines {excerpt.first}–{excerpt.last}"
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

    def _warm_up(self, config: EngineConfig) -> None:
        from tinycb.commands.loading import warm_up

        if (config.attention, config.backend) not in self._warm:
            warm_up(self.model, config)
            self._warm.add((config.attention, config.backend))

    def _noted(self, run: Run) -> Run:
        self.notes.runs[run.name] = run
        return run

    # ── pictures of a run ─────────────────────────────────────────────────────────────────────────────

    def timeline(self, run: Run) -> None:
        """A line a request, a column a step: prefill, decode, waiting, an idle slot."""
        from tinycb.view.timeline import timeline

        views = sorted(run.state().requests.values(), key=lambda view: view.index)
        lines = timeline(views, len(run.records), self.screen.width, self.screen.glyphs)
        caption = f"{run.name}: {run.info.batching} batching, {run.model}"
        self.show(Text(caption, style="bold"), *lines, Text(self.screen.glyphs.legend, style="dim"))

    def steps(self, run: Run, first: int = 0, last: int | None = None) -> None:
        """The table of steps: waiting, running, tokens, finished, and why."""
        rows = [row for row in step_rows(run.records) if row.last >= first]
        self.show(step_table([row for row in rows if last is None or row.first <= last]))

    def picture(self, run: Run, step: int) -> None:
        """One step as `tinycb run` draws it: the packed row, the budget, the blocks, every request."""
        from tinycb.view.picture import picture

        height = 14 + len(run.outputs)
        self.show(picture(run.frame(step), self.screen.width, height, self.screen.glyphs))

    def panels(self, run: Run, step: int, *names: str, select: str | None = None) -> None:
        """Panels of the visualizer: timeline, batch, why, requests, mask, blocks, budget, place.

        select: a request, or a token of it, as `B:5`.
        """
        from tinycb.tracing import TraceReader
        from tinycb.tui.look import Look
        from tinycb.tui.session import Session
        from tinycb.tui.show import Lines, step_lines

        with TraceReader(run.path) as reader:
            session = Session(reader)
            session.go(step)
            if select is not None:
                session.select(select)
            while not session.is_read and session.history.num_steps <= step + self.screen.width:
                session.work(0.1)
            look = Look("dark" if self.screen.is_coloured and not self.screen.notebook else "plain")
            self.show(Lines(step_lines(session.view(look), names, self.screen.width)))

    def answers(self, run: Run) -> None:
        """Every request's text."""
        from tinycb.view.results import answer

        self.show(*(answer(output, i, self.screen.glyphs) for i, output in enumerate(run.outputs)))

    def bars(self, values: Mapping[str, float], unit: str, note: str = "") -> None:
        """A few numbers as bars of one scale. note: what they are and how they were got."""
        from tinycb.view.packed_row import bar

        label, top = max(map(len, values)) + 2, max(values.values())
        room = max(10, self.screen.width - label - 16 - len(unit))
        lines = [Text(note, style="dim")] if note else []
        for name, value in values.items():
            drawn = bar(round(1000 * value), round(1000 * top) or 1, room, self.screen.glyphs)
            lines.append(Text(name.ljust(label)).append_text(drawn).append(f"  {value:.4g} {unit}"))
        self.show(*lines)

    # ── what it gained ────────────────────────────────────────────────────────────────────────────────

    def compare(self, *runs: Run) -> None:
        """Runs of the same prompts as columns of a table, and what it says in words; checks equal answers."""
        from tinycb.view.comparison import comparison_table, findings, first_difference

        results = [run.result for run in runs]
        difference = first_difference(results)
        same = difference or "Every request got the same tokens in each run."
        measured = all(run.is_measured for run in runs)
        note = "Seconds were measured now, on this machine." if measured else "Seconds mean nothing here."
        said = [*findings(results), same, note]
        self.show(comparison_table(results), Text(), *(Text(sentence) for sentence in said))

    def gain(self, what: str, before: float, after: float, unit: str, *, measured: bool = False) -> None:
        """One number before and after: `gain("output tokens/s", 39.0, 109.0, "tokens/s", measured=True)`.

        measured: it depends on this machine and moment, and is marked so; counts of a run do not.
        """
        ratio = f"{after / before:.2f} times" if before and after else "none left" if before else "new"
        where = "   (measured now, on this machine)" if measured else ""
        text = Text(f"{what}: ", style="bold").append(f"{before:.4g} → {after:.4g} {unit}, {ratio}")
        self.show(text.append(where, style="dim"))

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
        self.show(
            Text("step through this run:       ").append(f"tinycb tui {shown}", style="bold"),
            Text("be asked before its steps:   ").append(f"tinycb tui --quiz {shown}", style="bold"),
        )
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
