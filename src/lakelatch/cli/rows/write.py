"""``lakelatch upsert``, ``insert``, ``delete``, ``streams retract`` and ``streams overwrite``.

JSON: ``table``, ``operation``, ``given`` (rows of the file), and of the commit ``instant``, ``completion`` (null when
nothing changed), ``inserted``, ``updated``, ``deleted``, ``files``, ``bytes``, ``attempts``, ``wasted_s``, and
``repeated``: whether the batch was committed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...errors import InputError
from ...progress import drawn
from ..options import Json, Url
from ..output import Waiting, bytes_text, count_text, duration_text, print_json, say
from .files import format_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...occ.transaction import WriteResult


File = Annotated[
    str, typer.Argument(metavar="FILE", help="Parquet, CSV, JSON lines or Arrow IPC; - is standard input.")
]
FileFormat = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="parquet, csv, json or arrow; as FILE ends.")
]
Missing = Annotated[str, typer.Option(help="Columns that the file lacks: refuse, or null.")]
NewColumns = Annotated[str, typer.Option(help="Columns that the table lacks: refuse, or add.")]
Zone = Annotated[str | None, typer.Option(help="Of times that name none, as UTC or Europe/Rome.")]
SourceBatch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="SOURCE:NUMBER",
        help="Only if no batch of that source with this number or a larger one has landed.",
    ),
]
Noted = Annotated[
    list[str] | None,
    typer.Option("--note", metavar="KEY=VALUE", help="Stored with the commit; repeatable."),
]

StreamName = Annotated[
    str | None,
    typer.Option("--stream", metavar="NAME", help="As events of this stream, which carry all of its columns."),
]


def upsert(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    missing: Missing = "refuse",
    new_columns: NewColumns = "refuse",
    zone: Zone = None,
    batch: SourceBatch = None,
    note: Noted = None,
    stream: StreamName = None,
    json: Json = False,
) -> None:
    """Write the rows of a file: they replace those with the same key, and new keys are inserted."""
    columns = {"missing": missing, "new_columns": new_columns, "zone": zone}
    _write("upsert", url, file, format, batch, note, stream, json=json, **columns)


def insert(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    missing: Missing = "refuse",
    new_columns: NewColumns = "refuse",
    zone: Zone = None,
    batch: SourceBatch = None,
    note: Noted = None,
    json: Json = False,
) -> None:
    """Add the rows of a file; keys that the table has already are not looked up, but in a table with buckets."""
    _write("insert", url, file, format, batch, note, json=json, missing=missing, new_columns=new_columns, zone=zone)


def delete(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    batch: SourceBatch = None,
    note: Noted = None,
    stream: StreamName = None,
    json: Json = False,
) -> None:
    """Delete the rows whose keys are in a file; its other columns are not looked at. Events need their ordering column."""
    _write("delete", url, file, format, batch, note, stream, json=json)


def retract(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="Its name.")],
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    batch: SourceBatch = None,
    note: Noted = None,
    json: Json = False,
) -> None:
    """Take events of a stream back, by their ids in a file. It has the keys of their rows, too."""
    _write("retract", url, file, format, batch, note, name, json=json)


def overwrite(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="Its name.")],
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    partition: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="This one, with events or without, as day=1; repeatable.")
    ] = None,
    batch: SourceBatch = None,
    note: Noted = None,
    json: Json = False,
) -> None:
    """Put the events of a file in place of all that a stream has said in their partitions. Other streams' parts stay."""
    _write("overwrite", url, file, format, batch, note, name, json=json, partitions=partition or None)


def _write(
    operation: Literal["upsert", "insert", "delete", "retract", "overwrite"], url: str, file: str, kind: str | None,
    batch: str | None, note: list[str] | None, stream: str | None = None, *, json: bool, **columns: Any,
) -> None:  # fmt: skip
    """Write the rows of a file into a table, in one transaction that is retried when it loses."""
    import lakelatch

    kind, numbered = format_of(file, kind), None if batch is None else _batch(batch)
    noted = _note(note or [])
    if stream is not None and any(columns.pop(name, "refuse") != "refuse" for name in ("missing", "new_columns")):
        raise InputError(
            f"--missing and --new-columns do not go with --stream {stream}: an event carries all columns of its stream; "
            "`lakelatch streams add` gives it more. Nothing was written"
        )
    with lakelatch.open(url) as table:
        target = table if stream is None else table.stream(stream)
        # Before the file is read, which may take minutes.
        table.session.refuse_if_unwritable()
        arrived = 0
        with Waiting(f"reading {file}") as tell:

            def seen(more: int) -> None:
                nonlocal arrived
                arrived += more
                tell(f"reading {file}: {arrived:,} rows")

            rows = read_rows(file, kind, table.schema(), seen)
        with drawn(True, text=False) as progress:
            verb: Callable[..., WriteResult] = getattr(target, operation)
            done = verb(rows, progress=progress, batch=numbered, note=noted, **columns)
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


def _note(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or key in found:
            what = "comes twice" if equals else "is no note; give a key and a text, as job=nightly"
            raise InputError(f"--note {each!r} {what}. Nothing was written")
        found[key] = value
    return found


def _print(done: WriteResult) -> None:
    counts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    rows = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or "no row changed"
    say(f"{done.instant} landed: {rows}; {count_text(done.files, 'file')} ({bytes_text(done.bytes)})")
    if done.attempts > 1:
        say(f"after {done.attempts} attempts; {duration_text(done.wasted_s)} were wasted")
