"""Begin a transaction; the first one of a table lays the floor of its timeline.

**The floor of a timeline** is an empty commit that is older than every transaction with files.

    t=0  W (T=10) begins on a table without a commit, puts a data file, and is killed; the put is still on its way
    t=1  a cleaner ends W and sweeps; X (T=20) makes the first commit of the table
    t=2  W's put arrives: a file of T=10, older than the first active instant, 20

Readers take files older than the first active instant for files of archived commits, and count their rows. With a floor
(T=5) the file belongs to no commit, and no reader reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import number, text
from ..entries import UNTOLD, Origin
from ..entries import operation as refuse_unknown
from ..turns import Asked, reservation_of
from .transaction import Transaction

if TYPE_CHECKING:
    from ..session import Session


def begin(
    session: Session,
    operation: str,
    *,
    lock_first: bool = False,
    isolation: str | None = None,
    reserve: Asked | None = None,
    first: int | None = None,
    origin: Origin = UNTOLD,
) -> Transaction:
    """Begin a transaction; arguments and errors are those of `Table.transaction`."""
    session.require_open()
    refuse_unknown(text(operation, "operation"))
    if first is not None:
        number(first, "first", least=0, whole=True)
    session.require_log()
    if not session.far:  # on a far store the attempt checks this while it puts its begin entry
        session.refuse_if_unwritable()
    if session.log.state.last is None:  # created only in part, or adopted and not yet written to
        lay_floor(session)
    reserved = reservation_of(session, reserve, operation) if reserve is not None else None
    return Transaction(
        session, operation, lock_first=lock_first, isolation=isolation, reserved=reserved, first=first, origin=origin
    )


def lay_floor(session: Session) -> None:
    """Publish an empty commit unless the table has a commit already. Safe to run twice at once."""
    if session.log.state.last is None and not session.timeline().commits:
        with Transaction(session, "insert") as txn:
            txn.allow_empty()
