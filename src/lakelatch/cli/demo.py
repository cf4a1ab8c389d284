"""``lakelatch demo``."""

from __future__ import annotations

from importlib import import_module

import typer

from ..errors import ConfigError


def demo(context: typer.Context) -> None:
    """Let writers change one table at once, and check it."""
    try:
        run = import_module("lakelatch.demo.commands").flights
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"the demo needs {e.name}, which is not installed; run `make demo` in the source tree, or "
            "pip install 'lakelatch[demo]'"
        ) from e
    raise typer.Exit(run(context.args) or 0)
