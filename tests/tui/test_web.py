"""The screen in a browser: keys go in, frames come out, and nothing is left when the server ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser import free_port, needs_browser, open_page
from tests.cli.conftest import cli  # noqa: F401

pytest.importorskip("textual_serve", reason="textual-serve is not installed")
import aiohttp


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`tinycb tui --web`: where it is, and its process."""
    command = [sys.executable, "-m", "tinycb", "tui", "--web", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        found = re.search(r"open (http://127\.0\.0\.1:\d+) in a browser", process.stdout.readline())
        assert found
        yield found[1], process
    finally:
        for pid in (*children(process.pid), process.pid):  # each leads a group of its own
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def children(parent: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(stat.parent.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Terminal:
    """What a terminal shows of the frames of a websocket: cursor moves and text; colours are passed over."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[int, str]] = {}
        self._x = self._y = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        whole = data.decode("utf-8", "ignore")
        self._rest = data[len(whole.encode()) :]
        for code, end, text in re.findall(r"\x1b\[([0-9;?]*)[ -/]*([@-~])|([^\x1b])", whole):
            if end == "H":
                self._y, self._x = (int(n or 1) - 1 for n in (*code.split(";"), "1")[:2])
            elif text == "\n":
                self._y, self._x = self._y + 1, 0
            elif text and text >= " ":
                self.rows.setdefault(self._y, {})[self._x] = text
                self._x += 1

    @property
    def text(self) -> str:
        lines = []
        for y in sorted(self.rows):
            row = self.rows[y]
            lines.append("".join(row.get(x, " ") for x in range(max(row) + 1)))
        return "\n".join(lines)


@pytest.mark.slow
@needs_browser
def test_keys_in_a_browser() -> None:
    terminal, addresses = Terminal(), []
    with served() as (address, process), open_page(1500, 900) as page:
        page.on("request", lambda request: addresses.append(request.url))
        page.on(
            "websocket",
            lambda socket: socket.on(
                "framereceived",
                lambda frame: terminal.feed(frame) if isinstance(frame, bytes) else None,
            ),
        )

        def shows(*texts: str) -> bool:
            page.wait_for_timeout(50)  # the page's events come while it waits
            return all(text in terminal.text for text in texts)

        page.goto(address)
        wait_until(lambda: shows("step 0 of 29", "Timeline", "Selected token"))
        page.keyboard.type("Ll")
        wait_until(lambda: shows("step 11 of 29", "D starts with 5 of 5 tokens"))
        page.keyboard.press("ArrowLeft")
        wait_until(lambda: shows("step 10 of 29"))
        page.keyboard.type(":15")
        page.keyboard.press("Enter")
        wait_until(lambda: shows("step 15 of 29", "D is preempted for C"))
        page.set_viewport_size({"width": 800, "height": 500})
        wait_until(lambda: shows("1 timeline", "8 place"))
        page.keyboard.type("q")
        wait_until(lambda: shows() and page.is_visible(".ended"))
        wait_until(lambda: not children(process.pid))
        assert page.inner_text(".ended").startswith("The screen is closed. Reload opens it again")
        assert all(url.startswith(address) for url in addresses), "it asked another machine for something"


async def open_screen(session: aiohttp.ClientSession, address: str) -> aiohttp.ClientWebSocketResponse:
    """A page's websocket, once the screen has drawn its title."""
    socket = await session.ws_connect(f"{address}/ws?width=120&height=40", origin=address)
    terminal = Terminal()
    while "step 0 of 29" not in terminal.text:
        message = await socket.receive(30)
        assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)
        if message.type is aiohttp.WSMsgType.BINARY:
            terminal.feed(message.data)
    return socket


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_no_screen_outlives_the_server(number: signal.Signals) -> None:
    async def play() -> None:
        with served() as (address, process):
            async with aiohttp.ClientSession() as session:
                sockets = [await open_screen(session, address) for _ in range(2)]
                screens = children(process.pid)
                assert len(screens) == 2
                begin = time.monotonic()
                os.kill(process.pid, number)
                assert process.wait(30) == (-number if number is signal.SIGKILL else 0)
                wait_until(lambda: not any(map(runs, screens)))
                assert time.monotonic() - begin < 20
                for socket in sockets:
                    await socket.close()

    asyncio.run(play())


def test_only_its_own_page_may_open_the_screen_and_leaving_it_ends_it() -> None:
    async def play() -> None:
        with served() as (address, process):
            async with aiohttp.ClientSession() as session:
                for headers in (
                    {"Origin": "http://example.org"},
                    {"Host": "example.org"},
                    {"Origin": "null"},
                ):
                    async with session.get(f"{address}/ws", headers=headers) as response:
                        assert response.status == 403
                async with session.get(address) as response:
                    page = await response.text()
                    assert response.status == 200
                assert set(re.findall(r"\b(?:https?|wss?)://[^/\"]+", page)) == {address, f"ws{address[4:]}"}
                assert not children(process.pid)
                socket = await open_screen(session, address)
                assert len(children(process.pid)) == 1
                await socket.close()
                await asyncio.to_thread(wait_until, lambda: not children(process.pid))

    asyncio.run(play())


def test_bad_input_is_one_line(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def says(*arguments: str) -> str:
        result = cli("tui", *arguments)
        assert (result.code, result.out, len(result.err_lines)) == (2, "", 1)
        return str(result.err)

    for port in ("x", "0", "-1", "65536", "1.5"):
        assert f"--port must be an integer from 1 to 65535, not '{port}'" in says("--web", "--port", port)
    with served("--port", str(free_port())) as (address, _):
        port = address.rpartition(":")[2]
        assert f"--port {port}: address already in use; leave it out for a free one" in says(
            "--web", "--port", port
        )
    assert "--port is that of a screen in the browser: give --web too" in says("--port", "8000")
    assert "cannot read the trace missing.jsonl" in says("missing.jsonl", "--web")
    assert "there is no step 99: they go from 0 to 29" in says("--web", "--step", "99")
    assert "--compare takes two traces or two policies, not 1" in says("--web", "--compare", "static")
    assert "cannot read the trace a" in says("--web", "--compare", "a", "b")
    assert "leave out --web" in says("--web", "--model", "tiny-random", "--trace", "a")
    assert "no such file" in says("--web", "--prompts", "missing.txt").lower()
    assert "name a file" in says("--web", "--prompts", "-")
    monkeypatch.setattr("tinycb.commands.tui_web.find_spec", lambda name: None)
    assert "--web needs PyPI's textual-serve: pip install 'tinycb[web]'" in says("--web")
