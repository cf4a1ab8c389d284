"""Events of a stream: check them and write them into log files. Nothing is read, so no other events conflict.

An overwrite reads the partitions that it replaces, and conflicts with all that is written there meanwhile.

Memory: the rows passed in, and their file groups' log files; of an overwrite the rows of a file group, twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import OperationName, meant, suggesting
from ...errors import ConflictError, InputError
from ...hudi.table import partition_list, partition_paths, shown
from ...hudi.timeline import WriteStat
from ...streams import CLEAR, CLEARED, DELETED, RETRACTED, UPSERT, needs_batch, of_name
from ..incoming import Incoming, refuse_nulls
from ..session import known_partition, listed, partition_path_of
from ..staging import StreamPlan, TaskFiles, append_events, replace_events, write_bucket
from . import row_writes
from .replacing import partitions_of, replace_with
from .row_writes import Received, Write, Writer

if TYPE_CHECKING:
    from ..session import Partition, Session


Verb = Literal["upsert", "delete", "retract", "overwrite"]
OPERATIONS: Mapping[Verb, OperationName] = {
    "upsert": "upsert", "delete": "delete", "retract": "upsert", "overwrite": "insert_overwrite",
}  # fmt: skip


def write_of(
    verb: Verb,
    session: Session,
    name: str,
    given: Any,
    zone: str | None,
    partitions: Iterable[Partition] | None = None,
) -> Write:
    """Return a write of events. See `TableStream`; ``partitions`` are those of an overwrite."""
    incoming = Incoming(given, session.url, session.config, zone=zone)
    named = None if partitions is None else listed(partitions)

    def staged(txn: Writer) -> None:
        stage(txn, name, incoming, verb, named)

    return Write(OPERATIONS[verb], staged, Received(session, incoming, incoming.source))


def delete_all(session: Session, partition: Partition | None) -> Write:
    """See `Transaction.delete_all`. In a table with streams it replaces the file groups by empty ones."""
    if not session.streams:
        return row_writes.delete_all(partition)

    def staged(txn: Writer) -> None:
        workspace, path, schema = txn.workspace, None, txn.workspace.written_schema
        workspace.refuse_unless_overwrite("delete_all", "delete_partition", "insert_overwrite")
        workspace.next_write()
        assert schema is not None, "streams are declared of columns"
        if partition is not None:
            path = partition_path_of(session.url, session.config, schema, partition)
            path = known_partition(session.store, session.config, workspace.current, path)
        with workspace.replacing_events():
            spec, slices = workspace.file_spec(schema), workspace.current.file_slices(path)
            empty = spec.schema.empty_table()
            replace_with(txn, [path], lambda: [write_bucket(spec, each, empty, {}) for each in slices])

    return Write("delete_partition", staged)


@suggesting
@dataclass(frozen=True)
class TransactionStream:
    """Writes the events of one stream in a transaction; events of several streams commit together."""

    txn: Writer
    name: str

    def upsert(self, rows: Any, *, zone: str | None = None) -> None:
        """See `TableStream.upsert`."""
        write_of("upsert", self.txn.session, self.name, rows, zone).stage(self.txn)

    def delete(self, keys: Any, *, zone: str | None = None) -> None:
        """See `TableStream.delete`."""
        write_of("delete", self.txn.session, self.name, keys, zone).stage(self.txn)

    def retract(self, events: Any, *, zone: str | None = None) -> None:
        """See `TableStream.retract`."""
        write_of("retract", self.txn.session, self.name, events, zone).stage(self.txn)

    def overwrite(self, rows: Any, *, partitions: Iterable[Partition] | None = None, zone: str | None = None) -> None:
        """See `TableStream.overwrite`; in a transaction begun as ``insert_overwrite``."""
        write_of("overwrite", self.txn.session, self.name, rows, zone, partitions).stage(self.txn)


def stage(
    txn: Writer, name: str, incoming: Incoming, verb: Verb, named: Collection[Partition] | None = None
) -> list[WriteStat]:
    """Write events into files of the transaction, and return their statistics. ``named``: the partitions of an overwrite."""
    if verb == "overwrite":
        with txn.workspace.replacing_events():
            plan = plan_of(txn, name, verb)
            rows = checked(plan, incoming.source(plan.spec.schema), txn.session.url)
            written = set(partition_list(rows, txn.session.config)) if rows.num_rows else set()
            wanted = partitions_of(txn.session, written, named, plan.spec.schema)
            slices = {each: tuple(txn.workspace.current.file_slices(each)) for each in wanted}
            return replace_with(txn, wanted, lambda: replace_events(replace(plan, slices=slices), rows))
    plan, config, workspace = plan_of(txn, name, verb), txn.session.config, txn.workspace
    rows = checked(plan, incoming.source(plan.spec.schema), txn.session.url)
    if not rows.num_rows or plan.idle:
        return []
    here = partition_paths(rows, config).unique().to_pylist()
    plan = replace(plan, slices={each: tuple(workspace.current.file_slices(each)) for each in here})
    with workspace.staging(), TaskFiles(plan.spec, 0, threads=txn.session.threads, report=workspace.report) as files:
        append_events(plan, rows, files)
        stats = files.stats()
        workspace.add(stats)
    return stats


def plan_of(txn: Writer, name: str, verb: Verb) -> StreamPlan:
    """Begin a write of events of this stream in the transaction, and return its plan, without slices yet."""
    session, workspace = txn.session, txn.workspace
    if verb == "overwrite":
        workspace.refuse_unless_overwrite("overwrite", "insert_overwrite")
    else:
        workspace.refuse_merge("stream")
        workspace.write_events()
    session.secure_streams()
    if verb != "overwrite" and workspace.changes.operation.action != "deltacommit":
        rule = "the table became one with streams since, whose events are commits of another kind"
        raise ConflictError.without_winner(
            f"{session.url}: {txn.instant} cannot write events: {rule}. Nothing of it landed; run it again",
            table=session.url,
            instant=txn.instant,
            winner_op="setting",
            rule=rule,
        )
    stream, schema = of_name(session.streams, name, session.url), workspace.written_schema
    assert schema is not None, "streams are declared of columns"
    if stream.dropped:
        raise InputError(
            f"stream {name!r} of {session.url} was dropped, and takes no events; nothing was written. `undrop` lets it go on"
        )
    if verb == "retract" and not stream.event_id:
        raise InputError(
            f"stream {name!r} of {session.url} declares no event_id, and its merged values do not tell one event from another, "
            "so none can be taken back; nothing was written. Send an event that corrects it, or declare a stream that keeps its "
            "events (event_id=..., events=...)"
        )
    # Sent again, an overwrite replaces what it wrote.
    if workspace.batch is None and verb != "overwrite" and (column := needs_batch(stream, schema)):
        raise InputError(
            f"stream {name!r} of {session.url} merges {column} by {dict(stream.merge)[column]}, so events that are sent again "
            'would count twice; give the write the number of its batch, as batch=("web log", 17), or hand sink() to foreachBatch '
            "(docs/exactly-once.md); nothing was written",
            column=column,
        )
    workspace.next_write()
    cleared = CLEARED if stream.on_delete == CLEAR else DELETED
    kind = {"retract": RETRACTED, "delete": cleared}.get(verb, UPSERT)
    spec = workspace.file_spec(schema)
    required = spec.required
    if verb != "overwrite":
        # Log files have nulls in columns outside the stream, and deletes in all columns: only `checked` enforces not null.
        spec = replace(spec, required=())
    return StreamPlan(spec, stream, kind, required=required)


def checked(plan: StreamPlan, rows: pa.Table, url: str) -> pa.Table:
    """Return the rows with an event's columns only.

    Raises:
        InputError: a column is missing or foreign, an event has no ordering value or id, or is null in a column declared not
            null.
    """
    stream, config, upserts = plan.stream, plan.spec.config, plan.kind == UPSERT
    if not (rows.num_rows or rows.num_columns):
        return rows
    keys = list(dict.fromkeys([*config.record_key_fields, *config.partition_fields]))
    told = [stream.event_id] if plan.kind == RETRACTED else stream.ordered_by
    wanted = [*keys, *told, *(stream.columns if upserts else ())]
    if missing := [each for each in wanted if each not in rows.column_names]:
        unknown = [each for each in rows.column_names if each not in plan.spec.schema.names]
        hints = "".join(f" ({name!r}: {hint})" for name in unknown if (hint := meant(name, missing)))
        raise InputError(
            f"the rows lack {', '.join(missing)}{hints} of stream {stream.name!r} of {url}: a write carries all columns of its "
            "stream, or it would make later values of the others too old; nothing was written",
            columns=missing,
        )
    if upserts and (more := [each for each in rows.column_names if each not in wanted]):
        other = next((each.name for each in plan.spec.streams if more[0] in each.own), "")
        whose = f"which stream {other!r} writes" if other else "which it does not write"
        whose = "which it fills itself" if more[0] == stream.events else whose
        raise InputError(
            f"the rows of stream {stream.name!r} of {url} have {', '.join(more)}, {whose}; leave it out, or give "
            "it to the stream; nothing was written",
            columns=more,
        )
    for name in dict.fromkeys((*told, *([stream.event_id] if upserts and stream.event_id else ()))):
        order = rows.column(name)
        strange = pc.is_nan(order) if pa.types.is_floating(order.type) else pa.scalar(value=False)
        bad = pc.or_kleene(pc.is_null(order), pc.fill_null(strange, fill_value=False))
        if pc.any(bad, min_count=0).as_py():
            some = rows.filter(bad).column(keys[0])
            raise InputError(
                f"{len(some)} rows of stream {stream.name!r} of {url} have no {name} ({keys[0]} {shown(some)}), by which its "
                f"events are {'told apart' if name == stream.event_id else 'ordered'}; nothing was written",
                column=name,
            )
    refuse_nulls(rows, [each for each in plan.required if each in wanted], config)
    return rows.select(wanted)
