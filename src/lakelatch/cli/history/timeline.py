"""``lakelatch timeline``.

JSON: ``table``, ``pruned_to`` (the log has no entries of transactions begun up to there; null where it is whole) and
``instants``, newest first, each with ``requested``, ``completed``, ``action``, ``operation``,
``state`` (requested, inflight, completed; null when its files are gone), ``outcome`` (committed, created for the empty
commit that a table begins with, archived, unpublished, open, planned, pending, rolled back, aborted, taken back, done for
a service), ``writer``, ``duration_s``, ``inserted``, ``updated``, ``deleted``, ``written`` (rows), ``reserved`` (its
present or past reservation, in words), ``reason`` of an end without a commit, and ``note`` of a commit, by its writer. Null
where it is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json, Url
from ..output import duration_text, note_text, print_json, print_table, say, width, wrapped

if TYPE_CHECKING:
    from ...hudi.timeline import CommitMetadata, Instant, Timeline
    from ...occ.entries import Begin, Commit, LogEntry
    from ...occ.table import Table

_WIDE = 120
_AT_ONCE = 200  # instants that a search for notes reads together
_HERE = re.compile(r"^[a-z0-9]+://\S*: ")
_LANDED = ("committed", "created", "archived", "done")
_WRITES = frozenset({"commit", "deltacommit", "replacecommit", "compaction", "clustering", "logcompaction"})


@dataclass(slots=True)
class Row:
    """One transaction or service, as far as it is known."""

    requested: str
    completed: str | None = None
    action: str | None = None
    operation: str | None = None
    state: str | None = None
    outcome: str = "pending"
    writer: str | None = None
    duration_s: float | None = None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    written: int | None = None
    reserved: str | None = None
    reason: str | None = None
    note: dict[str, str] | None = None


def timeline(
    url: Url,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="So many of the newest instants.")] = 20,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE]", help="Only commits with this in their note; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """List what happened to a table, newest first.

    Transactions that were aborted or rolled back are listed as well. Rows: +inserted ~updated -deleted, =written.
    """
    import lakelatch

    with lakelatch.open(url) as table:
        rows = newest(table, limit, [_asked(each) for each in note or ()])
        before = pruned_to(table)
        if json:
            print_json({"table": table.url, "pruned_to": before, "instants": [asdict(row) for row in rows]})
        elif not rows:
            say("no commit has such a note" if note else "nothing has happened to this table yet")
        else:
            _print(rows)
            if before and rows[-1].requested <= before:
                say(
                    wrapped(
                        f"the log of what began up to {before} has been removed: of that, the timeline tells who landed, and "
                        "nothing tells who did not"
                    )
                )


def pruned_to(table: Table) -> str | None:
    """Return the T up to which the log has no entries, because its oldest epochs were removed; None when it is whole."""
    from ...occ.entries import Open

    first = next(table.session.log.entries(), None) if table.writable else None
    return first.top if isinstance(first, Open) and first.slot > 1 else None


def _asked(option: str) -> tuple[str, str | None]:
    key, equals, value = option.partition("=")
    return key, value if equals else None


def newest(table: Table, limit: int, noted: Sequence[tuple[str, str | None]] = ()) -> list[Row]:
    """Return the newest rows by requested time, newest first. Contents are read for these only.

    ``noted``: only of commits whose notes have these keys, and these values where they are not None.
    """
    from ...hudi.timeline import COMMIT_ACTIONS
    from ...occ.entries import Commit

    rows: dict[tuple[str, str], Row] = {}
    seen = table.timeline()
    shown = set(seen.completed)
    archived = [each for each in table.session.history.instants().values() if each not in shown]
    instants: dict[tuple[str, str], Instant] = {}
    for instant in (*archived, *seen.pending, *seen.completed):
        key = (instant.requested, "" if instant.action in _WRITES else instant.action)
        instants[key] = instant
        row = rows[key] = Row(instant.requested, instant.completed, instant.action, state=instant.state)
        if instant.state == "completed":
            done = "committed" if instant in shown else "archived"
            row.outcome = done if instant.action in COMMIT_ACTIONS else "done"
    if table.writable:
        first = min(instants, default=None)
        for entry in table.session.log.entries():
            _add_entry(rows, entry)
            if isinstance(entry, Commit) and entry.empty and (entry.instant, "") == first:
                rows[entry.instant, ""].outcome = "created"
    found: list[Row] = []
    ordered = iter(sorted(rows, reverse=True))
    while len(found) < limit and (keys := list(islice(ordered, _AT_ONCE if noted else min(limit, len(rows))))):
        gone = [each for key in keys if (each := instants.get(key)) and rows[key].outcome == "archived"]
        # At once: each would read a whole file of the history.
        bodies = table.session.history.contents(gone)
        for key in keys:
            _complete(rows[key], instants.get(key), seen, bodies)
        found += [row for row in map(rows.__getitem__, keys) if _has(row, noted)]
    return found[:limit]


def _has(row: Row, noted: Iterable[tuple[str, str | None]]) -> bool:
    known = row.note or {}
    return all(key in known if value is None else known.get(key) == value for key, value in noted)


def _add_entry(rows: dict[tuple[str, str], Row], entry: LogEntry) -> None:
    """Add the log's facts that the timeline lacks: the writer and the outcome."""
    from ...occ.entries import Begin, Commit, End, Open

    match entry:
        case Begin():
            row = rows.setdefault(_key(entry), Row(entry.instant, action=entry.action))
            row.operation, row.writer = entry.operation, entry.writer
            row.reserved = str(entry.reserved) if entry.reserved else None
            if row.outcome == "pending":
                row.outcome = "planned" if entry.plan is not None else "open"
        case Commit():
            _add_commit(rows, entry)
        case End() if (row := _row_of(rows, entry.instant)).outcome not in _LANDED:
            row.outcome = "rolled back" if entry.kind == "rollback" else "aborted"
            # The first sentence of a conflict names the winner; the reader knows the table already.
            reason = _HERE.sub("", entry.reason).partition(". ")[0]
            row.reason = f"{reason} (by {entry.who})" if entry.kind == "rollback" else reason
        case Open():
            for begin in entry.open:
                _add_entry(rows, begin)


