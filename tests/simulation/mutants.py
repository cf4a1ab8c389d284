"""The protocol with one rule broken, for each rule. The simulator has to notice every one of them.

`python -m tests.simulation.mutants [SECONDS] [NAME...]` tries each for so long and prints what caught it. A mutant may
say which schedules suit it: those in which what it breaks is needed at all.
"""

from __future__ import annotations

import inspect
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import Pool
from typing import Any
from unittest import mock

from lakelatch.conflict import Verdict
from lakelatch.conflict.write_set import NOWHERE
from lakelatch.errors import LatchError, LockLostError, StorageError
from lakelatch.locks.held import Hold
from lakelatch.occ import judge, transaction
from lakelatch.occ.clock import EARLIEST, next_label
from lakelatch.occ.commit_log import CommitLog
from lakelatch.occ.heartbeat import Heart, Watch, heartbeat_path
from lakelatch.occ.instant import from_epoch_ms
from lakelatch.occ.log_state import Begin, Commit, LogState
from lakelatch.occ.publish import Publisher
from lakelatch.occ.rollback import Cleaner
from lakelatch.occ.staging import Staged
from lakelatch.occ.table import Table
from lakelatch.occ.table_lock import TableLease
from lakelatch.occ.transaction import Transaction
from lakelatch.occ.view import ViewCache, cold_view
from lakelatch.storage import Outcome

from .environment import WALL
from .install import simulated
from .shape import LOCKS, NO_LOCK, Shape
from .world import prepare, run

Patches = list[AbstractContextManager[Any]]
Change = Callable[[Shape], Shape]


@dataclass(frozen=True)
class Mutant:
    """``patches`` break the rule that ``why`` tells; ``suits`` makes the schedules in which it is needed."""

    name: str
    why: str
    patches: Callable[[], Patches]
    suits: Change


MUTANTS: dict[str, Mutant] = {}


def mutant(suits: Change = lambda shape: shape) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    def keep(make: Callable[[], Patches]) -> Callable[[], Patches]:
        MUTANTS[make.__name__] = Mutant(make.__name__, inspect.getdoc(make) or "", make, suits)
        return make

    return keep


def _method(owner: Any, name: str, make: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def _decide_all_the_same(real: Any) -> Any:
    def decide(self: Any, state: LogState, instant: str, *args: Any, **named: Any) -> Any:
        open_now = dict(state.open)
        state.open.setdefault(instant, Begin(instant, "commit", "UPSERT", "", None))
        try:
            return real(self, state, instant, *args, **named)
        finally:
            state.open = open_now

    return decide


@mutant()
def no_look_whether_it_was_rolled_back() -> Patches:
    """A writer that somebody has ended commits all the same."""
    look = _method(Transaction, "_require_in", lambda _: lambda *_: None)
    return [look, _method(judge.Judge, "decide", _decide_all_the_same)]


@mutant()
def an_ended_transaction_still_counts() -> Patches:
    """The same, and readers of the log take it for a commit."""

    def make(real: Any) -> Any:
        def apply(self: LogState, entry: Any) -> None:
            if isinstance(entry, Commit) and entry.instant not in self.open:
                self.open[entry.instant] = Begin(entry.instant, entry.action, entry.operation, entry.writer, None)
            real(self, entry)

        return apply

    return [*no_look_whether_it_was_rolled_back(), _method(LogState, "apply", make)]


@mutant()
def candidates_are_not_compared() -> Patches:
    """Whoever has the lock commits."""
    return [mock.patch.object(judge, "resolve", lambda *_, **__: Verdict(None))]


@mutant()
def candidates_by_requested_time() -> Patches:
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

    return [_method(Transaction, "_decide", make)]


@mutant()
def the_lock_alone_is_trusted() -> Patches:
    """Log entries are written over what stands there."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        self._store.put(path, body)
        return True

    return [_method(CommitLog, "_insist", lambda _: insist)]


@mutant()
def no_answer_is_taken_for_failure() -> Patches:
    """A put without an answer is not repeated, and the writer deletes its files."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        put = self._store.put_if_absent(path, body)
        if put.outcome is Outcome.UNKNOWN:
            raise StorageError(f"no answer to {path}")
        return put.done

    return [_method(CommitLog, "_insist", lambda _: insist)]


@mutant()
def files_are_deleted_before_the_rollback_entry() -> Patches:
    """A cleaner deletes the files of a writer that is only slow, and then ends it (trap 19)."""

    def make(real: Any) -> Any:
        def roll_back(self: Any, begin: Begin, *, reason: str) -> bool:
            self._sweep_dead(begin.instant, begin.action)
            return real(self, begin, reason=reason)

        return roll_back

    return [_method(Cleaner, "roll_back", make)]


@mutant()
def nobody_publishes_before_appending() -> Patches:
    """The log runs ahead of the timeline, which shows commits out of order (trap 9)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None) -> Any:
            with mock.patch.object(self, "publish_last", lambda: None):
                return real(self, build, follower=follower)

        return append

    return [_method(CommitLog, "append", make)]


@mutant()
def completion_time_from_the_beginning() -> Patches:
    """C is picked when the transaction begins, not at its slot (trap 9)."""

    def make(real: Any) -> Any:
        def decide(self: Any, *args: Any) -> Any:
            return replace(real(self, *args), completion=next_label(0.0, self.instant))

        return decide

    return [_method(Transaction, "_decide", make)]


@mutant()
def requested_time_before_the_slot() -> Patches:
    """T is picked once, however long it takes to get a slot (trap 1)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None) -> Any:
            if follower is None:
                return real(self, build)
            first = build(self.catch_up())
            self._env.sleep(0.01)
            return real(self, lambda _: first, follower=follower)

        return append

    return [_method(CommitLog, "append", make)]


