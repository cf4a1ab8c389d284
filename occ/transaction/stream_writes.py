"""Events of a stream: checked and put into log files. Nothing is read, so nothing that lands meanwhile is in the way.

Memory: the rows handed in, and their file groups' log files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.table import partition_paths, shown
from ...streams import CLEAR, CLEARED, DELETED, IGNORE, UPSERT, Stream, of_name
from ..staging import Files, Incoming, StreamPlan, append_events
from .write import Write, Writer

if TYPE_CHECKING:
    from ..session import Session


def upsert(session: Session, name: str, given: Any, zone: str | None) -> Write:
    """See `TableStream.upsert`."""
    incoming = Incoming(given, session.url, session.config, zone=zone)
    return Write("upsert", lambda txn: _stage(txn, name, incoming, deletes=False))


def delete(session: Session, name: str, given: Any, zone: str | None) -> Write:
    """See `TableStream.delete`."""
    incoming = Incoming(given, session.url, session.config, zone=zone)
    return Write("delete", lambda txn: _stage(txn, name, incoming, deletes=True))


@dataclass(frozen=True)
class TransactionStream:
    """Writes the events of one stream in a transaction; those of several streams land together."""

    txn: Writer
    name: str

    def upsert(self, rows: Any, *, zone: str | None = None) -> None:
        """See `TableStream.upsert`."""
        upsert(self.txn.session, self.name, rows, zone).stage(self.txn)

    def delete(self, keys: Any, *, zone: str | None = None) -> None:
        """See `TableStream.delete`."""
        delete(self.txn.session, self.name, keys, zone).stage(self.txn)


def _stage(txn: Writer, name: str, incoming: Incoming, *, deletes: bool) -> None:
    session, workspace = txn.session, txn.workspace
    workspace.refuse_merge("stream")
    workspace.write_events()
    session.secure_streams()
    stream, schema = of_name(session.streams, name, session.url), workspace.written_schema
    assert schema is not None, "streams are declared of columns"
    rows = checked(incoming.source(schema), stream, session, deletes=deletes)
    if not rows.num_rows or (deletes and stream.on_delete == IGNORE):
        return
    workspace.next_write()
    spec, now = workspace.file_spec(schema), workspace.current
    kind = UPSERT if not deletes else CLEARED if stream.on_delete == CLEAR else DELETED
    slices = {each: tuple(now.file_slices(each)) for each in partition_paths(rows, session.config).unique().to_pylist()}
    with workspace.staging(), Files(spec, 0, threads=session.threads) as files:
        append_events(StreamPlan(spec, stream, kind, slices), rows, files)
        workspace.add(files.stats())


def checked(rows: pa.Table, stream: Stream, session: Session, *, deletes: bool) -> pa.Table:
    """The columns that an event has.

    Raises:
        InputError: one is missing, there are others, or an event has no ordering value.
    """
    config, url = session.config, session.url
    if not (rows.num_rows or rows.num_columns):
        return rows
    keys = list(dict.fromkeys([*config.record_key_fields, *config.partition_fields]))
    wanted = [*keys, stream.ordering, *(() if deletes else stream.columns)]
    if missing := [each for each in wanted if each not in rows.column_names]:
        raise InputError(
            f"the rows lack {', '.join(missing)} of stream {stream.name!r} of {url}: a write carries all columns of its stream, "
            "or it would make later values of the others too old; nothing was written",
            columns=missing,
        )
    if not deletes and (more := [each for each in rows.column_names if each not in wanted]):
        other = next((each.name for each in session.streams if more[0] in each.own), "")
        whose = f"which stream {other!r} writes" if other else "which it does not write"
        raise InputError(
            f"the rows of stream {stream.name!r} of {url} have {', '.join(more)}, {whose}; leave it out, or give "
            "it to the stream; nothing was written",
            columns=more,
        )
    order = rows.column(stream.ordering)
    strange = pc.is_nan(order) if pa.types.is_floating(order.type) else pa.scalar(value=False)
    bad = pc.or_kleene(pc.is_null(order), pc.fill_null(strange, fill_value=False))
    if pc.any(bad, min_count=0).as_py():
        some = rows.filter(bad).column(keys[0])
        raise InputError(
            f"{len(some)} rows of stream {stream.name!r} of {url} have no {stream.ordering} ({keys[0]} {shown(some)}), by which "
            "its events are ordered; nothing was written",
            column=stream.ordering,
        )
    return rows.select(wanted)
