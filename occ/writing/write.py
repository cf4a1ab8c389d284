"""A write of rows with its input read and checked, before it runs in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from ..turns import Watchful

if TYPE_CHECKING:
    import pyarrow as pa

    from ..incoming import Incoming
    from ..session import Session
    from ..workspace import Workspace


class Writer(Watchful, Protocol):
    """A transaction that writes rows; its workspace is another one after it has begun anew."""

    @property
    def workspace(self) -> Workspace: ...


@dataclass(frozen=True)
class Write:
    """One write, of a transaction begun as ``operation``.

    ``staged`` does it. ``incoming`` are the rows that it was made of, if it was made of rows.
    """

    operation: str
    staged: Callable[[Writer], None]
    incoming: Received | None = None

    def stage(self, txn: Writer) -> None:
        """Do it in this transaction, and again in each further attempt. `RolledBackError` when others have ended that."""
        with txn.workspace.explaining():
            self.staged(txn)


@dataclass(frozen=True)
class Received:
    """Rows that were handed in, for as long as their write takes; a context manager.

    Rows of a reader are read at its beginning, before any attempt begins: however long they take, no transaction waits for
    them. They, and their temporary file, are let go at its end.

    Args:
        fit: a method of ``rows``, which brings them to the columns that the table has now.
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