def _add_commit(rows: dict[tuple[str, str], Row], entry: Commit) -> None:
    from ...hudi.timeline import parse
    from ...occ.entries import note_in

    if entry.named:
        # Drops the row of its begin, which has another time than the action it names.
        rows.pop(_key(entry), None)
    row = rows.setdefault(_key(entry, entry.named), Row(entry.named or entry.instant, action=entry.action))
    row.operation, row.writer = entry.operation, entry.writer
    row.note = note_in((entry.metadata or {}).get("extra", {})) or None
    if not entry.shown:  # shows itself by what is gone
        row.outcome, row.completed = "done", entry.completion
    elif row.outcome not in _LANDED:
        # The log decides a commit; its writer died, or still is, between that entry and the file in the timeline.
        row.outcome, row.completed = "unpublished", entry.completion
    if (echo := rows.get((entry.schema_under, ""))) and entry.echo:
        echo.writer, echo.reason = entry.writer, f"says the columns of {entry.instant} again, for readers that go by T"
    for name in () if entry.operation == "ARCHIVE" else entry.undone:
        gone = parse(name, layout=2)
        taken = rows.get((gone.requested, "" if gone.action in _WRITES else gone.action)) if gone else None
        if taken is not None:
            taken.outcome, taken.reason = "taken back", f"by {entry.operation.lower()} {entry.instant}"


def _key(entry: Begin | Commit, named: str = "") -> tuple[str, str]:
    return (named or entry.instant, "" if entry.action in _WRITES else entry.action)


