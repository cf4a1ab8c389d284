"""Mutants of how a transaction begins, decides, lands and is published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.conflict import Decision
from lakelatch.conflict.write_set import NOWHERE
from lakelatch.errors import StorageError
from lakelatch.occ.entries import Batch
from lakelatch.occ.entries.entries import Begin, Commit
from lakelatch.occ.landing import landing
from lakelatch.occ.landing import validator as judge
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.log.read_ahead import ReadAhead
from lakelatch.occ.log.state import LogState
from lakelatch.occ.session.session import Session
from lakelatch.occ.session.snapshot_cache import ViewCache, cold_view
from lakelatch.occ.staging.staged import Staged
from lakelatch.occ.workspace.attempt import Attempt
from lakelatch.storage import Outcome

from .mutant import Patches, method, mutant
from .shape import Shape


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
    look = method(Attempt, "require_in", lambda real: lambda self, state: real(self, state) if self.plan else None)
    return [look, method(judge.CommitValidator, "decide", _decide_all_the_same)]


@mutant()
def an_ended_transaction_still_counts() -> Patches:
    """The same, and readers of the log take it for a commit."""

    def make(real: Any) -> Any:
        def apply(self: LogState, entry: Any) -> None:
            if isinstance(entry, Commit) and entry.instant not in self.open:
                self.open[entry.instant] = Begin(entry.instant, entry.action, entry.operation, entry.writer, None)
            real(self, entry)

        return apply

    return [*no_look_whether_it_was_rolled_back(), method(LogState, "apply", make)]


@mutant()
def candidates_are_not_compared() -> Patches:
    """Anyone who has the lock commits."""
    return [mock.patch.object(judge, "resolve", return_value=Decision())]


@mutant()
def candidates_by_requested_time() -> Patches:
    """Only commits with a later T count as concurrent (HUDI-3355)."""

    def make(real: Any) -> Any:
        def decide(self: Any, *args: Any) -> Any:
            follower, instant = self._attempt.follower, self._attempt.instant
            kept, follower.commits = follower.commits, [c for c in follower.commits if c.instant > instant]
            try:
                return real(self, *args)
            finally:
                follower.commits = kept

        return decide

    return [method(Landing, "decide", make)]


@mutant()
def the_lock_alone_is_trusted() -> Patches:
    """Log entries are written over what stands there."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        self._store.put(path, body)
        return True

    return [method(CommitLog, "_insist", lambda _: insist)]


@mutant()
def no_answer_is_taken_for_failure() -> Patches:
    """A put without an answer is not repeated, and the writer deletes its files."""

    def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
        put = self._store.put_if_absent(path, body)
        if put.outcome is Outcome.UNKNOWN:
            raise StorageError(f"no answer to {path}")
        return put.done

    return [method(CommitLog, "_insist", lambda _: insist)]


