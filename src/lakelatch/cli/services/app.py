"""``lakelatch services``, ``savepoint`` and ``restore``: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Url
from ..outcome import plainly

services = typer.Typer(
    help="Clean, cluster, compact, archive, or run what is due; list, execute and cancel plans.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
savepoint = typer.Typer(
    help="Keep a state of a table until its savepoint is deleted.", no_args_is_help=True, rich_markup_mode=None
)

Commit = Annotated[str, typer.Argument(metavar="INSTANT", help="Requested time T, as `lakelatch timeline` prints it.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Leave the execution to another process.")]


@services.command("list")
@plainly
def list_(url: Url, *, json: Json = False) -> None:
    """List pending plans and readers' leases."""
    from .commands import list_ as command

    command(url, json=json)


@services.command()
@plainly
def clean(
    url: Url,
    *,
    retain_commits: Annotated[
        int | None,
        typer.Option(help="The newest states to keep; 0: nothing but the present one. 10 unless hours are given."),
    ] = None,
    retain_hours: Annotated[float | None, typer.Option(help="Keep the states of the last hours.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Watch readers' leases, so that dead readers keep nothing.")
    ] = False,
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Delete superseded file slices that no kept state, transaction, reader or savepoint needs."""
    from .commands import clean as command

    command(
        url, retain_commits=retain_commits, retain_hours=retain_hours, wait=wait, plan_only=plan_only, json=json
    )  # fmt: skip


@services.command()
@plainly
def cluster(
    url: Url,
    *,
    partition: Annotated[list[str] | None, typer.Option(help="Only this partition; repeat it.")] = None,
    small_mb: Annotated[
        float | None,
        typer.Option(min=0.001, help="Files below this size are joined; by default five sixths of the target."),
    ] = None,
    target_mb: Annotated[
        float | None, typer.Option(min=0.001, help="To files of about this size; by default what the table is set to.")
    ] = None,
    sort_by: Annotated[str | None, typer.Option(help="Columns by which rows are laid out: a,b.")] = None,
    layout: Annotated[str, typer.Option(help="How: linear, or z-order.")] = "linear",
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Join the small files of each partition, in this process."""
    from .commands import cluster as command

    columns = None if sort_by is None else [name.strip() for name in sort_by.split(",")]
    command(
        url, partition or None, small_mb=small_mb, target_mb=target_mb, sort_by=columns, layout=layout,
        plan_only=plan_only, json=json,
    )  # fmt: skip


@services.command()
@plainly
def archive(
    url: Url,
    *,
    keep_min: Annotated[int | None, typer.Option(help="So many newest commits stay at least; 20, as in Hudi.")] = None,
    keep_max: Annotated[
        int | None, typer.Option(help="Nothing is done with so many commits or fewer; 10 more than --keep-min.")
    ] = None,
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Move old instants from the active timeline into the history."""
    from .commands import archive as command

    command(url, keep_min=keep_min, keep_max=keep_max, plan_only=plan_only, json=json)


@services.command()
@plainly
def compact(
    url: Url,
    *,
    partition: Annotated[list[str] | None, typer.Option(help="Only this partition; repeat it.")] = None,
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Merge the log files of a merge-on-read table into base files, in this process."""
    from .commands import compact as command

    command(url, partition or None, plan_only=plan_only, json=json)


@services.command("compact-logs")
@plainly
def compact_logs(
    url: Url,
    *,
    partition: Annotated[list[str] | None, typer.Option(help="Only this partition; repeat it.")] = None,
    min_logs: Annotated[int, typer.Option(min=2, help="File slices with fewer log files are left alone.")] = 5,
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Merge the log files of each file slice into one log file, in this process; base files stay."""
    from .commands import compact_logs as command

    command(url, partition or None, min_logs=min_logs, plan_only=plan_only, json=json)


@services.command()
@plainly
def run(
    url: Url,
    *,
    loop: Annotated[bool, typer.Option("--loop", help="Go on until SIGTERM or Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option(min=0.001, max=86400, help="Seconds between rounds of --loop.")] = 60,
    lock: Annotated[
        str | None, typer.Option(metavar="LOCK_URL", help="Elect a leader with this lock; others wait in line.")
    ] = None,
    retain_commits: Annotated[int | None, typer.Option(help="As of clean.")] = None,
    keep_min: Annotated[int | None, typer.Option(help="As of archive.")] = None,
    keep_max: Annotated[int | None, typer.Option(help="As of archive.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Join small files too.")] = False,
    sort_by: Annotated[str | None, typer.Option(help="As of cluster.")] = None,
    layout: Annotated[str, typer.Option(help="As of cluster.")] = "linear",
    json: Json = False,
) -> None:
    """Run what is due: compaction and log compaction, clean, archival, and clustering if asked for."""
    from .loop import run as command

    columns = None if sort_by is None else [name.strip() for name in sort_by.split(",")]
    command(
        url, lock=lock, every_s=every_s, loop=loop, json=json, retain_commits=retain_commits,
        keep_min=keep_min, keep_max=keep_max, cluster=cluster, sort_by=columns, layout=layout,
    )  # fmt: skip


@services.command()
@plainly
def execute(
    url: Url,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="Only this plan.")] = None,
    *,
    json: Json = False,
) -> None:
    """Execute pending plans, from any writer."""
    from .commands import execute as command

    command(url, instant, json=json)


@services.command()
@plainly
def cancel(url: Url, instant: Commit, *, json: Json = False) -> None:
    """Cancel a pending plan; writers that wait for it go on."""
    from .commands import cancel as command

    command(url, instant, json=json)


@savepoint.command("create")
@plainly
def create(
    url: Url,
    *,
    at: Annotated[str | None, typer.Option(metavar="INSTANT", help="A past commit; the newest one otherwise.")] = None,
    comment: Annotated[str, typer.Option(help="Kept with it.")] = "",
    json: Json = False,
) -> None:
    """Keep the state of a commit."""
    from .commands import save

    save(url, at, comment=comment, json=json)


@savepoint.command("list")
@plainly
def saved(url: Url, *, json: Json = False) -> None:
    """List savepoints."""
    from .commands import saved as command

    command(url, json=json)


@savepoint.command("delete")
@plainly
def delete(url: Url, instant: Commit, *, json: Json = False) -> None:
    """Delete a savepoint, so that cleans may remove its state."""
    from .commands import forget

    forget(url, instant, json=json)


@plainly
def restore(
    url: Url,
    instant: Commit,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Go back to the state of a commit; every later commit is taken back for good."""
    from .commands import restore as command

    command(url, instant, yes=yes, json=json)
