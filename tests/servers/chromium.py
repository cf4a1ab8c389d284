"""A real browser, for what is looked at in one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from . import missing


@contextmanager
def chromium() -> Iterator[Any]:
    """Run Debian's Chromium, driven by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        missing("no chromium here; `make test` installs it")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()
