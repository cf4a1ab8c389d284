"""Writing rows into new files: beside the stored ones (insert), or replacing them (overwrite)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import InputError
from ...hudi.table import partition_list
from ...hudi.timeline import WriteStat
from ..incoming import Incoming
from ..session import Partition, listed, partition_path_of, refuse_misspelled
from ..staging import TaskFiles, WritePlan, apply
from .row_writes import Received, Write, Writer, stage_upsert

if TYPE_CHECKING:
    from ...arguments import OperationName
    from ..session import Session


def _incoming(session: Session, given: Any, missing: str, new_columns: str, zone: str | None) -> Incoming:
    return Incoming(
        given,
        session.url,
        session.config,
        missing=missing,
        new_columns=new_columns,
        zone=zone,
        id_of=session.env.uuid(),
    )


def insert(session: Session, given: Any, missing: str, new_columns: str, zone: str | None) -> Write:
    """See `Transaction.insert`."""
    incoming = _incoming(session, given, missing, new_columns, zone)

    def stage(txn: Writer) -> None:
        # A key has one bucket, so an insert must look it up.
        if txn.session.settings.bucket_count is not None:
            stage_upsert(txn, incoming, "insert")
            return
        txn.workspace.refuse_merge("insert")
        txn.workspace.next_write()
        rows = txn.workspace.received(incoming)
        with txn.workspace.staging():
            txn.workspace.add(_new_files(txn, rows, on_disk=incoming.on_disk))
        txn.workspace.written_unasked()

    operation: OperationName = "insert" if session.settings.bucket_count is None else "upsert"
    return Write(operation, stage, Received(session, incoming, incoming.rows))


def overwrite(
    session: Session,
    given: Any,
    partitions: Iterable[Partition] | None,
    missing: str,
    new_columns: str,
    zone: str | None,
) -> Write:
    """See `Transaction.overwrite`."""
    incoming = _incoming(session, given, missing, new_columns, zone)
    named = None if partitions is None else listed(partitions)

    def stage(txn: Writer) -> None:
        txn.workspace.refuse_unless_overwrite("overwrite", "insert_overwrite")
        rows = txn.workspace.received(incoming)
        wanted = partitions_of(session, {*partition_list(rows, session.config)}, named, rows.schema)
        _replace(txn, rows, wanted, on_disk=incoming.on_disk)

    return Write("insert_overwrite", stage, Received(session, incoming, incoming.rows))


def partitions_of(
    session: Session, written: Set[str], named: Iterable[Partition] | None, schema: pa.Schema
) -> list[str]:
    """Return the partitions that an overwrite replaces: the named ones, or those of its rows (``written``).

    Raises:
        InputError: a row is in another partition than the named ones, or no row can be in one of these.
    """
    wanted = written if named is None else {_path(session, each, schema) for each in named}
    if others := sorted(written - wanted):
        raise InputError(
            f"rows of partition {others[0]!r} are not among the partitions to overwrite ({', '.join(sorted(wanted))}); "
            "filter the rows, or name that partition too; nothing was written",
            partitions=others,
        )
    return sorted(wanted)


def overwrite_table(session: Session, given: Any, missing: str, new_columns: str, zone: str | None) -> Write:
    """See `Transaction.overwrite_table`."""
    incoming = _incoming(session, given, missing, new_columns, zone)

    def stage(txn: Writer) -> None:
        txn.workspace.refuse_unless_overwrite("overwrite_table", "insert_overwrite_table", "insert_overwrite")
        rows = txn.workspace.received(incoming)
        _replace(txn, rows, [None], on_disk=incoming.on_disk)

    return Write("insert_overwrite_table", stage, Received(session, incoming, incoming.rows))


def _path(session: Session, named: Partition, schema: pa.Schema) -> str:
    path = partition_path_of(session.url, session.config, schema, named)
    refuse_misspelled(session.url, session.config, path)
    return path


def _replace(txn: Writer, rows: pa.Table, partitions: Iterable[str | None], *, on_disk: bool) -> None:
    txn.workspace.next_write()
    replace_with(txn, partitions, lambda: _new_files(txn, rows, on_disk=on_disk))


def replace_with(
    txn: Writer, partitions: Iterable[str | None], write: Callable[[], list[WriteStat]]
) -> list[WriteStat]:
    """Replace all file groups of these partitions (None: of the table) by the files that ``write`` returns; return them."""
    with txn.workspace.staging():
        stats = write()
        # Drop the present slices before the new files are added: ``current`` would then include these.
        for each in partitions:
            txn.workspace.overwrites(each)
            txn.workspace.drop_file_groups(txn.workspace.current.file_slices(each))
        txn.workspace.add(stats)
    txn.workspace.written_unasked()
    txn.workspace.reads_complete()
    return stats


def _new_files(txn: Writer, rows: pa.Table, *, on_disk: bool) -> list[WriteStat]:
    if not rows.num_rows:
        return []
    with TaskFiles(
        txn.workspace.file_spec(rows.schema), 0, threads=txn.session.threads, report=txn.workspace.report
    ) as files:
        txn.workspace.report.of(rows.num_rows)
        apply(WritePlan(files.spec, on_disk=on_disk), rows, files)
        return files.stats()
