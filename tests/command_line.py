"""The command line inside of a test's process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest import mock

from typer import Typer, testing
from typer.main import get_command

_command = cache(get_command)


class Runner:
    """Typer's, which makes all commands of the application again for each call: that takes longer than most of them."""

    def invoke(self, app: Typer, args: Sequence[str], **more: Any) -> testing.Result:
        """Run a command of the application, and return what it printed."""
        with mock.patch.object(testing, "_get_command", _command):
            return testing.CliRunner().invoke(app, args, **more)
