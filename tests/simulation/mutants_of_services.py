"""Mutants of table services, savepoints, restore, readers' leases and of what is unique."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

from lakelatch.conflict import write_set
from lakelatch.conflict.resolve import resolve
from lakelatch.occ.entries.entries import Commit
from lakelatch.occ.landing import validator as judge
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.liveness.reader_leases import ReaderLeases
from lakelatch.occ.log import publisher as publish
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.log.state import LogState
from lakelatch.occ.services import clean as cleaning
from lakelatch.occ.session.session import Session
from lakelatch.occ.workspace.attempt import Attempt

from .mutant import Patches, method, mutant
from .shape import Shape

# Their names in their packages are those of their functions.
resolving = import_module("lakelatch.conflict.resolve")
restoring = import_module("lakelatch.occ.services.restore")


def _kept(shape: Shape) -> Shape:
    return replace(shape, keepers=2, transactions=2, reserve=0.0, admin=False)


def _kept_and_read(shape: Shape) -> Shape:
    return replace(_kept(shape), readers=2)


def _keys(shape: Shape) -> Shape:
    return replace(shape, mix="keys", writers=3, transactions=2, reserve=0.0)


@mutant(lambda shape: replace(_kept(shape), writers=3, faults={"slow at get data": 0.2, "slow at list data": 0.1}))
def a_clean_ignores_open_transactions() -> Patches:
    """The states that open transactions began with are not kept."""

    def make(real: Any) -> Any:
        def find(table: Any, state: LogState, *args: Any) -> Any:
            return real(table, replace(state, open={}), *args)

        return find

    return [method(cleaning, "find", make)]


@mutant(_kept)
def a_clean_ignores_savepoints() -> Patches:
    """Files go that a savepoint keeps."""

    def make(real: Any) -> Any:
        def find(*args: Any) -> Any:
            with mock.patch.object(cleaning, "savepoints", return_value=[]):
                return real(*args)

        return find

    return [method(cleaning, "find", make)]


@mutant(_kept_and_read)
def readers_leases_are_not_looked_at() -> Patches:
    """A clean takes files that a reader with a lease needs."""
    return [method(ReaderLeases, "alive", lambda _: lambda *_, **__: [])]


@mutant(_kept)
def a_plan_is_executed_twice() -> Patches:
    """Anyone who finishes an execution lands, whether or not the plan is still open."""

    def apply(real: Any) -> Any:
        def apply(self: LogState, entry: Any) -> None:
            if isinstance(entry, Commit) and entry.operation == "CLUSTER" and entry.instant not in self.open:
                self.last = entry
            real(self, entry)

        return apply

    decide = method(Landing, "decide", _decide_an_ended_plan)
    return [method(Attempt, "require_in", _require_if_own), method(LogState, "apply", apply), decide]


def _require_if_own(real: Any) -> Any:
    def require_in(self: Attempt, state: LogState) -> None:
        if self.plan is None:
            real(self, state)

    return require_in


def _decide_an_ended_plan(real: Any) -> Any:
    def decide(self: Any, state: LogState, *args: Any) -> Any:
        before, attempt = dict(state.open), self._attempt
        if attempt.plan is not None:
            state.open.setdefault(attempt.instant, attempt.plan)
        try:
            return real(self, state, *args)
        finally:
            state.open = before

    return decide


@mutant(_kept)
def a_restore_excludes_nobody() -> Patches:
    """What was open when a restore landed lands after it."""
    restores = (resolving._taken_back, resolving._restore_stands_alone)
    checks = {name: getattr(resolving, name) for name in ("_AGAINST_LANDED", "_WOULD_LOSE")}
    return [
        mock.patch.object(resolving, name, tuple(each for each in found if each not in restores))
        for name, found in checks.items()
    ]


@mutant(_kept)
def what_a_restore_undoes_is_published_again() -> Patches:
    """A handle that repairs the timeline puts back what a restore has taken away (trap 4)."""
    return [mock.patch.object(publish, "undone_by", return_value=[])]


@mutant(_kept)
def a_restore_takes_back_by_requested_time() -> Patches:
    """Instants leave the timeline by T, the largest first, and readers see a state that never was.

    This was so until the simulator found it.
    """

    def make(real: Any) -> Any:
        def take_back(self: Any, undone: Any) -> None:
            real(self, sorted(undone, key=lambda instant: instant.requested, reverse=True))

        return take_back

    return [method(Publisher, "take_back", make)]


@mutant(lambda shape: replace(_kept(shape), faults={"lose request at delete timeline": 0.3}))
def a_deletion_without_an_answer_is_taken_for_done() -> Patches:
    """The restore appears on the timeline beside what it took back, and the files go below it. As before the simulator."""

    def take_away(self: Any, name: str) -> None:
        self._store.delete(f"{self._folder}/{name}")

    return [method(Publisher, "_take_away", lambda _: take_away)]


@mutant(_kept_and_read)
def a_view_is_taken_for_that_of_the_log_read_before() -> Patches:
    """A reader's lease names the newest commit that the log held before the timeline was listed, not that of its view.

    This was so until the simulator found it.
    """

    def make(real: Any) -> Any:
        def latest(self: Any) -> Any:
            last = self.log.catch_up().last
            return real(self)[0], last.completion

        return latest

    return [method(Session, "latest", make)]


def _instead_of_same_value(check: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    checks = [check if each is resolving._same_value else each for each in resolving._AGAINST_LANDED]
    return mock.patch.object(resolving, "_AGAINST_LANDED", tuple(checks))


@mutant(_keys)
def equal_new_keys_are_not_compared() -> Patches:
    """Two transactions insert the same new key, and both land."""
    return [_instead_of_same_value(lambda case: None)]


@mutant(_keys)
def candidates_do_not_tell_their_keys() -> Patches:
    """What landed since the begin is compared without the summary of its keys."""

    def make(real: Any) -> Any:
        def write_set_of(*args: Any) -> Any:
            return replace(real(*args), unique={})

        return write_set_of

    return [method(judge, "write_set_of", make)]


@mutant(_keys)
def spans_that_touch_do_not_meet() -> Patches:
    """One key is a span of its own, and the same key of another one lies beside it."""
    return [mock.patch.object(write_set, "_overlap", lambda one, other: one[0] < other[1] and other[0] < one[1])]


@mutant(_keys)
def a_rebase_mends_equal_keys() -> Patches:
    """Who can merge again what both changed is not compared by its new keys."""

    def lenient(*args: Any, repeatable: Any = None, **words: Any) -> Any:
        if repeatable is None:
            return resolve(*args, repeatable=repeatable, **words)
        with _instead_of_same_value(lambda case: None):
            return resolve(*args, repeatable=repeatable, **words)

    return [mock.patch.object(judge, "resolve", lenient)]


@mutant(lambda shape: replace(_keys(shape), unique=True))
def unique_values_are_compared_as_keys_only() -> Patches:
    """A unique constraint is looked at in the snapshot, and not in what landed since."""

    real = resolving._same_value

    def same(case: Any) -> Any:
        mine = {name: values for name, values in case.ours.writes.unique.items() if not name}
        return real(case._replace(ours=replace(case.ours, writes=replace(case.ours.writes, unique=mine))))

    return [_instead_of_same_value(same)]


@mutant(lambda shape: replace(shape, keepers=1, batches=True, writers=max(shape.writers, 2), transactions=2))
def a_restore_forgets_the_batches_that_stand() -> Patches:
    """Nothing is known after a restore of a source whose newest batch it has taken back."""
    return [mock.patch.object(restoring, "standing_batches", return_value=())]
