"""``lakelatch services``, ``savepoint`` and ``restore``.

JSON of `services list`: ``plans``, each with ``instant``, ``action``, ``writer``, ``files``; ``readers``, each with
``reader``, ``writer`` and ``at``. Of `clean`, `cluster`, `compact`, `compact-logs` and `execute`: ``executed``, each with
``instant``, ``completion``, ``files``, ``by`` and ``mine``, and ``planned`` (instants that were planned only). Of `archive`:
``instants`` (how many), ``first_active`` and ``kept_by``; with ``--plan-only`` as of `clean`. Of `savepoint create` and
`list`: ``savepoints``, each with ``instant``, ``completion``, ``by``, ``comment``, ``files``; of its `delete`: ``instant``. Of
`cancel`: ``instant`` and ``cancelled`` (false when it was over already). Of `restore`: ``instant``,
``completion``, ``undone``, ``files``. Of `buckets`: ``before`` (null: none), ``bucket_count``, ``partitions``, ``files`` and
``bytes`` that are rewritten, and ``done``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...arguments import number
from ...progress import drawn
from ..options import Json, Url
from ..output import bytes_text, count_text, print_json, print_table, say, wrapped

if TYPE_CHECKING:
    from ...occ.services import Executed
    from ...occ.session import Savepoint
    from ...occ.table import Table

Commit = Annotated[str, typer.Argument(metavar="INSTANT", help="Requested time T, as `lakelatch timeline` prints it.")]
Partition = Annotated[list[str] | None, typer.Option(help="Only this partition; repeat it.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", help="Leave the execution to another process.")]


def list_(url: Url, *, json: Json = False) -> None:
    """List pending plans and readers' leases."""
    import lakelatch

    from ...occ.entries import extent, held

    with lakelatch.open(url) as table:
        plans = []
        for begin in table.plans():
            assert begin.plan is not None
            files = extent(held(table.store, begin.plan))
            plans.append({"instant": begin.instant, "action": begin.action, "writer": begin.writer, "files": files})
        leases = table.session.leases.alive(timeout_s=table.settings.heartbeat_timeout_s)
    readers = [{"reader": each.reader, "writer": each.writer, "at": each.at} for each in leases]
    if json:
        print_json({"plans": plans, "readers": readers})
        return
    if not plans and not readers:
        say("nothing is planned, and no reader has a lease")
    for rows in (plans, readers):
        if rows:
            print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


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
    import lakelatch

    with lakelatch.open(url) as table:
        planned = table.plan_clean(retain_commits=retain_commits, retain_hours=retain_hours, wait=wait)
        _finish(table, planned, "no file may go", plan_only=plan_only, json=json)


def cluster(
    url: Url,
    *,
    partition: Partition = None,
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
    import lakelatch

    sizes = {"--small-mb": small_mb, "--target-mb": target_mb}
    small, target = (size and int(number(size, name, most=1 << 40) * (1 << 20)) for name, size in sizes.items())
    given: dict[str, Any] = {
        "partitions": partition or None, "sort_by": names(sort_by), "layout": layout,
        "small_bytes": small, "target_bytes": target,
    }  # fmt: skip
    nothing = "there are no two small files in one partition" + (
        ", and all are laid out so" if sort_by is not None else ""
    )
    with lakelatch.open(url) as table:
        _perform(table, table.plan_clustering, table.cluster, given, nothing, plan_only=plan_only, json=json)


def buckets(
    url: Url,
    count: Annotated[int, typer.Argument(help="Of each partition.")],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without this the plan is printed, and nothing changed.")
    ] = False,
    json: Json = False,
) -> None:
    """Lay the rows out in another number of buckets: print what is rewritten, and with --yes do it.

    Other jobs may read and write meanwhile. One that was interrupted is run again.
    """
    import lakelatch

    with lakelatch.open(url) as table, drawn(yes, text=not json) as progress:
        found = table.change_buckets(count, dry_run=not yes, progress=progress)
    if json:
        print_json(asdict(found))
        return
    before = "a simple index" if found.before is None else count_text(found.before, "bucket")
    what = f"{count_text(found.files, 'file')} of {count_text(found.partitions, 'partition')}"
    say(f"{before} becomes {count_text(count, 'bucket')}: {what} rewritten, {bytes_text(found.bytes)}")
    say("done" if found.done else "nothing was changed yet: say --yes")


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
    import lakelatch

    with lakelatch.open(url) as table:
        if plan_only:
            planned = table.plan_archive(keep_min=keep_min, keep_max=keep_max)
            _finish(table, planned, "no instant may go", plan_only=True, json=json)
            return
        with drawn(True, text=False) as progress:
            done = table.archive(keep_min=keep_min, keep_max=keep_max, progress=progress)
    if json:
        print_json(asdict(done))
    else:
        typer.echo(wrapped(f"archived {count_text(done.instants, 'instant')}; no more, because {done.kept_by}"))


def compact(url: Url, *, partition: Partition = None, plan_only: PlanOnly = False, json: Json = False) -> None:
    """Merge the log files of a merge-on-read table into base files, in this process."""
    import lakelatch

    given, nothing = {"partitions": partition or None}, "there are no log files"
    with lakelatch.open(url) as table:
        _perform(table, table.plan_compaction, table.compact, given, nothing, plan_only=plan_only, json=json)


