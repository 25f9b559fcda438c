"""Drives an engine beside the screen that shows it: `tinycb tui --model`.

The two share nothing but the trace's file, which one writes and the other reads.
"""

from __future__ import annotations

import threading

from tinycb.commands.errors import one_line
from tinycb.engine import Engine

__all__ = ["EngineThread"]


class EngineThread:
    """An engine in a thread of its own. What the screen may ask of it is `tinycb.tui.source.LiveRun`."""

    def __init__(self, engine: Engine) -> None:
        self.error: str | None = None
        self._engine = engine
        self._changed = threading.Condition()
        self._paused = False
        self._single = 0
        self._stopped = False
        self._over = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def is_over(self) -> bool:
        return self._over

    def run_first_step(self) -> None:
        """One step here and now, so that there is something to see; then the thread goes on."""
        if self._engine.has_unfinished_requests():
            self._one_step()
        if not self._over:
            self._thread.start()

    def pause(self) -> None:
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify()

    def step(self) -> None:
        with self._changed:
            self._paused = True
            self._single += 1
            self._changed.notify()

    def stop(self) -> None:
        """End it after the step that runs now."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=60)
        self._close()

    def _run(self) -> None:
        while not self._over:
            with self._changed:
                while self._paused and not self._single and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                self._single = max(0, self._single - 1)
            self._one_step()

    def _one_step(self) -> None:
        engine = self._engine
        try:
            engine.step()
        except Exception as error:  # whatever the model raises: what came before can still be looked at
            self.error = f"step {engine.step_count - 1} failed: {type(error).__name__}: {one_line(error)}"
        if engine.trace_error is not None:
            self.error = one_line(engine.trace_error)
        if self.error is not None or not engine.has_unfinished_requests():
            self._over = True
            self._close()

    def _close(self) -> None:
        try:
            self._engine.close()
        except OSError as error:
            self.error = self.error or one_line(error)
