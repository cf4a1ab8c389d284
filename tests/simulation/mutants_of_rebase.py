"""Mutants of waiting, reservations and rebase (`occ/rebase/rounds.py`, `occ/turns/waiting.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.occ.landing import validator
from lakelatch.occ.rebase import rounds
from lakelatch.occ.rebase.rounds import Rebase
from lakelatch.occ.staging.staged import Staged
from lakelatch.occ.turns.waiting import BoundedWait
from lakelatch.occ.workspace.workspace import Workspace

from . import files
from .mutant import Patches, method, mutant
from .shape import LOCKS, Shape


def _rows(shape: Shape) -> Shape:
    return replace(shape, mix="rows", isolation="snapshot", writers=3, groups=1, admin=False)


@mutant(_rows)
def what_lands_during_a_round_is_not_compared() -> Patches:
    """A round counts as made on the log's head at its end, not on the slot at which it read the slices."""

    def make(real: Any) -> Any:
        def run(self: Any, task: Any) -> None:
            real(self, task)
            log = self._work.session.log
            log.catch_up()
            self.slot = log.next_slot

        return run

    return [method(Rebase, "run", make)]


@mutant(_rows)
def a_round_merges_with_the_old_slices() -> Patches:
    """The own change is made again on the snapshot of the begin slot."""

    def successors(place: Any, before: Any, now: Any, **_: Any) -> Any:
        return tuple(each for each in (before.get(place),) if each) or (now.get(place),)

    return [mock.patch.object(rounds, "_successors", successors)]


@mutant(_rows)
def the_group_that_is_moved_is_not_replaced() -> Patches:
    """Rows go to a new file group, and the commit leaves the old one where it is."""

    def make(real: Any) -> Any:
        return lambda self, old, new, moved, fresh: real(self, old, new, {}, fresh)

    return [method(Staged, "supersede", make)]


@mutant(lambda shape: replace(_rows(shape), mix="keys", unique=True, transactions=4, faults={}, crashes=0))
def values_of_a_round_are_not_compared() -> Patches:
    """What is unique is compared with the rows of the snapshot, and not with those that a round was computed from."""

    def make(real: Any) -> Any:
        return lambda self: None if self.rebase is not None and self.rebase.round else real(self)

    return [method(Workspace, "check_constraints", make)]


@mutant(lambda shape: replace(_rows(shape), mix="gone", transactions=4, faults={}, crashes=0))
def new_keys_of_a_round_are_compared_from_its_slot() -> Patches:
    """What a round inserts is compared with what lands behind the round, and not with what has landed since the begin."""
    return [mock.patch.object(validator, "_of_new_keys", return_value=None)]


@mutant(lambda shape: replace(_rows(shape), lock=LOCKS[0], reserve=0.5, faults={}, crashes=0, skew_s=0.0, drift=0.0))
def who_waits_keeps_the_lock() -> Patches:
    """Anyone who waits for another one to end has the lock in hand, which that one needs to end."""

    def make(real: Any) -> Any:
        def until(self: Any, *args: Any, **words: Any) -> bool:
            lease = self._session.lease("waits")
            try:
                return bool(real(self, *args, **words))
            finally:
                lease.release()

        return until

    return [method(BoundedWait, "until", make)]


@mutant(
    lambda shape: replace(
        shape, mix="rows", faults={"stop at head marker": 0.3, "slow answer at put data": 0.3}, crashes=0, groups=2
    )
)
def a_late_attempt_trusts_its_marker() -> Patches:
    """Anyone who finds its marker gone deletes its file, which another attempt of the task may have reported."""
    return [mock.patch.object(files, "is_no_part", return_value=True)]
