"""Step through a run, forward and back, and see why: a trace, a live run, or the built-in tour."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, CommandError, one_line
from tinycb.commands.flags import add_engine_flags, add_sampling_flags, engine_config, sampling_values

if TYPE_CHECKING:
    from tinycb.commands.engine_thread import EngineThread
    from tinycb.commands.prompts import PromptSpec
    from tinycb.engine import Engine
    from tinycb.tracing import TraceReader
    from tinycb.tui.session import Session

__all__ = ["EXAMPLES", "add_arguments", "check_sources", "check_terminal", "open_screen", "run"]

EXAMPLES = """\
examples:
  tinycb tui                                          the built-in tour
  tinycb tui run.jsonl                                a trace that tinycb run --trace wrote
  tinycb tui --model smollm2-135m --prompts FILE      live: pause, step, look back while it runs
  tinycb tui --compare static,chunked                 the tour under two policies, side by side
  tinycb tui --compare a.jsonl b.jsonl                two traces, side by side
  tinycb tui --quiz run.jsonl                         asks before chosen steps what happens next
  tinycb tui run.jsonl --web                          the same in a browser on this machine

? shows the keys. tinycb show prints the same panels as plain text.
"""
_POLICIES = ("static", "continuous", "chunked")
_DEMO_PROMPTS = "demo_prompts.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb tui`."""
    parser.add_argument("trace", nargs="?", metavar="TRACE", help="a trace; without one, the built-in tour")
    parser.add_argument("--step", metavar="N", help="the step to begin with; -1 is the last")
    parser.add_argument(
        "--compare", nargs="+", metavar="RUN", help="two traces, or two policies as in static,chunked"
    )
    parser.add_argument(
        "--quiz", action="store_true", help="stop before chosen steps and ask what happens next"
    )
    parser.add_argument("--light", action="store_true", help="dark letters on a light ground")
    parser.add_argument("--web", action="store_true", help="serve the screen to a browser on this machine")
    parser.add_argument("--port", metavar="N", help="of --web (default: a free one, which it prints)")
    group = parser.add_argument_group("live run")
    group.add_argument("--model", metavar="MODEL", help="serve prompts on a model, live (smollm2-135m, …)")
    group.add_argument("--prompts", metavar="FILE", help="a file of prompts, as of tinycb run")
    group.add_argument("--chat", action="store_true", help="put each text prompt into the chat template")
    group.add_argument("--trace", dest="keep", metavar="FILE", help="keep the live run's trace")
    add_engine_flags(parser)
    add_sampling_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Open the screen, or serve it, and return the exit code."""
    _check(args)
    if args.web:
        from tinycb.commands.tui_web import serve

        return serve(args)
    check_terminal()
    return open_screen(args)


def open_screen(args: argparse.Namespace) -> int:
    """Show what the arguments name, until it is closed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tinycb-")))
        if args.compare is not None:
            return _compare(args, folder, stack)
        if args.model is not None or args.prompts is not None:
            return _live(args, folder, stack)
        if args.quiz:
            return _quiz(args, _recorded(args, folder, stack))
        return _show(args, _recorded(args, folder, stack))


def check_sources(args: argparse.Namespace) -> None:
    """Raise what `open_screen` would raise before a model is loaded."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tinycb-")))
        live = args.model is not None or args.prompts is not None
        if live:
            engine_config(args)
            _prompts(args)
        if args.compare is not None:
            names = _compared(args)
            for name in names if not _are_policies(names) else ():
                _open(name, stack)
        elif args.quiz:
            from tinycb.commands.tui_quiz import make_quiz

            make_quiz(_recorded(args, folder, stack))
        elif not live:
            _session(args, _recorded(args, folder, stack))


def _check(args: argparse.Namespace) -> None:
    live = args.model is not None or args.prompts is not None
    if args.trace is not None and (live or args.compare is not None):
        raise CommandError("give one of TRACE, --compare and --model")
    if args.quiz and (live or args.compare is not None or args.step is not None):
        other = "--compare" if args.compare is not None else "--step" if args.step is not None else "--model"
        raise CommandError(f"--quiz is about one run that is recorded, from its beginning: leave out {other}")
    if args.keep is not None and not live:
        raise CommandError("--trace keeps the trace of a live run: give --model or --prompts too")
    if args.port is not None and not args.web:
        raise CommandError("--port is that of a screen in the browser: give --web too")


def check_terminal() -> None:
    """Raise CommandError where there is nothing to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise CommandError(
            "the screen needs a terminal; tinycb show prints a step as plain text, with --quiz the questions"
        )


def _open(path: str | Path, stack: ExitStack) -> TraceReader:
    from tinycb.tracing import TraceReader

    try:
        reader = stack.enter_context(TraceReader(path))
    except OSError as error:
        raise CommandError(one_line(error)) from None
    if not len(reader):
        raise CommandError(f"{path} has no steps: there is nothing to show")
    return reader


def _recorded(args: argparse.Namespace, folder: Path, stack: ExitStack) -> TraceReader:
    """The trace, or the tour."""
    if args.trace is not None:
        return _open(args.trace, stack)
    from tinycb.workloads.tour import write_tour

    return _open(write_tour(folder), stack)


def _show(args: argparse.Namespace, reader: TraceReader, live: EngineThread | None = None) -> int:
    from tinycb.tui.app import Visualizer

    return _run_app(Visualizer(_session(args, reader, live), _look(args)))


