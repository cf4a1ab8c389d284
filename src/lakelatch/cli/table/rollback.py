"""``lakelatch rollback``.

JSON: ``rolled_back`` (instants that were ended now) and ``still_open`` (instants whose writers are alive).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import CommitError, InputError
from ...plain_text import visible
from ..options import Json, Url
from ..output import Waiting, count_text, duration_text, print_json, say

if TYPE_CHECKING:
    from ...occ.entries import Begin
    from ...occ.table import Table


def rollback(
    url: Url,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="Only this transaction.")] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="End INSTANT even if its writer is alive.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """End dead writers' transactions and remove what they left.

    Waits for the table's time-out where a writer may still be alive.
    """
    import lakelatch

    if force and instant is None:
        raise InputError("--force needs the one INSTANT to end; `lakelatch describe` lists the open ones")
    with lakelatch.open(url) as table:
        if instant is None:
            ended = _all_dead(table)
        else:
            ended = _one(table, instant, force=force, yes=yes)
        # A plan needs no writer, so it is not among the transactions that are still open.
        still_open = sorted(t for t, begin in table.session.log.catch_up().open.items() if not begin.waits)
    if json:
        print_json({"rolled_back": ended, "still_open": still_open})
        return
    if ended:
        say(f"rolled back {count_text(len(ended), 'transaction')}: {', '.join(ended)}")
    else:
        say("no dead transaction")
    if still_open and instant is None:
        say(f"still open, their writers are alive: {', '.join(still_open)}")


def _all_dead(table: Table) -> list[str]:
    with Waiting("looking for silent writers") as tell:
        return table.rollback_failed_writes(
            wait=True, progress=lambda left: tell(f"watching writers for a sign of life, {duration_text(left)} at most")
        )


def _one(table: Table, instant: str, *, force: bool, yes: bool) -> list[str]:
    table.session.require_log()
    begin = table.session.log.catch_up().open.get(instant)
    if begin is None:
        raise _not_open(table, instant)
    if begin.waits:
        raise InputError(
            f"{instant} is a plan ({begin.action}), which lives without a writer; `lakelatch services cancel {table.url} "
            f"{instant}` ends it",
            instant=instant,
        )
    if force:
        who = begin.writer + (f" on {begin.process.host}, process {begin.process.pid}" if begin.process else "")
        if not yes:
            question = f"End {begin.operation} {instant} of {who}? If it is alive, all its work is lost"
            typer.confirm(visible(question), abort=True, err=True)
        reason = "forced by hand"
    else:
        _refuse_the_living(table, begin)
        reason = "its heartbeat stopped"
    if not table.session.cleaner.roll_back(begin, reason=reason, without_home=force):
        raise _not_open(table, instant)
    return [instant]


def _refuse_the_living(table: Table, begin: Begin) -> None:
    """Watch the writer for the table's time-out. Raise at its first sign of life."""
    from ...occ.liveness import HeartbeatObserver

    settings, env = table.settings, table.env
    watch = HeartbeatObserver(table.store, env)
    watch.silent_for(begin.instant)
    started, quiet = env.monotonic(), 0.0
    with Waiting(f"watching {begin.writer}") as tell:
        while not watch.is_dead(begin, timeout_s=settings.heartbeat_timeout_s):
            before, quiet = quiet, watch.silent_for(begin.instant)
            # The silence shrinks only when a new heartbeat has come.
            if quiet < before:
                after = duration_text(env.monotonic() - started)
                raise CommitError(
                    f"{begin.operation} {begin.instant} was not rolled back: its writer {begin.writer} is alive, "
                    f"it gave a sign of life after {after}. Stop that writer, or use --force",
                    table=table.url,
                    instant=begin.instant,
                )
            left = duration_text(settings.heartbeat_timeout_s - quiet)
            tell(f"watching {begin.writer} for a sign of life, {left} at most")
            env.sleep(min(settings.heartbeat_interval_s / 4, 1.0))


def _not_open(table: Table, instant: str) -> InputError:
    outcome = table.session.log.outcome(instant)
    words = {
        "commit": "it has committed; what has landed is not rolled back",
        "undone": "it has committed, and has left the timeline since, by a restore or an archival",
        "rollback": "it has been rolled back already",
        "abort": "its own writer has aborted it",
    }
    said = words.get(
        outcome or "",
        "the table's log does not know it (`lakelatch timeline` says how far back it tells); a JVM writer's is rolled back "
        "with Hudi's own tools",
    )
    return InputError(f"{instant} is no open transaction of {table.url}: {said}", instant=instant)
