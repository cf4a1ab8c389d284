"""The command line inside of a test's process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from unittest import mock

from typer import Typer, testing
from typer.main import get_command

from lakelatch.cli.app import app

_command = cache(get_command)


class Runner:
    """Typer's, which makes all commands of the application again for each call: that takes longer than most of them."""

    def invoke(self, app: Typer, args: Sequence[str], **more: Any) -> testing.Result:
        """Run a command of the application, and return what it printed."""
        with mock.patch.object(testing, "_get_command", _command):
            return testing.CliRunner().invoke(app, args, **more)


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the names of each command of the program, and the command as the group lists it."""
    for name, each in (group or get_command(app)).commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, (*path, name))
        else:
            yield (*path, name), each
