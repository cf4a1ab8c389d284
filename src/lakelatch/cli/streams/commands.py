"""``lakelatch streams``.

JSON of ``add``, ``alter``, ``drop``, ``undrop``, and of ``list`` a list of it: ``name``, ``columns``, ``ordering``,
``on_delete``, ``null``, ``foreign_readers``, ``defaults`` (``column``, ``value``, ``since``), ``merge`` (pairs of column and
merger), ``event_id`` and ``events`` (else empty), ``dropped``, and ``edition``, how often it was changed. Of ``explain``: a
list, one for each partition that knows the key, of ``partition``, ``file_id``, ``there``, ``cells`` (``column``, ``value``,
``stream``, ``ordering``, ``instant``, ``completion``, ``slot``, ``why``, ``beat``: pairs of value and T, ``parts``: value,
ordering value and T of each contribution) and ``events`` (``stream``, ``kind``, ``ordering``, ``instant``, ``completion``,
``slot``, ``counted``, ``late``). ``slot`` is null for values of base files, and where the log does not reach back so far.
Values that JSON lacks are texts. Of ``adopt``: ``streams`` (as above), ``bucket_count``, ``changes`` (sentences), ``files`` and
``bytes`` that are rewritten, and ``done``.
"""

from __future__ import annotations

from dataclasses import asdict
from json import loads as parse
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ...errors import InputError
from ...progress import drawn
from ..options import Json, StreamOption, Url, stream_of
from ..output import bytes_text, count_text, print_json, print_table, say

if TYPE_CHECKING:
    from ...arguments import NullEvents, OnDelete
    from ...occ.table import Table
    from ...streams import RowHistory, Stream


def list_(url: Url, *, json: Json = False) -> None:
    """List the streams of a table."""
    import lakelatch

    from ...streams import described

    with lakelatch.open(url) as table:
        found = table.streams
    if json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        say(f"{each.name}: {described(each)}")
    if not found:
        say("no streams")


def add(
    url: Url,
    name: Annotated[str, typer.Argument(help="Of the stream.")],
    *,
    columns: Annotated[str, typer.Option(metavar="A,B,...", help="What it writes.")],
    ordering: Annotated[str, typer.Option(help="The column that orders its events; several as A,B.")],
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
    event_id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The id of each event, by which it can be taken back.")
    ] = None,
    events: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Where a row keeps its events; goes with --event-id.")
    ] = None,
    json: Json = False,
) -> None:
    """Declare a stream, or give one more columns."""
    import lakelatch

    mergers = dict(_pair("--merge", each) for each in merge or [])
    with lakelatch.open(url) as table:
        pairs = [_pair("--default", each) for each in default or []]
        made = table.stream(
            name,
            columns=columns.split(","),
            ordering=ordering.split(",") if "," in ordering else ordering,
            on_delete=cast("OnDelete", on_delete),
            null=cast("NullEvents", null),
            default={column: _value(table, column, said) for column, said in pairs} or None,
            merge=mergers or None,
            foreign_readers=foreign_readers,
            event_id=event_id,
            events=events,
        ).declaration
    _tell(made, json=json)


def adopt(
    url: Url,
    *,
    stream: StreamOption = None,
    bucket_count: Annotated[
        int | None, typer.Option(help="Of a table without buckets; events of a bucket are merged together; else 8.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without this the plan is printed, and nothing changed.")
    ] = False,
    json: Json = False,
) -> None:
    """Give a filled table streams: print what has to change, and with --yes change it.

    One that was interrupted goes on where it stopped. Other jobs may read and write until the streams are declared.
    """
    import lakelatch

    streams = dict(map(stream_of, stream or []))
    with lakelatch.open(url) as table, drawn(yes, text=not json) as progress:
        found = table.adopt_streams(streams, bucket_count=bucket_count, dry_run=not yes, progress=progress)
    if json:
        print_json(asdict(found))
        return
    for each in found.changes:
        say(each)
    if found.files:
        say(f"{count_text(found.files, 'file')} rewritten, {bytes_text(found.bytes)}")
    say("done" if found.done else "nothing was changed yet: say --yes")


