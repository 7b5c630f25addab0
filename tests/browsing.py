"""Pages in a real browser, Chromium without a window."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
_FLAGS += ["--disable-component-update", "--disable-sync"]

needs_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
    # Playwright's own event loop is closed when the interpreter ends, not before.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def shown(browser: Any, html: str, file: Path, **options: Any) -> Iterator[Any]:
    """The page; whatever the browser complains about or asks for fails the test."""
    file.write_text(html, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 900}, **options)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith("blob:")] == [file.as_uri()]
