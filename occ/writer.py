"""One data file of a transaction, for writers without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ..errors import LatchError
from .basefile import BaseFileWriter, token

if TYPE_CHECKING:
    import pyarrow as pa

    from .avro import WriteStat
    from .basefile import FileSpec
    from .snapshot import FileSlice


class Owner(Protocol):
    """What a file belongs to: a transaction, or one round of its rebase."""

    def file_spec(self, schema: pa.Schema) -> FileSpec: ...
    def add(self, stats: Iterable[WriteStat]) -> None: ...
    def _adopt(self, file: NewFile) -> None: ...


class NewFile:
    """Made by `Transaction.replace` and `Transaction.create`; its marker is written with the first row.

    `write` once or often, in a ``with`` block or not: the transaction's commit closes what is still open.
    """

    def __init__(
        self,
        transaction: Owner,
        *,
        partition: str,
        file_id: str,
        replaces: FileSlice | None = None,
        round: int = 0,  # noqa: A002 - of a rebase
    ) -> None:
        self._transaction, self._token = transaction, token(0, round)
        self.partition, self.file_id, self._replaces = partition, file_id, replaces
        self._writer: BaseFileWriter | None = None
        transaction._adopt(self)

    def write(self, rows: pa.Table) -> None:
        """Add rows: a row whose meta columns are missing or null is changed by this transaction, others are copied.

        Raises:
            InputError: a column was dropped or retyped, a row has no key or belongs to another partition.
            RolledBackError: the transaction is over.
        """
        if self._writer is None:
            spec = self._transaction.file_spec(rows.schema)
            self._writer = BaseFileWriter(
                spec,
                partition=self.partition,
                file_id=self.file_id,
                token=self._token,
                io="MERGE" if self._replaces else "CREATE",
                prev_commit=self._replaces.instant if self._replaces else None,
                replaces=self._replaces.path if self._replaces else None,
            )
            self._writer.__enter__()
        self._writer.write(rows)

    def close(self) -> None:
        """The file stands and belongs to the transaction. Twice is fine. A file without rows is not made."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._transaction.add([writer.publish()])

    def abandon(self) -> None:
        """Leave without publishing."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(LatchError):
                writer.abandon()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
