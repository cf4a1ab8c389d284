"""``lakelatch streams``: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Url
from ..outcome import plainly

streams = typer.Typer(
    help="Jobs that fill columns of their own: list and declare them, explain a row.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@streams.command("list")
@plainly
def list_(url: Url, *, json: Json = False) -> None:
    """List the streams of a table."""
    from .commands import list_ as command

    command(url, json=json)


@streams.command()
@plainly
def add(
    url: Url,
    name: Annotated[str, typer.Argument(help="Of the stream.")],
    *,
    columns: Annotated[str, typer.Option(metavar="A,B,...", help="What it writes.")],
    ordering: Annotated[str, typer.Option(help="The column that orders its events.")],
    on_delete: Annotated[str, typer.Option(help="row, clear or ignore.")] = "clear",
    null: Annotated[str, typer.Option(help="keep (what was there) or write.")] = "keep",
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="What stands in rows that no event has set; repeatable."),
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=MERGER", help="How a column is merged; with --no-foreign-readers only; repeatable."
        ),
    ] = None,
    foreign_readers: Annotated[
        bool, typer.Option(help="Whether Hudi's own readers shall see what they can before a compaction.")
    ] = True,
    json: Json = False,
) -> None:
    """Declare a stream, or give one more columns."""
    from .commands import add as command

    words = {"ordering": ordering, "on_delete": on_delete, "null": null, "foreign_readers": foreign_readers}
    command(url, name, words | {"columns": columns.split(",")}, defaults=default or [], mergers=merge or [], json=json)


@streams.command()
@plainly
def explain(
    url: Url,
    key: Annotated[str, typer.Argument(help="The record key; `a:1,b:2` where it has several columns.")],
    *,
    partition: Annotated[str | None, typer.Option(help="Only in this partition, by its path.")] = None,
    json: Json = False,
) -> None:
    """Tell of each column of a row which event set it, and what that replaced."""
    from .commands import explain as command

    command(url, key, partition, json=json)
