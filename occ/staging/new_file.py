"""One data file of a transaction, for writers without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol

from ...errors import InputError, LakeLatchError
from ...hudi.files import FileGroupId
from .base_file import BaseFileWriter
from .file_spec import token

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import FileSlice, WriteStat
    from .file_spec import FileSpec


class Owner(Protocol):
    """The owner of a file: a transaction, or one round of its rebase."""

    def file_spec(self, schema: pa.Schema) -> FileSpec: ...
    def add(self, stats: Iterable[WriteStat]) -> None: ...
    def present(self, slice_: FileSlice) -> FileSlice: ...
    def staging(self) -> AbstractContextManager[None]: ...
    def adopt(self, file: NewFile) -> None: ...
    def require_open(self) -> None: ...


class NewFile:
    """A new data file, from `Transaction.rewrite` or `Transaction.new_file`; the first row writes its marker.

    `write` once or often, in a ``with`` block or not: the transaction's commit closes open files.
    """

    def __init__(
        self,
        transaction: Owner,
        *,
        partition: str,
        file_id: str,
        replaces: FileSlice | None = None,
        moves: FileSlice | None = None,  # whose rows go into this new file group
        round: int = 0,  # noqa: A002 - of a rebase
    ) -> None:
        self._transaction, self._round, self._moves = transaction, round, moves
        self.partition, self.file_id, self._replaces = partition, file_id, replaces
        # The file group whose rows it holds; another than its own where `_opened` gives it a new file id.
        self.over = FileGroupId(partition, file_id)
        self._writer: BaseFileWriter | None = None
        self._note: Mapping[str, str] = {}
        self._closed = False
        transaction.adopt(self)

    def write(self, rows: pa.Table) -> None:
        """Add rows: a row whose meta columns are missing or null is changed by this transaction, others are copied.

        Raises:
            InputError: a column was dropped or retyped, a row has no key or belongs to another partition.
            RolledBackError: another process has ended the transaction.
            CommitError: the transaction is over.
            TableError: the table's handle was closed.
        """
        self._transaction.require_open()
        if self._closed:
            raise InputError(
                f"file group {self.file_id} in partition {self.partition!r} is closed, because its transaction has gone on to "
                "its next write; begin another one with `new_file` or `rewrite`"
            )
        if self._writer is None:
            self._writer = self._opened(rows.schema)
            self._writer.note(self._note)
            self._writer.__enter__()
        self._writer.write(rows)

    def note(self, more: Mapping[str, str]) -> None:
        """Set key-value metadata for the footer; call it before the first row."""
        self._note = more

    def _opened(self, schema: pa.Schema) -> BaseFileWriter:
        old = self._transaction.present(self._replaces) if self._replaces else None
        spec = self._transaction.file_spec(schema)
        before, again = old or self._moves, old is not None and old.instant == spec.instant
        if old is not None and again:
            self.over, before = old.group, spec.begun[old.group]
            self.file_id, old = spec.successor_id(old.group), None
        return BaseFileWriter(
            spec,
            partition=self.partition,
            file_id=self.file_id,
            token=token(0, spec.write + self._round),
            io="MERGE" if old else "CREATE",
            prev_commit=old.instant if old else None,
            before=before,
            again=again,
        )

    def close(self) -> None:
        """Publish the file and add it to the transaction; idempotent. Without rows no file is made."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._closed = True
            try:
                self._transaction.require_open()
                with self._transaction.staging():
                    self._transaction.add([writer.publish()])
            except BaseException:
                writer.abandon()
                raise

    def abandon(self) -> None:
        """Leave without publishing."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(LakeLatchError):
                writer.abandon()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