def compact_logs(
    url: Url,
    *,
    partition: Partition = None,
    min_logs: Annotated[int, typer.Option(min=2, help="File slices with fewer log files are left alone.")] = 5,
    plan_only: PlanOnly = False,
    json: Json = False,
) -> None:
    """Merge the log files of each file slice into one log file, in this process; base files stay."""
    import lakelatch

    given = {"min_logs": min_logs, "partitions": partition or None}
    nothing = f"no file slice has {min_logs} log files to merge"
    with lakelatch.open(url) as table:
        _perform(table, table.plan_log_compaction, table.compact_logs, given, nothing, plan_only=plan_only, json=json)


def _perform(
    table: Table,
    plan: Callable[..., str | None],
    run: Callable[..., Executed | None],
    given: Mapping[str, Any],
    nothing: str,
    *,
    plan_only: bool,
    json: bool,
) -> None:
    """Plan and execute with these arguments, or plan only, and tell what was done; ``nothing``: why nothing was."""
    if plan_only:
        _finish(table, plan(**given), nothing, plan_only=True, json=json)
        return
    with drawn(True, text=False) as progress:
        executed = run(progress=progress, **given)
    done = [executed] if executed else []
    if json:
        print_json({"planned": [], "executed": [asdict(each) for each in done]})
    elif not done:
        say(nothing)
    _tell(done, json=json)


def _finish(table: Table, planned: str | None, nothing: str, *, plan_only: bool, json: bool) -> None:
    left = [planned] if planned and plan_only else []
    done = []
    if planned and not plan_only:
        with drawn(True, text=False) as progress:
            done = [table.execute(planned, progress=progress)]
    if json:
        print_json({"planned": left, "executed": [asdict(each) for each in done]})
    elif planned is None:
        say(nothing)
    elif left:
        say(f"planned {planned}; `lakelatch services execute` executes it")
    _tell(done, json=json)


def _tell(done: Sequence[Executed], *, json: bool) -> None:
    for each in () if json else done:
        by = "" if each.mine else f" by {each.by}"
        say(f"executed {each.instant}{by}: {count_text(each.files, 'file')}")


def execute(
    url: Url,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="Only this plan.")] = None,
    *,
    json: Json = False,
) -> None:
    """Execute pending plans, from any writer."""
    import lakelatch

    with lakelatch.open(url) as table:
        wanted = [instant] if instant else [begin.instant for begin in table.plans()]
        done = [table.execute(each) for each in wanted]
    if json:
        print_json({"planned": [], "executed": [asdict(each) for each in done]})
    elif not wanted:
        say("nothing is planned")
    _tell(done, json=json)


def cancel(url: Url, instant: Commit, *, json: Json = False) -> None:
    """Cancel a pending plan; writers that wait for it go on."""
    import lakelatch

    with lakelatch.open(url) as table:
        ended = table.cancel_plan(instant)
    if json:
        print_json({"instant": instant, "cancelled": ended})
    else:
        say(f"cancelled {instant}" if ended else f"{instant} was over already")


def save(
    url: Url,
    *,
    at: Annotated[str | None, typer.Option(metavar="INSTANT", help="A past commit; the newest one otherwise.")] = None,
    comment: Annotated[str, typer.Option(help="Kept with it.")] = "",
    json: Json = False,
) -> None:
    """Keep the state of a commit."""
    import lakelatch

    with lakelatch.open(url) as table:
        made = table.savepoint(at, comment=comment)
    if json:
        print_json({"savepoints": [_facts(made)]})
    else:
        say(f"savepoint {made.instant}: {count_text(_files(made), 'file')}")


def saved(url: Url, *, json: Json = False) -> None:
    """List savepoints."""
    import lakelatch

    with lakelatch.open(url) as table:
        found = [_facts(each) for each in table.savepoints()]
    if json:
        print_json({"savepoints": found})
    elif not found:
        say("no savepoint")
    else:
        print_table(list(found[0]), [[str(value) for value in row.values()] for row in found])


def forget(url: Url, instant: Commit, *, json: Json = False) -> None:
    """Delete a savepoint, so that cleans may remove its state."""
    import lakelatch

    with lakelatch.open(url) as table:
        table.delete_savepoint(instant)
    if json:
        print_json({"instant": instant})
    else:
        say(f"deleted savepoint {instant}")


def restore(
    url: Url,
    instant: Commit,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Go back to the state of a commit; every later commit is taken back for good."""
    import lakelatch

    with lakelatch.open(url) as table:
        instant = table.session.time_of(instant, "the commit to restore")
        if not yes:
            later = [each for each in table.timeline().commits if each.requested > instant]
            typer.confirm(
                f"Take back {count_text(len(later), 'commit')} of {table.url} after {instant}? They do not come back",
                abort=True,
                err=True,
            )
        done = table.restore(instant)
    if json:
        print_json(asdict(done))
    elif done.completion is None:
        say(f"nothing has landed after {instant}")
    else:
        say(f"restored to {instant}: took back {count_text(len(done.undone), 'commit')}")


def names(given: str | None) -> list[str] | None:
    """Parse names with commas between them."""
    return None if given is None else [name.strip() for name in given.split(",")]


def _files(savepoint: Savepoint) -> int:
    return sum(len(names) for names in savepoint.files.values())


def _facts(each: Savepoint) -> dict[str, Any]:
    return {
        "instant": each.instant,
        "completion": each.completion,
        "by": each.by,
        "comment": each.comment,
        "files": _files(each),
    }
