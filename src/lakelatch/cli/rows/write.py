"""``lakelatch upsert``, ``insert`` and ``delete``.

JSON: ``table``, ``operation``, ``given`` (rows of the file), and of what landed ``instant``, ``completion`` (null when
nothing changed), ``inserted``, ``updated``, ``deleted``, ``files``, ``bytes``, ``attempts`` and ``wasted_s``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..output import Bar, Waiting, bytes_text, count_text, duration_text, print_json, say
from .files import format_of, read_rows

if TYPE_CHECKING:
    from ...occ.transaction import WriteResult


def write(operation: str, url: str, file: str, *, kind: str | None, missing: str, zone: str | None, json: bool) -> None:
    """Write the rows of a file into a table, in one transaction that is run again when it loses."""
    import lakelatch

    kind = format_of(file, kind)
    with lakelatch.open(url) as table:
        table.session.refuse_if_unwritable()
        arrived = 0
        with Waiting(f"reading {file}") as tell:

            def seen(more: int) -> None:
                nonlocal arrived
                arrived += more
                tell(f"reading {file}: {arrived:,} rows")

            rows = read_rows(file, kind, table.schema(), seen)
        with Bar() as progress:
            if operation == "delete":
                done = table.delete(rows, progress=progress)
            else:
                verb = table.insert if operation == "insert" else table.upsert
                done = verb(rows, missing=missing, zone=zone, progress=progress)
        place = table.url
    if json:
        counts = {name: getattr(done, name) for name in ("inserted", "updated", "deleted", "files", "bytes")}
        print_json({
            "table": place, "operation": operation, "given": rows.num_rows, "instant": done.instant,
            "completion": done.completion, **counts, "attempts": done.attempts, "wasted_s": done.wasted_s,
        })  # fmt: skip
    elif done.instant is None:
        say(f"nothing to {operation}: {count_text(rows.num_rows, 'row')} given, no change to {place}")
    else:
        _print(done)


def _print(done: WriteResult) -> None:
    counts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    rows = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or "no row changed"
    say(f"{done.instant} landed: {rows}; {count_text(done.files, 'file')} ({bytes_text(done.bytes)})")
    if done.attempts > 1:
        say(f"after {done.attempts} attempts; {duration_text(done.wasted_s)} were wasted")
