"""``lakelatch bench``: the commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..options import Json
from ..outcome import plainly

_HELP = ("-h", "--help")


class _RunUnlessNamed(TyperGroup):
    """A group in which ``bench appends`` means ``bench run appends``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command ``run`` where none is named."""
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(
    cls=_RunUnlessNamed,
    help="Measure contention: your locks, strategies and store, and other systems. `lakelatch bench appends` runs a scenario.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that was --out of a run.")]


@bench.command()
@plainly
def run(
    scenario: Annotated[
        list[str], typer.Argument(metavar="SCENARIO...", help="Names as of `bench list`, or .toml files of your own.")
    ],
    *,
    lock: Annotated[list[str] | None, typer.Option(help="A lock URL, 'table' or 'none://'; repeatable.")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="A conflict resolution strategy; repeatable.")] = None,
    isolation: Annotated[list[str] | None, typer.Option(help="An isolation level; repeatable.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other setting of our tables; repeatable.")
    ] = None,
    writers: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of writers; as the scenario says by itself.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="For each system, scenario and number of writers.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="In so many parts, systems in turns.")] = 3,
    operations: Annotated[int, typer.Option(help="So many by each writer in each part, instead of seconds.")] = 0,
    table: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A folder or bucket to make tables in; a temporary folder otherwise."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the tables there.")] = False,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another system, or module:class; repeatable.")
    ] = None,
    only_peers: Annotated[bool, typer.Option("--only-peers", help="Leave our own tables out.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="A new folder for results and report.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn by lot.")] = 0,
    json: Json = False,
) -> None:
    """Run scenarios and write a report. Exit code 1: a table was wrong afterwards, or a writer crashed.

    Ctrl-C ends it, removes the tables, and keeps what was found so far.
    """
    from .run import run as command

    command(
        scenario,
        locks=lock or [],
        strategies=strategy or [],
        isolations=isolation or [],
        settings=setting or [],
        writers=writers,
        seconds=seconds,
        rounds=rounds,
        operations=operations,
        place=table,
        keep=keep,
        peers=peer or [],
        ours=not only_peers,
        out=out,
        seed=seed,
        json=json,
    )


@bench.command("list")
@plainly
def list_(*, json: Json = False) -> None:
    """List scenarios and peers."""
    from .listing import list_ as command

    command(json=json)


@bench.command()
@plainly
def compare(first: Folder, second: Folder, *, json: Json = False) -> None:
    """Compare two folders of results, cell by cell."""
    from .listing import compare as command

    command(first, second, json=json)


@bench.command()
@plainly
def report(folder: Folder, *, json: Json = False) -> None:
    """Write the report of a folder of results again."""
    from .listing import report as command

    command(folder, json=json)


@bench.command()
@plainly
def export(
    folder: Folder,
    *,
    format: Annotated[  # noqa: A002 - the option's name
        list[str] | None, typer.Option(help="perfetto, hdr or elle; repeatable. All by itself.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the histories of a folder of results for Perfetto, HdrHistogram and Elle."""
    from .listing import export as command

    command(folder, format or [], json=json)
