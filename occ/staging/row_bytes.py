"""How many bytes a row takes in files, so that a file is ended when it has its size, and not a row group later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ALMOST = 7 / 8  # of its size is enough for a file: what is missing would be a row group or block of a few rows


class RowBytes:
    """Bytes a row: those in memory until some rows are encoded, from then on as measured."""

    def __init__(self) -> None:
        self._rows, self._measured = 0, 0.0

    def learn(self, rows: int, size: int) -> None:
        """So many rows took so many bytes. Of fewer than before it tells less: each block has bytes that are of no row."""
        if size and rows >= max(self._rows, 1):
            self._rows, self._measured = rows, size / rows

    def of(self, rows: pa.Table) -> float:
        """For one of these rows, which are some; at least one."""
        return max(self._measured or rows.nbytes / rows.num_rows, 1.0)

    def fit(self, rows: pa.Table, size: float) -> int:
        """How many such rows so many bytes have room for; at least one."""
        return max(1, int(size / self.of(rows)))
