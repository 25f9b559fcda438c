"""Once in a real terminal: keys are typed, the screen is read."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout

    def start(self, command: str, width: int, height: int) -> None:
        self.run("new-session", "-d", "-x", str(width), "-y", str(height), command)

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def wait(self, *texts: str, seconds: float = 30) -> str:
        """The screen, as soon as it holds all of the texts."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.run("capture-pane", "-p")
            if all(text in screen for text in texts):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{texts} did not appear on:\n{screen}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    subprocess.run(["tmux", "-S", terminal._socket, "kill-server"], capture_output=True, check=False)


def test_the_tour(terminal: Terminal) -> None:
    terminal.start(f"{sys.executable} -m tinycb tui; echo code $?; sleep 60", 120, 40)
    terminal.wait("step 0 of 29", "Timeline", "Selected token")
    terminal.keys("L", "l")
    terminal.wait("step 11 of 29", "D starts with 5 of 5 tokens")
    terminal.keys("j", "j", "j")
    terminal.wait("slot = block_table[D]")
    terminal.keys(":", "1", "5", "Enter")
    terminal.wait("step 15 of 29", "D is preempted for C")
    terminal.keys("b")
    terminal.keys("-l", "refused")
    terminal.keys("Enter")
    terminal.wait("step 16 of 29", "F is refused")
    terminal.run("resize-window", "-x", "80", "-y", "24")
    terminal.wait("1 timeline", "8 place")
    terminal.keys("5")
    terminal.wait("Mask (T, S)", "q╲k")
    terminal.keys("q")
    terminal.wait("code 0")
