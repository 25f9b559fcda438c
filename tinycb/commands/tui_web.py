"""`tinycb tui --web`: the screen in a browser on this machine, a process for each page that opens it.

`serve` runs in the process that the user started; `main` is that of a page. Both show what the same arguments
name, and what is wrong with them is said before a page is served.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
from importlib.util import find_spec

from tinycb.commands.errors import EXIT_FAILED, EXIT_OK, CommandError, one_line
from tinycb.commands.tui import check_sources, open_screen

__all__ = ["main", "serve"]


def serve(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if find_spec("textual_serve") is None:
        raise CommandError("--web needs PyPI's textual-serve: pip install 'tinycb[web]'")
    if args.keep is not None:
        raise CommandError("--trace keeps the trace of one run, and each page has its own: leave out --web")
    if args.prompts == "-":
        raise CommandError("--prompts - can be read once, and each page reads it: name a file")
    check_sources(args)
    with _listen(args.port) as listening:
        from tinycb.tui.web import ScreenServer

        settings = {name: value for name, value in vars(args).items() if name not in ("web", "port")}
        command = [sys.executable, "-m", "tinycb.commands.tui_web", json.dumps(settings)]
        ScreenServer(command, listening).run(_say)
    return EXIT_OK


def _say(address: str) -> None:
    print(f"tinycb tui: open {address} in a browser; Ctrl-C ends it", flush=True)


def _listen(text: str | None) -> socket.socket:
    """A socket on loopback: on the port that was asked for, or a free one."""
    try:
        port = 0 if text is None else int(text)
    except ValueError:
        port = -1
    if not 0 <= port < 1 << 16 or (text is not None and port == 0):
        raise CommandError(f"--port must be an integer from 1 to 65535, not {text!r}")
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise CommandError(f"--port {port}: {why}; leave it out for a free one") from None


def main() -> int:
    """The process of a page: its screen, over standard input and output, as long as the server is there."""
    from tinycb.tui.web import watch_parent

    with contextlib.suppress(PermissionError):
        os.setsid()  # Ctrl-C is the server's, which then closes the screen
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # until the screen has its own
    watch_parent()
    try:
        return open_screen(argparse.Namespace(**json.loads(sys.argv[1])))
    except CommandError as error:
        print(f"tinycb tui: {one_line(error)}", file=sys.stderr)
        return error.code
    except Exception as error:
        kind = type(error).__name__
        print(f"tinycb tui: unexpected {kind}: {one_line(error)}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
