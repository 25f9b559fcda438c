"""The screen in a browser: a page on loopback, and a process of its own for everybody who opens it.

textual-serve carries the keys to the process and the screen back. Here it is given a page that needs no other
machine, it lets in no page but its own, and no process outlives it: `watch_parent` runs in the process.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

__all__ = ["ScreenServer", "watch_parent"]

LOOPBACK = "127.0.0.1"
PATIENCE = 2.0  # seconds that a screen may take to close
_HERE = ("127.0.0.1", "localhost")
_PAGE = Path(__file__).parent / "page"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScreenServer(Server):
    """Serves the screen that a command opens, on a socket that listens on loopback, until it is told to stop.

    command: a program and its arguments. It draws with Textual, and reads keys from its standard input.
    """

    def __init__(self, command: Sequence[str], listening: socket.socket) -> None:
        self._listening = listening
        self._screens: set[asyncio.Task[object]] = set()
        port = listening.getsockname()[1]
        super().__init__(
            f"exec {shlex.join(command)}", host=LOOPBACK, port=port, title="tinycb", templates_path=_PAGE
        )

    def run(self, on_start: Callable[[str], None]) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP; then no screen is left. on_start: is given the address."""
        asyncio.run(self._run(on_start))

    async def _run(self, on_start: Callable[[str], None]) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        runner = web.AppRunner(await self._make_app(), access_log=None, shutdown_timeout=PATIENCE)
        await runner.setup()
        try:
            await web.SockSite(runner, self._listening).start()
            on_start(self.public_url)
            await stop.wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.extend([self._only_own_pages, self._know_screens])
        return app

    async def on_startup(self, app: web.Application) -> None:
        """The caller says where it is."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Close every screen, and not wait until its page is left."""
        for task in self._screens:
            task.cancel()

    @web.middleware
    async def _know_screens(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        if request.path == "/ws":
            self._screens.add(task)
        try:
            return await handler(request)
        finally:
            self._screens.discard(task)

    @web.middleware
    async def _only_own_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A page of another site could open this address too; a browser says which site it is."""
        origin = request.headers.get("Origin")
        if not self._is_own(f"//{request.host}") or (origin is not None and not self._is_own(origin)):
            raise web.HTTPForbidden(text="only this page may open the screen\n")
        return await handler(request)

    def _is_own(self, address: str) -> bool:
        try:
            parts = urlsplit(address)
            return parts.hostname in _HERE and (parts.port or 80) == self.port
        except ValueError:
            return False


def watch_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()