@mutant()
def nobody_publishes_before_appending() -> Patches:
    """The log runs ahead of the timeline, which shows commits out of order (trap 9)."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None, **_: Any) -> Any:
            with mock.patch.object(self, "_publish_newest", return_value=True):
                return real(self, build, follower=follower)

        return append

    return [method(CommitLog, "append", make)]


def _begins_slowly(shape: Shape) -> Shape:
    slow = {"slow at put heartbeat": 0.3, "slow at put inflight": 0.3}
    return replace(
        shape, mix="mixed", isolation="snapshot", writers=3, transactions=2, groups=3, faults=slow, crashes=0
    )


@mutant(_begins_slowly)
def the_snapshot_is_taken_at_the_head() -> Patches:
    """A transaction reads what has landed since its begin slot, and is compared from that slot on all the same."""

    def make(real: Any) -> Any:
        def at(self: Any, slot: int, top: str, later: Any) -> Any:
            self._log.catch_up()
            return self._cold(self._log.state.top, self._told(self._log.next_slot))

        return at

    return [method(ViewCache, "at", make)]


@mutant()
def overwrites_claim_no_region() -> Patches:
    """An overwrite is compared by the file groups that it found, so what appears meanwhile survives (trap 15)."""

    def make(real: Any) -> Any:
        def write_set(self: Any) -> Any:
            return replace(real(self), region=NOWHERE)

        return write_set

    return [method(Staged, "write_set", make), mock.patch.object(Staged, "region", NOWHERE)]


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

    return [method(CommitLog, "_insist", make), method(CommitLog, "landed", lambda _: lambda *_: None)]


@mutant(lambda shape: replace(shape, faults={"refuse at put completed": 0.3}))
def the_timeline_says_less_than_the_log() -> Patches:
    """A failed publication is taken for done."""

    def make(real: Any) -> Any:
        def publish(self: Any, commit: Commit, *args: Any, **words: Any) -> None:
            if self._store.head(f"{self._folder}/{commit.shown}") is None:
                self._env.sleep(0.0)
                try:
                    real(self, commit, *args, **words)
                except StorageError:
                    return

        return publish

    return [method(Publisher, "publish", make)]


_SLOW_LOOK = {"slow at list timeline": 0.2, "slow at list log": 0.1, "refuse at put completed": 0.2}


@mutant(
    lambda shape: replace(
        shape,
        writers=5,
        transactions=2,
        far=False,
        faults={"slow at list timeline": 0.3, "slow at list log": 0.1, "refuse at put completed": 0.5},
    )
)
def what_is_read_meanwhile_stays_unpublished() -> Patches:
    """A new handle that reads on while it verifies its epoch appends behind a commit that is on no timeline.

    This was so until the simulator found it: the next snapshot lacked that commit, and its rows were overwritten.
    """

    def publish_newest(self: Any, **_: bool) -> bool:
        last, unverified = self.state.last, self._unverified
        if unverified is not None:
            self._verify(unverified)
            self._unverified = None
        elif last is not None and last.slot != self._published:
            self._timeline.publish(last)
        last = self.state.last
        self._published = last.slot if last is not None else -1
        return True

    return [method(CommitLog, "_publish_newest", lambda _: publish_newest)]


@mutant()
def published_before_the_log() -> Patches:
    """The instant is put on the timeline first, and then the entry into the log."""

    def make(real: Any) -> Any:
        def insist(self: Any, path: str, body: bytes, entry: Any = None) -> bool:
            if isinstance(entry, Commit):
                self._timeline.publish(entry)
            return real(self, path, body, entry)

        return insist

    return [method(CommitLog, "_insist", make)]


@mutant()
def the_decision_is_not_repeated() -> Patches:
    """Who finds the slot taken appends at the next one what was decided for the first."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, follower: Any = None, **_: Any) -> Any:
            if follower is not None:
                return real(self, build, follower=follower)
            decided = build(self.catch_up())
            return real(self, lambda _: decided)

        return append

    return [method(CommitLog, "append", make)]


@mutant(lambda shape: replace(shape, isolation="serializable", mix="skew"))
def reads_are_not_compared() -> Patches:
    """A transaction under `serializable` lands although what it read has changed."""

    def make(real: Any) -> Any:
        return lambda *args, **named: real(*args, **named | {"isolation": "snapshot"})

    return [method(judge, "resolve", make)]


@mutant()
def the_timeline_is_read_before_the_log() -> Patches:
    """The snapshot is what the timeline held before the begin entry was appended (trap 6)."""

    def begin(real: Any) -> Any:
        def begin(session: Any, *args: Any, **words: Any) -> Any:
            session.stale = session.timeline()
            return real(session, *args, **words)

        return begin

    def cold(self: Any, top: str, schema: str | None) -> Any:
        return cold_view(self.store, self.__dict__.pop("stale", None) or self.timeline(), as_of_completion=top)

    return [method(Attempt, "begin", begin), method(Session, "_cold_view", lambda _: cold)]


def _batched(shape: Shape) -> Shape:
    return replace(shape, batches=True, writers=3, transactions=2)


@mutant(_batched)
def a_batch_is_looked_for_when_it_begins_only() -> Patches:
    """Two that send the same batch at once both land it."""
    return [mock.patch.object(landing, "refuse_landed")]


@mutant(_batched)
def what_a_batch_follows_is_looked_for_when_it_begins_only() -> Patches:
    """Two batches of one source land, each of which follows the same one."""
    real = landing.refuse_landed

    def refuse(url: str, state: LogState, batch: Batch | None) -> None:
        real(url, state, replace(batch, after=None) if batch else None)

    return [mock.patch.object(landing, "refuse_landed", refuse)]


@mutant(lambda shape: replace(_batched(shape), epoch_slots=5))
def batches_are_forgotten_with_their_epoch() -> Patches:
    """The first entry of an epoch says nothing of the batches that landed before it."""

    def make(real: Any) -> Any:
        return lambda self, slot: replace(real(self, slot), batches=())

    return [method(LogState, "carried", make)]


_SLOW_READS = {"slow at get log": 0.2}


@mutant(lambda shape: replace(shape, far=True, writers=4, transactions=2, faults=_SLOW_READS))
def what_stands_behind_a_free_slot_is_applied() -> Patches:
    """Who reads ahead goes on with the next entry that has come, and misses the one that takes the free slot."""

    def make(real: Any) -> Any:
        def ask(self: ReadAhead, *slot: Any) -> bytes | None:
            found: bytes | None = real(self, *slot)
            while found is None and self._coming:
                found = self._coming.popleft()[1].take()
            return found

        return ask

    return [method(ReadAhead, "_ask", make)]
