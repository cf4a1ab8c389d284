"""Reads inside a transaction: scans of its own state, declared for conflict checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...conflict import SNAPSHOT
from ...errors import CorruptTableError, StorageError
from ...hudi.table import named_values, partition_path
from ..scan import Scan, only_partitions, scan_slices, wanted_of
from ..session import listed, partitions_with

if TYPE_CHECKING:
    from ...conditions import Terms
    from ...hudi.timeline import FileSlice
    from ..session import Partition
    from ..workspace import Attempt, Workspace


def read(
    workspace: Workspace,
    attempt: Attempt,
    *,
    isolation: str,
    columns: Sequence[str] | None,
    where: Any,
    partitions: Iterable[Partition] | None,
) -> Scan:
    """See `Transaction.read`."""
    workspace.require_open()
    schema = workspace.written_schema
    wanted = wanted_of(workspace.session, schema, columns, where)
    terms = wanted.condition.terms if wanted.condition else ()
    slices = declared(workspace, partitions, terms, isolation=isolation)
    return scan_slices(workspace.session, slices, wanted, hold=partial(_undisturbed, attempt))


def declared(
    workspace: Workspace, partitions: Iterable[Partition] | None, terms: Terms, *, isolation: str
) -> list[FileSlice]:
    """Declare a read of these partitions (None: all), and return the slices that may hold its rows, in their order.

    Args:
        terms: comparisons that are true for each row of the read.
    """
    schema = workspace.written_schema
    # Meta columns have no statistics.
    terms = [each for each in terms if schema is not None and each[0] in schema.names]
    slices: dict[Any, FileSlice] = {}
    for named in [None] if partitions is None else listed(partitions):
        for slice_ in _declared(workspace, named, terms, looks=isolation != SNAPSHOT):
            slices[slice_.group] = slice_
    return [slices[group] for group in sorted(slices)]


def _declared(workspace: Workspace, named: Partition | None, terms: Terms, *, looks: bool) -> Iterator[FileSlice]:
    """Declare the read of a named part of the table (None: all), and yield its slices.

    ``looks``: declare the comparisons too, so that statistics narrow the read; the scan prunes by itself in any case.
    """
    where = terms if looks else ()
    config, schema = workspace.session.config, workspace.written_schema
    if named is None:
        paths = only_partitions(config, schema, terms) if schema is not None else None
        for path in [None] if paths is None else paths:
            yield from workspace.mark_scanned(path, where=where)
    elif not isinstance(named, Mapping):
        yield from workspace.mark_scanned(named.strip("/") if isinstance(named, str) else named, where=where)
    elif schema is not None:
        values = named_values(named, config, schema)
        if len(values) == len(config.partition_fields):
            path = partition_path([values[field] for field in config.partition_fields], config)
            yield from workspace.mark_scanned(path, where=where)
        else:
            # Null and an empty text share a partition, and a comparison would match only one of them.
            more = [(name, "=", value) for name, value in values.items() if value not in (None, "")] if looks else []
            matching = partitions_with(named, config, schema, workspace.current)
            yield from (
                each for each in workspace.mark_scanned(None, where=[*where, *more]) if each.partition in matching
            )


@contextmanager
def _undisturbed(attempt: Attempt) -> Iterator[None]:
    """Guard reads: refuse them after the transaction's end, and report a conflict if a restore has deleted the files."""
    attempt.require_open()
    try:
        yield
    except (CorruptTableError, StorageError) as e:
        error = e

        def again() -> None:
            raise error

        attempt.seen(again)
        raise
