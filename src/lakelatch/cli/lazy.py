"""Commands that are imported when they run: help and completion list them by name and first sentence only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .outcome import COULD_NOT, USAGE, plainly


class LazyCommand(TyperCommand):
    """A command whose function, and with it its options and whole help, is imported at its first use."""

    def __init__(self, name: str, function: str, summary: str, **options: Any) -> None:
        """Take ``function`` as ``.module:name``, and ``options`` of `typer.Typer.command`."""
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._function, self._options = function, options

    @cached_property
    def function(self) -> Any:
        """The function itself."""
        module, _, function = self._function.partition(":")
        return getattr(import_module(module, __package__), function)

    @cached_property
    def imported(self) -> Any:
        """The command itself."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, **self._options)(plainly(self.function))
        return typer.main.get_command(alone)

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Return the context of the command itself, which is what runs or is completed."""
        try:
            return self.imported.make_context(*given, **more)
        except Exception as e:
            # Click's own errors end with 2; a wrong use of a command on a lock must not look like a lock that fails.
            if getattr(self.function, "by_cause", False) and getattr(e, "exit_code", None) == COULD_NOT:
                e.exit_code = USAGE  # type: ignore[attr-defined]
            raise


def lazy(commands: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the commands of a group, from the function and the summary of each name."""
    return {name: LazyCommand(name, *each) for name, each in commands.items()}


def group(
    name: str, summary: str, commands: Mapping[str, tuple[str, str]], kind: type[TyperGroup] = TyperGroup
) -> TyperGroup:
    """Return a group of commands below the program's own."""
    return kind(name=name, help=summary, commands=lazy(commands), no_args_is_help=True, rich_markup_mode=None)
