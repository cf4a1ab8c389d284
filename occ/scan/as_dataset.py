"""A scan as a `pyarrow.dataset.Dataset`, so that DuckDB pushes its projection and filters down to it.

DuckDB pushes nothing down to a stream. On a dataset it calls ``scanner(columns=, filter=)``, reads the ``to_reader()`` of the
result, and does not filter these rows again. Source: DuckDB's Python client, ``arrow_array_stream.cpp``.

The package does not export it: ``pyarrow.dataset`` imports pandas, which takes longer than all of this library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ...errors import InputError

if TYPE_CHECKING:
    from .scan import Scan


class ScanDataset(ds.Dataset):  # type: ignore[misc]
    """The rows of a scan without a condition; each query narrows it for itself, and all see one state of the table."""

    def __init__(self, scan: Scan) -> None:  # not calling pyarrow's `__init__`, which raises
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the scan."""
        return self._scan.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> Narrowed:  # noqa: A002
        """Return the scan narrowed to a query's columns and filter."""
        return Narrowed(self._scan, list(self.schema.names if columns is None else columns), filter)


class Narrowed:
    """The part of a pyarrow scanner's interface that DuckDB uses."""

    def __init__(self, scan: Scan, columns: list[str], condition: pc.Expression | None) -> None:
        self._rest = None
        try:
            self._scan = scan.narrowed(columns, condition)
        except InputError:  # conditions do not support this expression: `to_reader` filters by it
            self._rest = condition
            self._scan = scan.narrowed(None, None)
        self.projected_schema = pa.schema([scan.schema.field(name) for name in columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        reader = self._scan.to_batches()
        if self._rest is None:
            return reader
        names = self.projected_schema.names
        batches = (batch.filter(self._rest).select(names) for batch in reader)
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)
