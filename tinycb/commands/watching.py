"""Which watcher a run gets: the live picture, plain lines, or one that only keeps the state."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tinycb.commands.serving import Stopwatch
from tinycb.commands.terminal import LiveWatcher, PlainWatcher, Watcher, is_interactive
from tinycb.engine import Engine
from tinycb.view.run_state import RunInfo, RunState

__all__ = ["watcher_for"]


def watcher_for(
    engine: Engine,
    names: Sequence[str],
    stopwatch: Stopwatch,
    args: argparse.Namespace,
    title: str | None = None,
) -> Watcher:
    """names: the requests' ids in the order of their letters. title: what to call the policy."""
    config = engine.config
    info = RunInfo(
        model=engine.executor.name,
        batching=title or str(config.to_dict()["batching"]),
        attention=config.attention,
        num_blocks=config.num_blocks or 0,
        budget=config.max_num_batched_tokens if config.batching == "chunked" else None,
    )
    state = RunState(info, names)
    if args.quiet:
        return Watcher(state)
    if is_interactive(sys.stderr):
        return LiveWatcher(state, sys.stderr, stopwatch)
    return PlainWatcher(state, sys.stderr)
