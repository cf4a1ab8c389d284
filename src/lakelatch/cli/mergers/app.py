"""``lakelatch mergers``: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json
from ..outcome import plainly

mergers = typer.Typer(
    help="How the values of a column are merged: the mergers that there are, and the laws that each keeps.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@mergers.command("list")
@plainly
def list_(*, json: Json = False) -> None:
    """Print the mergers that need no module of their own, with their laws."""
    from .laws import list_ as command

    command(json=json)


@mergers.command("check")
@plainly
def check_(
    merger: Annotated[str, typer.Argument(metavar="MERGER", help="A name such as sum, or module:Class.")],
    *,
    type: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(metavar="TYPE", help="Of the column, as int64 or list<string>; every one it takes otherwise."),
    ] = None,
    event_time: Annotated[bool, typer.Option("--event-time", help="Rows come late, with ordering values.")] = False,
    examples: Annotated[
        int, typer.Option(min=0, max=100_000, help="Random sets of more than three records, for each law.")
    ] = 50,
    json: Json = False,
) -> None:
    """Try whether a merger keeps the laws that it declares, and print the fewest records that break one."""
    from .laws import check as command

    command(merger, types=type or [], event_time=event_time, examples=examples, json=json)
