"""Mutants of transactions over several tables: what is prepared, who decides, who settles, and what a reader takes for a cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.errors import CommitStateUnknownError
from lakelatch.occ.entries.entries import End, Prepare
from lakelatch.occ.landing.several import SeveralLanding
from lakelatch.occ.log import commit_log
from lakelatch.occ.log.state import LogState
from lakelatch.occ.session import settling
from lakelatch.occ.table import several as together
from lakelatch.occ.transaction import several

from .mutant import Patches, method, mutant
from .shape import NO_LOCK, Shape


def _bank(shape: Shape) -> Shape:
    return replace(shape.several(), restores=False)


def _unlocked(shape: Shape) -> Shape:
    return replace(_bank(shape), lock=NO_LOCK, transactions=2, writers=3)


def _dying(shape: Shape) -> Shape:
    shape = _unlocked(shape)
    faults = {"crash after at put prepare": 0.2, "stop at put prepare": 0.2, "slow answer at put prepare": 0.2}
    return replace(shape, faults=faults, crashes=3)


@mutant(lambda shape: replace(_unlocked(shape), faults={"stop at put commit": 0.3}))
def a_prepared_commit_is_ended_before_its_home() -> Patches:
    """Who takes a coordinator for dead ends it in its own table, and not in the home first."""

    def make(real: Any) -> Any:
        def outcome(session: Any, prepared: Any, *, dead: bool) -> Any:
            found = real(session, prepared, dead=False)
            return False if found is None and dead else found

        return outcome

    return [method(settling, "_outcome", make)]


def _refusing(*, ends: bool) -> Any:
    def make(real: Any) -> Any:
        def refuse(url: str, state: Any, entry: Any) -> None:
            if isinstance(entry, End) is ends:
                real(url, state, entry)

        return refuse

    return [method(commit_log, "refuse_undecided", make)]


@mutant(_unlocked)
def commits_go_behind_one_that_is_prepared() -> Patches:
    """Nobody waits for the outcome of a prepared commit."""
    return _refusing(ends=True)


@mutant(_dying)
def a_cleaner_rolls_a_prepared_commit_back() -> Patches:
    """A prepared commit of a writer that seems dead is ended as any other transaction."""
    return _refusing(ends=False)


@mutant(_dying)
def the_home_decides_first() -> Patches:
    """The home commits, and then the other tables are prepared."""

    def land(self: Any, templates: Any, leases: Any) -> None:
        home = len(self._all) - 1
        self._deciding, self._at = True, self._home
        commit = self._home.attempt.session.log.append(
            lambda state: self._home.landing.decide(state, leases[home], templates[home])
        )
        self._home.landing.publish_result(commit, leases[home])
        for at, each in enumerate(self._all[:-1]):
            self._at = each
            self._prepared[each.attempt.url] = each.attempt.session.log.append(
                lambda state, at=at, each=each: Prepare(each.landing.decide(state, leases[at], templates[at]))
            )
            self._settle(each)

    return [method(SeveralLanding, "_land", lambda _: land)]


@mutant(lambda shape: replace(_unlocked(shape), faults={"late at put commit": 0.3, "outage": 0.01}))
def who_is_in_doubt_about_the_home_gives_up() -> Patches:
    """A coordinator that gets no answer to its decision ends the prepared commits, and reports a failure."""

    def make(real: Any) -> Any:
        def give_up(self: Any, error: BaseException) -> None:
            if not (self._deciding and isinstance(error, CommitStateUnknownError)):
                real(self, error)
            for each in self._all[:-1]:
                each.attempt.abort("no answer", settles=True)
            self._home.attempt.over("aborted")
            raise error

        return give_up

    return [method(SeveralLanding, "_give_up", make)]


@mutant(_bank)
def a_commit_is_reported_when_the_home_has_it() -> Patches:
    """The other tables are left to the next writer."""

    def settle(self: Any, each: Any) -> None:
        each.landing.result = self._home.landing.result

    return [method(SeveralLanding, "_settle", lambda _: settle)]


@mutant(_unlocked)
def what_was_validated_before_the_slot_is_prepared() -> Patches:
    """A table is validated once, when the locks are taken, and not again at the slot that its entry takes."""

    def make(real: Any) -> Any:
        def land(self: Any, templates: Any, leases: Any) -> None:
            for each in self._all[:-1]:
                landing = each.landing
                found = landing.decide(each.attempt.session.log.state, leases[0], templates[self._all.index(each)])
                landing.decide = lambda state, lease, template, found=found: found  # type: ignore[misc]
            real(self, templates, leases)

        return land

    return [method(SeveralLanding, "_land", make)]


@mutant(_bank)
def a_cut_is_read_once() -> Patches:
    """A reader of several tables, and a transaction over them, takes the heads as it finds them."""
    return [mock.patch.object(module, "is_one_cut", return_value=True) for module in (several, together)]


@mutant(_dying)
def an_epoch_does_not_carry_what_is_prepared() -> Patches:
    """The first entry of an epoch says who is open, and not who is prepared."""
    make = lambda real: lambda self, slot: replace(real(self, slot), prepared=())  # noqa: E731
    return [method(LogState, "carried", make)]
