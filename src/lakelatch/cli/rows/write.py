"""``lakelatch upsert``, ``insert`` and ``delete``.

JSON: ``table``, ``operation``, ``given`` (rows of the file), and of the commit ``instant``, ``completion`` (null when
nothing changed), ``inserted``, ``updated``, ``deleted``, ``files``, ``bytes``, ``attempts``, ``wasted_s``, and
``repeated``: whether the batch was committed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError
from ..output import Bar, Waiting, bytes_text, count_text, duration_text, print_json, say
from .files import format_of, read_rows

if TYPE_CHECKING:
    from ...occ.transaction import WriteResult


def write(
    operation: str,
    url: str,
    file: str,
    *,
    kind: str | None,
    missing: str,
    new_columns: str,
    zone: str | None,
    batch: str | None,
    json: bool,
) -> None:
    """Write the rows of a file into a table, in one transaction that is retried when it loses."""
    import lakelatch

    kind, numbered = format_of(file, kind), None if batch is None else _batch(batch)
    with lakelatch.open(url) as table:
        # Before the file is read, which may take minutes.
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
                done = table.delete(rows, progress=progress, batch=numbered)
            else:
                verb = table.insert if operation == "insert" else table.upsert
                done = verb(
                    rows, missing=missing, new_columns=new_columns, zone=zone, progress=progress, batch=numbered
                )
        place = table.url
    if json:
        counts = {name: getattr(done, name) for name in ("inserted", "updated", "deleted", "files", "bytes")}
        print_json({
            "table": place, "operation": operation, "given": rows.num_rows, "instant": done.instant,
            "completion": done.completion, **counts, "attempts": done.attempts, "wasted_s": done.wasted_s,
            "repeated": done.repeated,
        })  # fmt: skip
    elif done.repeated:
        say(f"batch {batch} landed before; nothing was written again")
    elif done.instant is None:
        say(f"nothing to {operation}: {count_text(rows.num_rows, 'row')} given, no change to {place}")
    else:
        _print(done)


def _batch(given: str) -> tuple[str, int]:
    source, colon, number = given.rpartition(":")
    if not colon or not number.isascii() or not number.isdigit():
        raise InputError(
            f"--batch {given!r} is no batch; give a source and a number, as nightly-load:17. Nothing was written"
        )
    return source, int(number)


def _print(done: WriteResult) -> None:
    counts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    rows = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or "no row changed"
    say(f"{done.instant} landed: {rows}; {count_text(done.files, 'file')} ({bytes_text(done.bytes)})")
    if done.attempts > 1:
        say(f"after {done.attempts} attempts; {duration_text(done.wasted_s)} were wasted")
