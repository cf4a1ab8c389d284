"""Several tables at once: a transaction over them, run again when it loses, and one consistent read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...arguments import Isolation, OperationName, instance, suggesting
from ...errors import ConflictError, InputError
from ...hudi.timeline import EARLIEST
from ..entries import Origin
from ..scan import Scan
from ..session import Partition, Session
from ..transaction import Bounds, RunResult, SeveralTransaction, is_one_cut, refuse_together, run_several
from .table import Table

T = TypeVar("T")
_TRIES = 100  # reads that a commit over several tables comes between


@suggesting
def transaction(
    *tables: Table,
    operation: OperationName = "upsert",
    isolation: Isolation | None = None,
    note: Mapping[str, str] | None = None,
) -> SeveralTransaction:
    """Begin a transaction over several tables, a context manager: leaving its block commits in all of them, or in none.

        with lakelatch.transaction(orders, stock) as txn:
            txn[orders].upsert(rows)
            txn[stock].update_where("item = 7", {"left": lakelatch.sql("left - 1")})

    Each table has its own isolation, conflict rules and lock. The log of the table with the last URL decides. A crash at any
    moment leaves nothing, or all of it, as soon as the next writer of each table has looked.

    Args:
        tables: 2 to 16 of `lakelatch.open`, none shared with other engines, and none with streams.
        operation: in each of them, as for `Table.transaction`.
        isolation: a stronger level than the tables', for this transaction.
        note: in the commit of each table, as for `Table.transaction`.

    Raises:
        InputError: a table is given twice, or fewer than 2 or more than 16.
        UnsupportedTableError: a table cannot take part; the message says why.
        ConflictError: as for `Table.transaction`.
    """
    return SeveralTransaction(_sessions(tables), operation, isolation=isolation, origin=Origin.of(None, note))


@suggesting
def run(
    work: Callable[[SeveralTransaction], T],
    *tables: Table,
    operation: OperationName = "upsert",
    attempts: int = 20,
    timeout_s: float = 600.0,
    backoff_s: float = 0.05,
    lost_work_max_s: float | None = None,
    isolation: Isolation | None = None,
    reserve_after: int | None = 1,
    note: Mapping[str, str] | None = None,
) -> RunResult[T]:
    """Run ``work`` in a transaction over several tables and commit it; after a conflict run it again, as `Table.run` does.

    Args:
        work: called with the transaction; may run several times, so it must keep no state between calls.
        tables: as for `transaction`.
        operation: as for `transaction`.
        attempts: the most attempts.
        timeout_s: no attempt begins after so many seconds.
        backoff_s: jittered pause after the first loss, doubled with each, 5 s at most.
        lost_work_max_s: no attempt begins once lost attempts took so many seconds together.
        isolation: as for `transaction`.
        reserve_after: after so many losses an attempt holds the locks of all tables from its begin on; None: never.
        note: as for `transaction`.

    Raises:
        ConflictError: the last attempt's, when the bounds are reached; a note has the number of attempts.
    """
    bounds = Bounds(attempts, timeout_s, backoff_s, lost_work_max_s, reserve_after)
    return run_several(_sessions(tables), work, bounds, operation=operation, isolation=isolation, note=note)


@suggesting
class Cut:
    """One state of several tables, made by `lakelatch.read_together`: of each commit over several of them all, or nothing.

    Attributes:
        completions: the completion time of each table's newest commit in it, by URL.
    """

    def __init__(self, tables: Iterable[Table], completions: Mapping[str, str]) -> None:
        self._tables = {each.url: each for each in tables}
        self.completions = completions

    def read(
        self,
        table: Table,
        *,
        columns: list[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
    ) -> Scan:
        """Return rows of one of the tables in this state, as a lazy `Scan`; arguments as in `Table.read`.

        Raises:
            InputError: as in `Table.read`; or a cleaning has taken files of this state since.
        """
        found = self._tables.get(getattr(table, "url", ""))
        if found is None:
            raise InputError(f"{table!r:.200} is none of these tables: {', '.join(self._tables)}")
        return found.read(
            columns=columns, where=where, partitions=partitions, as_of_completion=self.completions[found.url]
        )


@suggesting
def read_together(*tables: Table) -> Cut:
    """Return one state of several tables, the newest: of each commit over several of them all, or nothing.

    Waits for the outcome of a commit that has not reached all of them yet.

        cut = lakelatch.read_together(orders, stock)
        cut.read(orders, where="day = '2026-11-29'").to_arrow()

    Args:
        tables: 2 to 16 of `lakelatch.open`.

    Raises:
        InputError: a table is given twice, or fewer than 2 or more than 16.
        ConflictError: commits over several of these tables came in between at every try; a retry is safe.
    """
    sessions = _sessions(tables)
    refuse_together(sessions, writes=False)
    for _ in range(_TRIES):
        followers = [each.log.follow_head() for each in sessions]
        try:
            found = {each.url: _newest_completion(each) for each in sessions}
            if is_one_cut(sessions, followers):
                return Cut(tables, found)
        finally:
            for session, follower in zip(sessions, followers, strict=True):
                session.log.unfollow(follower)
    raise ConflictError.without_winner(
        f"{', '.join(each.url for each in sessions)}: commits over several of these tables came in between {_TRIES} times; a "
        "retry is safe",
        rule="a read of several tables is one cut",
    )


def _newest_completion(session: Session) -> str:
    if session.settings.timeline_first:  # the log may lack some commits
        return session.latest()[1]
    return last.completion if (last := session.log.state.last) else EARLIEST


def _sessions(tables: Iterable[Table]) -> list[Session]:
    return [instance(each, Table, "tables", "a table that `lakelatch.open` has returned").session for each in tables]