def alter(
    url: Url,
    name: Annotated[str, typer.Argument(help="Of the stream.")],
    *,
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="What stands in rows that appear from now on; repeatable."),
    ] = None,
    no_default: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Rows that appear from now on have none; repeatable.")
    ] = None,
    null: Annotated[str | None, typer.Option(help="keep or write, of events from now on.")] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=MERGER", help="While there was no event; last for none; repeatable."),
    ] = None,
    foreign_readers: Annotated[bool | None, typer.Option(help="As of streams add.")] = None,
    json: Json = False,
) -> None:
    """Change a stream: its defaults, null rule or mergers. Events that were written stay what they are."""
    import lakelatch

    mergers, pairs = (
        dict(_pair(option, each) for each in said or [])
        for option, said in (("--merge", merge), ("--default", default))
    )
    with lakelatch.open(url) as table:
        defaults = {column: _value(table, column, said) for column, said in pairs.items()}
        made = table.stream(name).alter(
            default=dict.fromkeys(no_default or ()) | defaults,
            null=cast("NullEvents | None", null),
            merge=mergers or None,
            foreign_readers=foreign_readers,
        )
    _tell(made, json=json)


def drop(url: Url, name: Annotated[str, typer.Argument(help="Of the stream.")], *, json: Json = False) -> None:
    """Drop a stream; what it has written stays. It takes no more events."""
    import lakelatch

    with lakelatch.open(url) as table:
        made = table.stream(name).drop()
    _tell(made, json=json)


def undrop(url: Url, name: Annotated[str, typer.Argument(help="Of the stream.")], *, json: Json = False) -> None:
    """Let a dropped stream take events again. Its defaults are gone."""
    import lakelatch

    with lakelatch.open(url) as table:
        made = table.stream(name).undrop()
    _tell(made, json=json)


def _tell(stream: Stream, *, json: bool) -> None:
    from ...streams import described

    if json:
        print_json(asdict(stream))
    else:
        say(f"{stream.name}: {described(stream)}")


def _pair(option: str, said: str) -> tuple[str, str]:
    column, equals, value = said.partition("=")
    if not (column and equals):
        raise InputError(f"{option} {said!r} names no column and value; write {option} COLUMN=VALUE")
    return column, value


def _value(table: Table, column: str, said: str) -> Any:
    """Parse a number or truth value where the column holds such, as in Python; otherwise return the text."""
    import pyarrow as pa

    schema = table.session.schema()
    kind = schema.field(column).type if schema is not None and column in schema.names else pa.string()
    if not any(is_kind(kind) for is_kind in (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)):
        return said
    try:
        return parse(said)
    except (ValueError, RecursionError):
        return said


def explain(
    url: Url,
    key: Annotated[str, typer.Argument(help="The record key; `a:1,b:2` where it has several columns.")],
    *,
    partition: Annotated[str | None, typer.Option(help="Only in this partition, by its path.")] = None,
    json: Json = False,
) -> None:
    """Tell of each column of a row which event set it, and what that replaced."""
    import lakelatch

    with lakelatch.open(url) as table:
        found = table.explain_row(key, partition=partition)
        slots = _slots(table)
    if json:
        print_json([_plain(each, slots) for each in found])
        return
    for each in found:
        _print(each, slots)
    if not found:
        say(f"no row and no event of {key}")


def _slots(table: Table) -> dict[str, int]:
    from ...occ.entries import Commit

    return {each.instant: each.slot for each in table.session.log.entries() if isinstance(each, Commit)}


def _plain(row: RowHistory, slots: dict[str, int]) -> dict[str, Any]:
    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: told(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [told(each) for each in value]
        return value if isinstance(value, bool | int | float | str | None) else str(value)

    plain: dict[str, Any] = told(asdict(row))
    for each in (*plain["cells"], *plain["events"]):
        each["slot"] = slots.get(each["instant"]) if each["completion"] else None
    return plain


def _print(row: RowHistory, slots: dict[str, int]) -> None:
    place = f"partition {row.partition}, " if row.partition else ""
    say(f"{place}file group {row.file_id}: " + ("a row" if row.there else "no row"))
    if row.there:
        headers = ["column", "value", "stream", "ordering", "slot", "why", "beat", "made of"]
        cells = [
            [
                each.column,
                repr(each.value),
                each.stream,
                "" if each.ordering is None else str(each.ordering),
                str(slots.get(each.instant, "")) if each.completion else "",
                each.why,
                ", ".join(f"{value!r} of {instant}" for value, instant in each.beat),
                ", ".join(_part(*part) for part in each.parts),
            ]
            for each in row.cells
        ]
        print_table(headers, cells, right=["slot"], fold=["value", "why", "beat", "made of"])
    if row.events:
        say()
        events = [
            [
                str(slots.get(each.instant, "")),
                each.stream,
                each.kind,
                str(each.ordering),
                each.instant,
                "late" if each.late else "" if each.counted else "too old",
            ]
            for each in row.events
        ]
        print_table(["slot", "stream", "event", "ordering", "T", ""], events, right=["slot"])


def _part(value: Any, ordering: Any, instant: str) -> str:
    at = "" if ordering is None else f" at {ordering}"
    return f"{value!r}{at}" + (f" of {instant}" if instant else " by default")