@mutant()
def the_snapshot_is_taken_at_the_head() -> Patches:
    """A transaction reads what has landed since its begin slot, and is compared from that slot on all the same."""

    def make(real: Any) -> Any:
        def at(self: Any, slot: int, top: str, later: Any) -> Any:
            self._log.catch_up()
            return self._cold(self._log.state.top)

        return at

    return [_method(ViewCache, "at", make)]


@mutant()
def overwrites_claim_no_region() -> Patches:
    """An overwrite is compared by the file groups that it found, so what appears meanwhile survives (trap 15)."""

    def make(real: Any) -> Any:
        def write_set(self: Any) -> Any:
            return replace(real(self), region=NOWHERE)

        return write_set

    return [_method(Staged, "write_set", make)]


@mutant()
def an_own_commit_is_not_recognised() -> Patches:
    """A writer whose reply was lost takes its own commit for somebody else's doing (trap 20)."""

    def make(real: Any) -> Any:
        def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
            put = self._store.put_if_absent(path, body)
            while put.outcome is Outcome.UNKNOWN:
                self._env.sleep(0.1)
                put = self._store.put_if_absent(path, body)
            return put.done

        return insist

    return [_method(CommitLog, "_insist", make), _method(CommitLog, "landed", lambda _: lambda *_: None)]


@mutant()
def an_unknown_transaction_is_swept() -> Patches:
    """Whatever is not known to have landed is taken for dead, the living included."""

    def make(real: Any) -> Any:
        def sweep(self: Any, instant: str, action: str = "") -> int:
            return 0 if self._log.outcome(instant) == "commit" else self._sweep_dead(instant, action)

        return sweep

    return [_method(Cleaner, "sweep", make)]


@mutant()
def the_timeline_says_less_than_the_log() -> Patches:
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

    return [_method(Publisher, "publish", make)]


@mutant(lambda shape: replace(shape, writers=3, crashes=2, faults={"slow": 0.03, "slow answer": 0.03, "crash before": 0.03}))
def what_is_read_meanwhile_stays_unpublished() -> Patches:
    """A new handle that reads on while it verifies its epoch appends behind a commit that is on no timeline.

    This was so until the simulator found it: the next snapshot lacked that commit, and its rows were overwritten.
    """

    def publish_last(self: Any) -> None:
        last, unverified = self.state.last, self._unverified
        if unverified is not None:
            self._verify(unverified)
        elif last is not None and last.slot != self._published:
            self._timeline.publish(last)
        self._published = last.slot if last is not None else -1

    return [_method(CommitLog, "publish_last", lambda _: publish_last)]


@mutant()
def published_before_the_log() -> Patches:
    """The instant is put on the timeline first, and then the entry into the log."""

    def make(real: Any) -> Any:
        def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
            if isinstance(entry, Commit):
                self._timeline.publish(entry)
            return real(self, path, body, entry)

        return insist

    return [_method(CommitLog, "_insist", make)]


