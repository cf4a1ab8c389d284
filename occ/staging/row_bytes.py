"""Estimates of the bytes per row in files, so that a file ends at its size and not a row group later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ALMOST = 7 / 8  # of the target size is enough for a file: filling it up would add a row group or block of a few rows


class RowBytes:
    """Bytes per row: the size in memory until some rows are encoded, then as measured."""

    def __init__(self) -> None:
        self._rows, self._measured = 0, 0.0

    def learn(self, rows: int, size: int) -> None:
        """Record a measurement. One of fewer rows than before is ignored: each block's fixed bytes would distort it."""
        if size and rows >= max(self._rows, 1):
            self._rows, self._measured = rows, size / rows

    def of(self, rows: pa.Table) -> float:
        """Return the bytes for one of these rows, of which there must be some; at least 1."""
        return max(self._measured or rows.nbytes / rows.num_rows, 1.0)

    def fit(self, rows: pa.Table, size: float) -> int:
        """Return how many such rows fit into so many bytes; at least 1."""
        return max(1, int(size / self.of(rows)))
