"""Mutants of times, epochs, signs of life, cleaning and leases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.errors import LockLostError
from lakelatch.hudi.timeline.instant import EARLIEST, from_epoch_ms, next_label
from lakelatch.locks.core.lease import LeaseState
from lakelatch.occ.entries.entries import Begin
from lakelatch.occ.landing import landing
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.liveness.heartbeat import HeartbeatObserver, HeartbeatSender, heartbeat_path
from lakelatch.occ.liveness.rollback import FailedWriteCleaner
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.state import LogState
from lakelatch.occ.session import session
from lakelatch.occ.session.table_lock import TableLease

from .mutant import Patches, method, mutant
from .shape import LOCKS


@mutant()
def files_are_deleted_before_the_rollback_entry() -> Patches:
    """A cleaner deletes the files of a writer that is only slow, and then ends it (trap 19)."""

    def make(real: Any) -> Any:
        def roll_back(self: Any, begin: Begin, *, reason: str, **more: Any) -> bool:
            self._sweep_dead(begin.instant, begin.action)
            return real(self, begin, reason=reason, **more)

        return roll_back

    return [method(FailedWriteCleaner, "roll_back", make)]


@mutant()
def an_unknown_transaction_is_swept() -> Patches:
    """Whatever is not known to have landed is taken for dead, the living included."""

    def make(real: Any) -> Any:
        def sweep(self: Any, instant: str, action: str = "", **_: Any) -> int:
            return 0 if self._log.outcome(instant) == "commit" else self._sweep_dead(instant, action)

        return sweep

    return [method(FailedWriteCleaner, "sweep", make)]


@mutant()
def silence_by_the_wall_clock() -> Patches:
    """A heartbeat is old when its modification time is, by the clock of anyone who looks (trap 13)."""

    def is_dead(self: Any, begin: Begin, *, timeout_s: float, every_s: float = 0.0) -> bool:
        found = self._store.head(heartbeat_path(begin.instant))
        return found is not None and self._env.now() - found.mtime > timeout_s

    return [method(HeartbeatObserver, "is_dead", lambda _: is_dead)]


@mutant()
def a_beat_brings_the_heartbeat_back() -> Patches:
    """A beat writes the file again when somebody has removed it, so it is no stop sign any more."""

    def beat(self: Any) -> None:
        for instant in list(self._tags):
            self._remember(instant, self._store.put(heartbeat_path(instant), self._body(instant)).tag)
        self._after()

    return [method(HeartbeatSender, "beat", lambda _: beat)]


@mutant(lambda shape: replace(shape, lock=LOCKS[0], faults={"slow answer": 0.05, "stop": 0.02, "slow": 0.05}))
def a_lease_is_counted_from_the_answer() -> Patches:
    """A lease is taken to last from when the answer came, not from when it was asked for: it is revived."""
    return [method(LeaseState, "_extend", lambda real: lambda self, _: real(self, self.env.monotonic()))]


@mutant(lambda shape: replace(shape, lock=LOCKS[0], writers=3, faults={"forget": 0.3, "stop": 0.02, "slow": 0.02}))
def tokens_are_not_compared() -> Patches:
    """Who was forgotten by the lock server commits under a token that a later holder has used."""

    def make(real: Any) -> Any:
        def token_at(self: Any, state: LogState) -> int:
            try:
                return real(self, state)
            except LockLostError as e:
                if e.details.get("reason") != "overtaken":
                    raise
                return self.token

        return token_at

    return [method(TableLease, "token_at", make)]


@mutant(lambda shape: replace(shape, lock=LOCKS[0], writers=3, faults={"forget": 0.3, "stop": 0.02, "slow": 0.02}))
def a_token_lands_twice() -> Patches:
    """Two who were granted the same token both commit under it."""
    return [method(TableLease, "token_at", lambda real: lambda self, at: real(self, replace(at, token=at.token - 1)))]


@mutant(lambda shape: replace(shape, admin=True, writers=3))
def the_old_lock_is_good_enough() -> Patches:
    """Who holds the lock that the table had before commits under it."""

    def token_at(self: Any, _state: LogState) -> int:
        self.ensure_held()
        return self.token

    return [method(TableLease, "token_at", lambda _: token_at)]


@mutant()
def times_from_the_clock_alone() -> Patches:
    """T and C are what the clock says, whatever stands in the log: a T is used twice, or goes back (trap 8)."""
    by_clock = lambda now, _, **__: from_epoch_ms(int(now * 1000))  # noqa: E731
    return [mock.patch.object(module, "next_label", by_clock) for module in (session, landing)]


@mutant()
def completion_time_from_the_beginning() -> Patches:
    """C is picked when the transaction begins, not at its slot (trap 9)."""

    def make(real: Any) -> Any:
        def decide(self: Any, *args: Any) -> Any:
            return replace(real(self, *args), completion=next_label(0.0, self._attempt.instant))

        return decide

    return [method(Landing, "decide", make)]


@mutant()
def requested_time_before_the_slot() -> Patches:
    """T is picked once, however long it takes to get a slot (trap 1)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None, **_: Any) -> Any:
            if follower is None:
                return real(self, build)
            first = build(self.catch_up())
            self._env.sleep(0.01)
            return real(self, lambda _: first, follower=follower)

        return append

    return [method(CommitLog, "append", make)]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_forgets_who_is_open() -> Patches:
    """The first entry of an epoch does not carry the transactions that are open."""
    return [method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), open=()))]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_loses_its_newest_commit() -> Patches:
    """An epoch is closed before its newest commit is published, and the next one does not carry it."""

    def close(real: Any) -> Any:
        def close_epoch(self: Any) -> None:
            with mock.patch.object(self, "_publish_newest", return_value=True):
                real(self)

        return close_epoch

    forgets = method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), last=None))
    return [forgets, method(CommitLog, "close_epoch", close)]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_forgets_the_times() -> Patches:
    """The first entry of an epoch does not carry the largest T and C."""
    return [method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), top=EARLIEST))]
