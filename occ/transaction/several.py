"""A transaction over several tables, as its writer sees it: one `Transaction` for each, and one commit.

All begin in the order of their URLs. Their snapshots are one cut: if a commit over several of these tables has come between
the first begin and the last, all begin again, or a reader would see half of it (`is_one_cut`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...ahead import in_order
from ...arguments import suggesting, text, work_of
from ...environment import ran_out
from ...errors import ConflictError, InputError, LakeLatchError, UnsupportedTableError
from ...tracing import step
from ..entries import Commit, Origin, Prepare
from ..landing import SeveralLanding
from ..session import await_outcome, nothing_left
from ..turns import BoundedWait
from .retry import MENDABLE, Bounds, RunResult, refuse_unawaited
from .transaction import Transaction, begin

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from ..log import Follower
    from ..session import CommitResult, Session

T = TypeVar("T")
TABLES_MAX = 16
_TRIES = 100  # begins, or reads, that a commit over several tables comes between


def refuse_together(sessions: Sequence[Session], *, writes: bool) -> None:
    """Raise if these tables cannot take part in one transaction, or be read together."""
    urls = [each.url for each in sessions]
    if len(urls) < 2 or len(set(urls)) < len(urls) or len(urls) > TABLES_MAX:
        raise InputError(
            f"give 2 to {TABLES_MAX} different tables; these are {', '.join(urls) or 'none'}"
            + (". Nothing was written" if writes else ""),
            tables=urls,
        )
    for each in sessions:
        each.require_open()
        each.require_log()
        if not writes:
            continue
        if each.settings.timeline_first or each.lock.shared_with_jvm:
            raise UnsupportedTableError(
                f"{each.url} is shared with writers of other engines, which know nothing of a commit that waits for another "
                "table. Nothing was written; write it in a transaction of its own",
                table=each.url,
            )
        if each.streams:
            raise UnsupportedTableError(
                f"{each.url} has streams, whose events land without the lock and would wait for the other tables. Nothing was "
                "written; write it in a transaction of its own",
                table=each.url,
            )


def is_one_cut(sessions: Sequence[Session], since: Sequence[Follower]) -> bool:
    """Return whether no commit over several of these tables has come since the followers began, or waits for its outcome.

    Waits for the outcome of those that are prepared, within the bound of the table.
    """
    urls, one = {each.url for each in sessions}, True

    def is_ours(commit: Commit) -> bool:
        return len(urls.intersection(partner.url for partner in commit.several)) > 1

    reads = [each.log.catch_up for each in sessions]
    states = list(in_order(sessions[0].env, reads, len(reads) if any(each.far for each in sessions) else 1))
    for session, state, follower in zip(sessions, states, since, strict=True):
        waiting = [each for each in list(state.prepared.values()) if is_ours(each.commit)]
        for each in waiting:
            _await(session, each)
        if waiting or not follower.complete or any(map(is_ours, list(follower.commits))):
            one = False
    return one


def _await(session: Session, prepared: Prepare) -> None:
    patience = BoundedWait(session)
    await_outcome(
        session,
        prepared,
        lambda over: patience.until(
            over, who=session.writer, whom=prepared.instant, why=f"it waits for its outcome in {prepared.home.url}"
        ),
    )


@suggesting
class SeveralTransaction:
    """A transaction over several tables, made by `lakelatch.transaction`. Leaving the block commits; an exception aborts.

        with lakelatch.transaction(orders, stock) as txn:
            txn[orders].upsert(rows)
            txn[stock].update_where("item = 7", {"left": lakelatch.sql("left - 1")})

    Attributes:
        results: after the commit, the committed transaction of each table that has one, by URL.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        operation: str,
        *,
        isolation: str | None = None,
        origin: Origin,
        lock_first: bool = False,
    ) -> None:
        refuse_together(sessions, writes=True)
        self._sessions = sorted(sessions, key=lambda each: each.url)
        for each in self._sessions:
            for other in self._sessions:
                if other is not each:
                    each.partners.meet(other)
        self._operation, self._isolation, self._origin = operation, isolation, origin
        self._of = self._begin(lock_first=lock_first)
        self.results: Mapping[str, CommitResult] = {}

    def _begin(self, *, lock_first: bool) -> dict[str, Transaction]:
        for _ in range(_TRIES):
            begun = dict[str, Transaction]()
            try:
                for each in self._sessions:
                    try:
                        begun[each.url] = begin(
                            each, self._operation, isolation=self._isolation, origin=self._origin, lock_first=lock_first
                        )
                    except LakeLatchError as e:
                        raise e.about(each.url)  # noqa: B904 - the same error
                    begun[each.url].member = True
                if is_one_cut(self._sessions, [each.participant.attempt.follower for each in begun.values()]):
                    return begun
            except BaseException:
                _abort(begun, "another of its tables could not begin")
                raise
            _abort(begun, "a commit over several tables came between its begins")
        raise ConflictError.without_winner(
            f"{', '.join(each.url for each in self._sessions)}: commits over several of these tables came between the begins "
            f"{_TRIES} times. Nothing was written; a retry is safe",
            rule="the snapshots of several tables are one cut",
        )

    def __getitem__(self, table: Any) -> Transaction:
        """Return the transaction of one of the tables."""
        found = self._of.get(getattr(table, "url", ""))
        if found is None:
            raise InputError(
                f"{getattr(table, 'url', table)!r:.200} is no table of this transaction, which is over {', '.join(self._of)}",
                tables=list(self._of),
            )
        return found

    @property
    def staged(self) -> bool:
        """True if there is something to commit so far, in any table."""
        return any(each.staged for each in self._of.values())

    def commit(self) -> Mapping[str, CommitResult]:
        """Commit in all tables, or in none; return `results`. Tables in which nothing was written or declared are left out.

        Raises:
            ConflictError: in one of the tables another writer won; names it. Nothing landed in any.
            RolledBackError: another process ended this transaction, because its heartbeat had stopped. Nothing landed in any.
            LockTimeoutError: the lock of a table was busy for the whole wait. Nothing landed in any.
            CommitStateUnknownError: no answer from the store; or it has landed, and a table does not show it yet.
        """
        for each in self._of.values():
            each.watcher.close()
        # What it has only read counts above isolation ``snapshot``, and is validated with the rest.
        some = [
            each
            for each in self._of.values()
            if each.staged or (each.isolation != "snapshot" and not each.workspace.fresh)
        ]
        _abort({each.url: each for each in self._of.values() if each not in some}, "nothing to commit")
        try:
            if len(some) == 1:
                some[0].member = False
                some[0].commit()
            elif some:
                SeveralLanding([each.participant for each in some]).commit()
        finally:
            self.results = {each.url: each.result for each in some if each.result is not None}
        return self.results

    def abort(self, reason: str = "asked to") -> None:
        """End without committing in any table, and delete its files. A no-op if it is over already."""
        text(reason, "reason", empty=True)
        _abort(self._of, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc is not None:
            _abort(self._of, f"{type(exc).__name__} in the block")
            if ran_out(exc):
                raise nothing_left(", ".join(self._of), self._operation, exc) from exc
        elif any(each.participant.attempt.state == "open" for each in self._of.values()):
            self.commit()


def _abort(begun: Mapping[str, Transaction], reason: str) -> None:
    for each in begun.values():
        each.member = False
        with suppress(LakeLatchError):  # the next writer rolls it back
            each.abort(reason)


def run_several(
    sessions: Sequence[Session],
    work: Callable[[SeveralTransaction], T],
    bounds: Bounds,
    *,
    operation: str,
    isolation: str | None = None,
    note: Mapping[str, str] | None = None,
) -> RunResult[T]:
    """See `lakelatch.run`."""
    import tenacity

    work_of(work, "work")
    origin, env = Origin.of(None, note), sessions[0].env if sessions else None
    refuse_together(sessions, writes=True)
    assert env is not None
    losses, began = list[Exception](), env.monotonic()
    started, wasted = began, 0.0

    def attempt() -> RunResult[T]:
        nonlocal started
        started = env.monotonic()
        # An attempt that holds all locks since its snapshots cannot lose.
        lock_first = bounds.reserve_after is not None and len(losses) >= max(bounds.reserve_after, 1)
        txn = SeveralTransaction(sessions, operation, isolation=isolation, origin=origin, lock_first=lock_first)
        with txn:
            value = work(txn)
            refuse_unawaited(value)
        took_s = env.monotonic() - began
        home = list(txn.results.values())[-1] if txn.results else None
        return RunResult(value, home, len(losses) + 1, tuple(losses), wasted, took_s, txn.results)

    def lost(state: RetryCallState) -> None:
        nonlocal wasted
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, Exception)
        losses.append(error)
        wasted += env.monotonic() - started

    def enough(state: RetryCallState) -> bool:
        now = env.monotonic()
        worked = wasted + now - started
        return (
            state.attempt_number >= bounds.attempts
            or now - began >= bounds.timeout_s
            or (bounds.lost_work_max_s is not None and worked >= bounds.lost_work_max_s)
        )

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda e: isinstance(e, MENDABLE) and e.retryable),
        stop=enough,
        wait=lambda state: env.random() * min(bounds.backoff_s * 2.0 ** (state.attempt_number - 1), 5.0),
        before_sleep=lost,
        sleep=env.sleep,
        reraise=True,
    )
    try:
        with step("run", table=", ".join(each.url for each in sessions), operation=operation):
            return retrying(attempt)
    except MENDABLE as e:
        e.add_note(f"gave up after {len(losses) + 1} attempts and {env.monotonic() - began:.1f} s")
        raise
