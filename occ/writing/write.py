"""A write of rows and its input, which is read and checked before a transaction begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from ..turns import Watchful

if TYPE_CHECKING:
    import pyarrow as pa

    from ...choices import OperationName
    from ..incoming import Incoming
    from ..session import Session
    from ..workspace import Workspace


class Writer(Watchful, Protocol):
    """A transaction that writes rows; it gets another workspace when it restarts."""

    @property
    def workspace(self) -> Workspace: ...


@dataclass(frozen=True)
class Write:
    """One write, for a transaction begun as ``operation``.

    ``staged`` executes it. ``incoming`` are its rows, if it has any.
    """

    operation: OperationName
    staged: Callable[[Writer], None]
    incoming: Received | None = None

    def stage(self, txn: Writer) -> None:
        """Execute the write in this transaction, once per attempt. Raises `RolledBackError` if others have ended that."""
        with txn.workspace.explaining():
            self.staged(txn)


@dataclass(frozen=True)
class Received:
    """The rows of a write, as a context manager around all of its attempts.

    Entering reads a reader's rows, before any attempt begins: however long that takes, no transaction waits for them. Leaving
    frees them and their temporary file.

    Args:
        fit: a method of ``rows`` that fits them to the table's present columns.
    """

    session: Session
    rows: Incoming
    fit: Callable[[pa.Schema | None], object]

    def __enter__(self) -> Self:
        if self.rows.unread:
            self.fit(self.session.schema())
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.release()
