"""No test reads what lies beside the checkout: it would be another test, or fail, where nothing does."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
_AROUND = os.path.dirname(CHECKOUT)
_READS = {"open", "os.listdir", "os.scandir"}


def is_beside(path: str, checkout: str, but: Iterable[str]) -> bool:
    """Return whether an absolute path lies in the folder that holds the checkout, and neither there nor in ``but``.

    A folder whose name begins with a dot is a tool's, as in a home directory.
    """
    around = os.path.dirname(checkout).rstrip("/") + "/"
    if not path.startswith(around):
        return False
    path = os.path.normpath(path)
    name = path.removeprefix(around).partition("/")[0]
    if not path.startswith(around) or name.startswith("."):
        return False
    return not any(path == each or path.startswith(each + "/") for each in (checkout, *but))


def allowed() -> list[str]:
    """Return what may lie beside it: what Python imports from, the temporary folder, and what the environment names."""
    named = [sys.prefix, sys.base_prefix, tempfile.gettempdir(), *sys.path]
    named += [each for name, value in os.environ.items() if name != "OLDPWD" for each in value.split(os.pathsep)]
    found = {
        path(each).rstrip("/") for each in named if each[:1] == "/" for path in (os.path.abspath, os.path.realpath)
    }
    return sorted(each for each in found if not str(CHECKOUT).startswith(each + "/"))


def guard(but: Iterable[str]) -> Callable[[str, tuple[object, ...]], None]:
    """Return an audit hook that raises `AssertionError` where a file or folder beside the checkout is read."""
    checkout, around, kept = str(CHECKOUT), _AROUND.rstrip("/") + "/", tuple(but)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _READS:
            return
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and path.startswith(around) and is_beside(path, checkout, kept):
            raise AssertionError(
                f"{path} lies beside the checkout: what a test reads is in tests/data, or made by the test"
            )

    return hook


def can_watch() -> bool:
    """Return whether the folder that holds the checkout is nobody else's: not the root, not the temporary folder."""
    return _AROUND not in ("/", tempfile.gettempdir())


def watch() -> None:
    """Watch what this process reads, from now on."""
    if can_watch():
        sys.addaudithook(guard(allowed()))
