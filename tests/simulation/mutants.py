"""The protocol with one rule broken, for each rule. The simulator has to notice every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.conflict.write_set import NOWHERE
from lakelatch.errors import StorageError
from lakelatch.occ import commit_log, transaction
from lakelatch.occ.clock import next_label
from lakelatch.occ.commit_log import CommitLog
from lakelatch.occ.log_state import Begin, Commit, LogState
from lakelatch.occ.publish import Publisher
from lakelatch.occ.rollback import Cleaner
from lakelatch.occ.staging import Staged
from lakelatch.occ.transaction import Transaction
from lakelatch.occ.view import ViewCache
from lakelatch.storage import Outcome

Mutant = Callable[[], Any]
MUTANTS: dict[str, Mutant] = {}


def mutant(make: Mutant) -> Mutant:
    MUTANTS[make.__name__] = make
    return make


def _method(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    return mock.patch.object(owner, name, make(getattr(owner, name)))


@mutant
def no_look_whether_it_was_rolled_back() -> Any:
    """A writer that somebody has ended commits all the same."""
    return _method(Transaction, "_require_in", lambda _: lambda *_: None)


@mutant
def an_ended_transaction_still_counts() -> Any:
    """Readers of the log take the commit of a transaction that is not open."""

    def make(real: Any) -> Any:
        def apply(self: LogState, entry: Any) -> None:
            if isinstance(entry, Commit) and entry.instant not in self.open:
                self.open[entry.instant] = Begin(entry.instant, entry.action, entry.operation, entry.writer, None)
            real(self, entry)

        return apply

    return _method(LogState, "apply", make)


@mutant
def candidates_are_not_compared() -> Any:
    """Whoever has the lock commits."""
    return mock.patch.object(transaction, "resolve", lambda *_, **__: None)


@mutant
def candidates_by_requested_time() -> Any:
    """Only commits with a later T count as concurrent (HUDI-3355)."""

    def make(real: Any) -> Any:
        def decide(self: Any, *args: Any) -> Any:
            follower = self._follower
            kept, follower.commits = follower.commits, [c for c in follower.commits if c.instant > self.instant]
            try:
                return real(self, *args)
            finally:
                follower.commits = kept

        return decide

    return _method(Transaction, "_decide", make)


@mutant
def the_lock_alone_is_trusted() -> Any:
    """Log entries are written over what stands there."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        self._store.put(path, body)
        return True

    return _method(CommitLog, "_insist", lambda _: insist)


@mutant
def no_answer_is_taken_for_failure() -> Any:
    """A put without an answer is not repeated, and the writer deletes its files."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        put = self._store.put_if_absent(path, body)
        if put.outcome is Outcome.UNKNOWN:
            raise StorageError(f"no answer to {path}")
        return put.done

    return _method(CommitLog, "_insist", lambda _: insist)


@mutant
def a_lost_race_is_not_looked_at() -> Any:
    """Whoever finds the slot taken takes it for another's, although a repetition may have met its own entry."""

    def make(real: Any) -> Any:
        def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
            while True:
                put = self._store.put_if_absent(path, body)
                if put.outcome is not Outcome.UNKNOWN:
                    return put.done
                self._env.sleep(0.1)

        return insist

    return _method(CommitLog, "_insist", make)


@mutant
def files_are_deleted_before_the_rollback_entry() -> Any:
    """A cleaner deletes the files of a writer that is only slow, and then ends it (trap 19)."""

    def make(real: Any) -> Any:
        def roll_back(self: Any, begin: Begin, *, reason: str) -> bool:
            self._sweep_dead(begin.instant, begin.action)
            return real(self, begin, reason=reason)

        return roll_back

    return _method(Cleaner, "roll_back", make)


@mutant
def nobody_publishes_before_appending() -> Any:
    """The log runs ahead of the timeline, which shows commits out of order (trap 9)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None) -> Any:
            with mock.patch.object(self, "publish_last", lambda: None):
                return real(self, build, follower=follower)

        return append

    return _method(CommitLog, "append", make)


@mutant
def completion_time_from_the_beginning() -> Any:
    """C is picked when the transaction begins, not at its slot (trap 9)."""

    def make(real: Any) -> Any:
        def decide(self: Any, *args: Any) -> Any:
            return replace(real(self, *args), completion=next_label(0.0, self.instant))

        return decide

    return _method(Transaction, "_decide", make)


@mutant
def requested_time_before_the_slot() -> Any:
    """T is picked once, however long it takes to get a slot (trap 1)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None) -> Any:
            if follower is None:
                return real(self, build)
            first = build(self.catch_up())
            self._env.sleep(0.01)
            return real(self, lambda _: first, follower=follower)

        return append

    return _method(CommitLog, "append", make)


@mutant
def the_snapshot_is_taken_at_the_head() -> Any:
    """A transaction reads what has landed since its begin slot, and is compared from that slot on all the same."""

    def make(real: Any) -> Any:
        def at(self: Any, slot: int, top: str, later: Any) -> Any:
            self._log.catch_up()
            return self._cold(self._log.state.top)

        return at

    return _method(ViewCache, "at", make)


@mutant
def overwrites_claim_no_region() -> Any:
    """An overwrite is compared by the file groups that it found, so what appears meanwhile survives (trap 15)."""

    def make(real: Any) -> Any:
        def write_set(self: Any) -> Any:
            return replace(real(self), region=NOWHERE)

        return write_set

    return _method(Staged, "write_set", make)


@mutant
def an_own_commit_is_not_recognised() -> Any:
    """A writer whose reply was lost takes its own commit for somebody else's doing (trap 20)."""

    def make(real: Any) -> Any:
        def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
            put = self._store.put_if_absent(path, body)
            while put.outcome is Outcome.UNKNOWN:
                self._env.sleep(0.1)
                put = self._store.put_if_absent(path, body)
            return put.done

        return insist

    return _Both(
        _method(CommitLog, "_insist", make), _method(CommitLog, "landed", lambda _: lambda *_: None)
    )


@mutant
def an_unknown_transaction_is_swept() -> Any:
    """Whatever is not known to have landed is taken for dead, the living included."""

    def make(real: Any) -> Any:
        def sweep(self: Any, instant: str, action: str = "") -> int:
            return 0 if self._log.outcome(instant) == "commit" else self._sweep_dead(instant, action)

        return sweep

    return _method(Cleaner, "sweep", make)


@mutant
def the_timeline_says_less_than_the_log() -> Any:
    """A failed publication is taken for done."""

    def make(real: Any) -> Any:
        def publish(self: Any, commit: Commit, *args: Any) -> None:
            store, path = self._store, self._path(commit)
            if store.head(path) is None:
                self._env.sleep(0.0)
                try:
                    real(self, commit, *args)
                except StorageError:
                    return

        return publish

    return _method(Publisher, "publish", make)


class _Both:
    def __init__(self, *patches: Any) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.__enter__()

    def __exit__(self, *error: Any) -> None:
        for patch in self._patches:
            patch.__exit__(*error)


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The library with one rule broken."""
    with MUTANTS[name]():
        yield