def _quiz(args: argparse.Namespace, reader: TraceReader) -> int:
    from tinycb.commands.tui_quiz import quiz_app, score_line

    app = quiz_app(reader, _look(args))
    code = _run_app(app)
    if (line := score_line(app.quiz)) is not None and sys.stdout.isatty():  # a browser's page has no terminal
        print(line)
    return code


def _session(args: argparse.Namespace, reader: TraceReader, live: EngineThread | None = None) -> Session:
    from tinycb.tui.session import Session

    try:
        session = Session(reader, live)
        if args.step is not None:
            session.go(session.index_of(int(args.step)))
    except ValueError as error:
        message = (
            f"--step must be an integer, not {args.step!r}" if "literal" in str(error) else one_line(error)
        )
        raise CommandError(message) from None
    return session


def _look(args: argparse.Namespace) -> str:
    return "light" if args.light else "dark"


def _run_app(app: Any) -> int:
    from tinycb.tui.app import collect_nothing

    collect_nothing()
    app.run()
    if app.failure is not None:
        kind = type(app.failure).__name__
        raise CommandError(f"the screen broke: {kind}: {one_line(app.failure)}", EXIT_FAILED)
    return EXIT_OK


# ── two runs side by side ─────────────────────────────────────────────────────────────────────────────


def _compare(args: argparse.Namespace, folder: Path, stack: ExitStack) -> int:
    from tinycb.tui.compare import CompareApp
    from tinycb.tui.session import Session

    names = _compared(args)
    if _are_policies(names):
        paths = _run_policies(args, names, folder)
    else:
        paths = [Path(name) for name in names]
        if paths[0].name != paths[1].name:
            names = [path.name for path in paths]
    sessions = [Session(_open(path, stack)) for path in paths]
    return _run_app(CompareApp(sessions, names, _look(args)))


def _compared(args: argparse.Namespace) -> list[str]:
    names = [name for value in args.compare for name in value.split(",") if name]
    if len(names) != 2:
        raise CommandError(f"--compare takes two traces or two policies, not {len(names)}: static,chunked")
    if any(name in _POLICIES for name in names) and not _are_policies(names):
        raise CommandError("--compare takes two traces or two policies, not one of each")
    return names


def _are_policies(names: Sequence[str]) -> bool:
    return all(name in _POLICIES for name in names)


def _run_policies(args: argparse.Namespace, names: Sequence[str], folder: Path) -> list[Path]:
    """The same requests under each policy: those of the tour, or prompts on a model."""
    if args.model is None and args.prompts is None:
        from tinycb.workloads.tour import write_tour

        return [write_tour(folder, name) for name in names]
    from dataclasses import replace

    from tinycb.commands.loading import load_model, make_engine, warm_up
    from tinycb.commands.serving import serve
    from tinycb.commands.terminal import progress

    config, specs = engine_config(args), _prompts(args)
    loaded = load_model(args.model or "smollm2-135m", config)
    paths = []
    for name in names:
        path = folder / f"{name}.jsonl"
        with progress(f"serving {len(specs)} prompts, {name}"):
            policy = replace(config, batching=name)
            warm_up(loaded, policy)
            engine = make_engine(loaded, policy, trace=path)
            served = serve(engine, specs, chat=args.chat)
        if served.interrupted or served.failure is not None:
            raise CommandError(served.failure or "interrupted", EXIT_FAILED)
        paths.append(path)
    return paths


# ── a live run ────────────────────────────────────────────────────────────────────────────────────────


def _prompts(args: argparse.Namespace) -> list[PromptSpec]:
    from tinycb.commands.prompts import from_file

    demo = Path(__file__).parent.parent / "workloads" / _DEMO_PROMPTS
    specs, problems = from_file(args.prompts or str(demo), sampling_values(args))
    for problem in problems:
        print(f"tinycb tui: {problem}", file=sys.stderr, flush=True)
    if not specs:
        raise CommandError("there is no prompt to serve", EXIT_BAD_INPUT)
    return specs


def _live(args: argparse.Namespace, folder: Path, stack: ExitStack) -> int:
    config, specs = engine_config(args), _prompts(args)
    from tinycb.commands.engine_thread import EngineThread
    from tinycb.commands.loading import check_trace_path, load_model, make_engine
    from tinycb.tracing import TraceReader

    if args.keep is not None:
        check_trace_path(args.keep)
    loaded = load_model(args.model or "smollm2-135m", config)
    if args.chat and getattr(loaded.tokenizer, "chat_template", None) is None:
        raise CommandError(f"{loaded.name} has no chat template: leave out --chat")
    path = Path(args.keep) if args.keep is not None else folder / "live.jsonl"
    engine = make_engine(loaded, config, trace=path)
    for spec in specs:
        _add(engine, spec, args.chat)
    reader = stack.enter_context(TraceReader(path))
    thread = EngineThread(engine)
    stack.callback(thread.stop)
    thread.run_first_step()
    reader.refresh()
    if not len(reader):
        raise CommandError(f"the first step failed: {thread.error or 'it left no record'}", EXIT_FAILED)
    return _show(args, reader, thread)


def _add(engine: Engine, spec: PromptSpec, chat: bool) -> None:
    """Queue a prompt. One that is refused is so in the record, and on the screen."""
    from tinycb.commands.serving import token_ids
    from tinycb.request import Request

    try:
        request = Request(spec.request_id, token_ids(engine, spec, chat), spec.params)
        engine.add_request(request, prompt=spec.text)
    except ValueError as error:
        print(f"tinycb tui: {spec.where}: {one_line(error)}", file=sys.stderr, flush=True)