def _row_of(rows: dict[tuple[str, str], Row], instant: str) -> Row:
    from ...hudi.timeline import ACTIONS

    found = (rows.get((instant, action)) for action in ("", *sorted(ACTIONS - _WRITES)))
    return next(filter(None, found), None) or rows.setdefault((instant, ""), Row(instant))


def _complete(row: Row, instant: Instant | None, seen: Timeline, archived: Mapping[Instant, bytes]) -> None:
    from ...errors import CorruptTableError
    from ...hudi.timeline import COMMIT_ACTIONS, decode_commit, file_name, to_epoch_ms

    if row.completed:
        row.duration_s = round((to_epoch_ms(row.completed) - to_epoch_ms(row.requested)) / 1000, 3)
    if instant is None or instant.state != "completed" or instant.action not in COMMIT_ACTIONS:
        return
    try:
        body = archived.get(instant)
        known = None if body is None else decode_commit(body, name=file_name(instant), layout=2, table=seen.config.name)
        _count(row, known or seen.metadata(instant))
    except CorruptTableError as e:
        row.reason = str(e).partition(". ")[0]


def _count(row: Row, content: CommitMetadata) -> None:
    from ...occ.entries import COVERS, note_in

    row.operation = content.operation or row.operation
    row.inserted = sum(stat.num_inserts for stat in content.stats)
    row.updated = sum(stat.num_updates for stat in content.stats)
    row.deleted = sum(stat.num_deletes for stat in content.stats)
    row.written = sum(stat.num_writes for stat in content.stats)
    row.note = note_in(content.extra) or None
    if covered := content.extra.get(COVERS):
        row.reason = f"stands above {covered}, so that compactions of Hudi's read its log files"


def _print(rows: list[Row]) -> None:
    wide = width() >= _WIDE
    headers = ["requested", "completed", "operation", "outcome", "took", "rows", "writer"]
    if wide:
        headers[2:2] = ["action", "state"]
    if any(row.reserved for row in rows) and wide:
        headers.append("reserved")
    if any(row.reason for row in rows) and wide:
        headers.append("why")
    if any(row.note for row in rows) and wide:
        headers.append("note")
    print_table(
        headers,
        [_cells(row, headers, wide=wide) for row in rows],
        right=("took",),
        fold=("operation", "outcome", "writer", "reserved", "why", "note", "rows"),
    )
    if not wide:
        for row in rows:
            if row.reason:
                typer.echo(wrapped(f"{row.requested} {row.outcome}: {row.reason}"))
            if row.note:
                typer.echo(wrapped(f"{row.requested} noted: {note_text(row.note)}"))


def _cells(row: Row, headers: list[str], *, wide: bool) -> list[str]:
    cells = {
        "requested": row.requested,
        "completed": (row.completed or "-") if wide else _time_of_day(row.completed, row.requested),
        "action": row.action or "-",
        "state": row.state or "-",
        "operation": (row.operation or row.action or "-").lower(),
        "outcome": row.outcome,
        "took": duration_text(row.duration_s) if row.duration_s is not None else "-",
        "rows": _changes(row),
        "writer": row.writer or "-",
        "reserved": row.reserved or "-",
        "why": row.reason or "",
        "note": note_text(row.note or {}),
    }
    return [cells[header] for header in headers]


def _time_of_day(time: str | None, requested: str) -> str:
    """Return the completion time, on a narrow terminal without its day where that is the day of the request."""
    if not time:
        return "-"
    clock = f"{time[8:10]}:{time[10:12]}:{time[12:14]}.{time[14:]}"
    return clock if time[:8] == requested[:8] else time


def _changes(row: Row) -> str:
    if row.written is None:
        return "-"
    parts = [f"{sign}{count}" for sign, count in (("+", row.inserted), ("~", row.updated), ("-", row.deleted)) if count]
    return " ".join(parts) or f"={row.written}"
