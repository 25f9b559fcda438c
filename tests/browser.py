"""A headless Chromium for the tests that look at a page: this machine's, or the one that Playwright brought.

No page reaches anything beyond this machine's loopback.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

__all__ = ["free_port", "needs_browser", "open_page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def _chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    found = named if named and Path(named).exists() else next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None and find_spec("playwright") is not None:
        brought = Path.home().glob(".cache/ms-playwright/chromium-*/chrome-linux*/chrome")
        found = next(map(str, brought), None)
    return found


def _missing() -> str:
    if find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if _chromium() else "there is no Chromium: apt-get install chromium, or set CHROMIUM"


needs_browser = pytest.mark.skipif(bool(_missing()), reason=_missing() or "a browser is here")


@contextmanager
def open_page(width: int = 1600, height: int = 1000) -> Iterator[Any]:
    """A page of a new browser, which is gone afterwards."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=_FLAGS)
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


def free_port() -> int:
    """A port on which nobody listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