@mutant()
def the_decision_is_not_repeated() -> Patches:
    """Who finds the slot taken appends at the next one what was decided for the first."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None) -> Any:
            if follower is not None:
                return real(self, build, follower=follower)
            decided = build(self.catch_up())
            return real(self, lambda _: decided)

        return append

    return [_method(CommitLog, "append", make)]


@mutant(lambda shape: replace(shape, isolation="serializable", mix="skew"))
def reads_are_not_compared() -> Patches:
    """A transaction under `serializable` lands although what it read has changed."""

    def make(real: Any) -> Any:
        return lambda *args, **named: real(*args, **named | {"isolation": "snapshot"})

    return [_method(judge, "resolve", make)]


@mutant()
def times_from_the_clock_alone() -> Patches:
    """T and C are what the clock says, whatever stands in the log: a T is used twice, or goes back (trap 8)."""
    return [mock.patch.object(transaction, "next_label", lambda now, _: from_epoch_ms(int(now * 1000)))]


@mutant()
def the_timeline_is_read_before_the_log() -> Patches:
    """The snapshot is what the timeline held before the begin entry was appended (trap 6)."""

    def begin(real: Any) -> Any:
        def begin(self: Any) -> None:
            self._table.stale = self._table.timeline()
            real(self)

        return begin

    def cold(self: Any, top: str) -> Any:
        return cold_view(self.store, self.__dict__.pop("stale", None) or self.timeline(), as_of_completion=top)

    return [_method(Transaction, "_begin", begin), _method(Table, "_cold_view", lambda _: cold)]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_forgets_who_is_open() -> Patches:
    """The first entry of an epoch does not carry the transactions that are open."""
    return [_method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), open=()))]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_loses_its_newest_commit() -> Patches:
    """An epoch is closed before its newest commit is published, and the next one does not carry it."""

    def close(real: Any) -> Any:
        def close_epoch(self: Any) -> None:
            with mock.patch.object(self, "publish_last", lambda: None):
                real(self)

        return close_epoch

    forgets = _method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), last=None))
    return [forgets, _method(CommitLog, "close_epoch", close)]


@mutant(lambda shape: replace(shape, epoch_slots=5))
def an_epoch_forgets_the_times() -> Patches:
    """The first entry of an epoch does not carry the largest T and C."""
    return [_method(LogState, "carried", lambda real: lambda self, slot: replace(real(self, slot), top=EARLIEST))]


@mutant()
def silence_by_the_wall_clock() -> Patches:
    """A heartbeat is old when its modification time is, by the clock of whoever looks (trap 13)."""

    def is_dead(self: Any, begin: Begin, *, timeout_s: float) -> bool:
        found = self._store.head(heartbeat_path(begin.instant))
        return found is not None and self._env.now() - (WALL + found.mtime) > timeout_s

    return [_method(Watch, "is_dead", lambda _: is_dead)]


@mutant()
def a_beat_brings_the_heartbeat_back() -> Patches:
    """A beat writes the file anew when somebody has removed it, so it is no stop sign any more."""

    def beat(self: Any) -> None:
        for instant in list(self._tags):
            self._remember(instant, self._store.put(heartbeat_path(instant), self._body(instant)).tag)
        self._after()

    return [_method(Heart, "beat", lambda _: beat)]


@mutant(lambda shape: replace(shape, lock=LOCKS[0], faults={"slow answer": 0.05, "stop": 0.02, "slow": 0.05}))
def a_lease_is_counted_from_the_answer() -> Patches:
    """A lease is taken to last from when the answer came, not from when it was asked for: it is revived."""
    return [_method(Hold, "_extend", lambda real: lambda self, _: real(self, self.env.monotonic()))]


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

    return [_method(TableLease, "token_at", make)]


@mutant(lambda shape: replace(shape, admin=True, writers=3))
def the_old_lock_is_good_enough() -> Patches:
    """Who holds the lock that the table had before commits under it."""

    def token_at(self: Any, _state: LogState) -> int:
        self.ensure_held()
        return self.token

    return [_method(TableLease, "token_at", lambda _: token_at)]


# --- running them ------------------------------------------------------------------------------------------------


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The library with one rule broken."""
    prepare()
    with ExitStack() as stack:
        for patch in MUTANTS[name].patches():
            stack.enter_context(patch)
        yield


def hunt(name: str, seconds: float) -> tuple[int, float, str]:
    """How many schedules it took to notice the mutant, CPU seconds, and by what; "" when none did."""
    began, seed = time.process_time(), 0
    with broken(name), simulated():
        while time.process_time() - began < seconds:
            seed += 1
            try:
                run(MUTANTS[name].suits(Shape.of(seed)))
            except (AssertionError, LatchError) as e:
                return seed, time.process_time() - began, f"{type(e).__name__}: {e}"
    return seed, time.process_time() - began, ""


def _hunt(task: tuple[str, float]) -> tuple[str, tuple[int, float, str]]:
    try:
        return task[0], hunt(*task)
    except Exception:  # the world that hangs on it cannot travel to the parent
        return task[0], (0, 0.0, "BROKEN " + traceback.format_exc()[-600:])


def main(seconds: float, names: list[str]) -> int:
    survivors = 0
    with Pool() as pool:
        for name, (schedules, spent, caught) in pool.imap(_hunt, [(n, seconds) for n in names or MUTANTS]):
            print(f"{name}: {MUTANTS[name].why}")
            what = f"caught by schedule {schedules} after {spent:.1f} s: {caught[:200]}"
            print(f"    {what if caught else f'SURVIVED {schedules} schedules'}", flush=True)
            survivors += not caught
    print(f"{len(names or MUTANTS) - survivors} of {len(names or MUTANTS)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    limit = float(given.pop(0)) if given and given[0].replace(".", "").isdigit() else 30.0
    sys.exit(main(limit, given))
