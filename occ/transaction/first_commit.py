"""The floor of a timeline: an empty commit that is older than every transaction with files.

    t=0  W (T=10) begins on a table without a commit, puts a data file, and is killed; the put is still on its way
    t=1  a cleaner ends W and sweeps; X (T=20) makes the first commit of the table
    t=2  W's put lands: a file of T=10, older than the first active instant, 20

Readers take what is older than the first active instant for files of archived commits, and count its rows. With a floor
(T=5) the file belongs to no commit, and no reader looks at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .transaction import Transaction

if TYPE_CHECKING:
    from ..table import Table


def lay_floor(table: Table) -> None:
    """Publish an empty commit unless the table has a commit already. Two that do so at once do no harm."""
    if table.log.state.last is None and not table.timeline().commits:
        with Transaction(table, "insert") as txn:
            txn.allow_empty()
