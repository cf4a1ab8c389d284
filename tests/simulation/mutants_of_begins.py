"""Mutants of transactions that begin together: whom a leader takes, and how who has asked finds itself and ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.occ.entries.entries import Begin
from lakelatch.occ.log.state import LogState
from lakelatch.occ.workspace import begin_entry
from lakelatch.occ.workspace.begin_entry import BeginEntry

from .mutant import Patches, method, mutant
from .shape import Shape


def _far(shape: Shape) -> Shape:
    shape = replace(shape, appends=False, merge_on_read=False, streams=0, far=True, seed=4 * shape.seed + 1)
    return replace(shape, writers=2, bucket_count=None).crowded()


def _short(shape: Shape) -> Shape:
    return replace(_far(shape), epoch_slots=5)


def _takes(**ignored: Any) -> Any:
    """`takes`, which sees another state or request."""
    real = begin_entry.takes

    def takes(state: LogState, epoch: int, request: Any) -> bool:
        if "asked" in ignored:
            state = replace(state, asked={})
        if "open" in ignored:
            state = replace(state, open={})
        if "settled" in ignored:
            request = replace(request, settled=state.settled)
        if "epoch" in ignored:
            request = replace(request, epoch=epoch)
        return bool(real(state, epoch, request))

    return mock.patch.object(begin_entry, "takes", takes)


@mutant(_far)
def a_leader_forgets_who_has_begun() -> Patches:
    """It takes every request that lies there, also of who has begun."""
    return [_takes(asked=True)]


@mutant(_short)
def a_request_counts_in_every_epoch() -> Patches:
    """Whose transaction has ended before the epoch is begun once more. (The slot of the settings is another one then, too.)"""
    return [_takes(epoch=True, settled=True), method(BeginEntry, "over", lambda _: lambda self: None)]


@mutant(_short)
def an_epoch_does_not_say_who_had_asked() -> Patches:
    """Who has begun in the epoch before does not find itself."""

    def make(real: Any) -> Any:
        def carried(self: LogState, slot: int) -> Any:
            opening = real(self, slot)
            return replace(opening, open=tuple(replace(each, asked="") for each in opening.open))

        return carried

    return [method(LogState, "carried", make)]


@mutant(lambda shape: replace(_far(shape), faults={}))
def the_own_begin_does_not_name_its_request() -> Patches:
    """Who has begun by its own entry is begun once more by anyone who finds its request."""

    def make(real: Any) -> Any:
        def with_others(self: Any, state: LogState, mine: Begin) -> Any:
            entry = real(self, state, mine)
            return replace(entry, members=(replace(entry.members[0], asked=""), *entry.members[1:]))

        return with_others

    return [method(BeginEntry, "_with_others", make)]


@mutant(_far)
def who_has_asked_does_not_look_for_itself() -> Patches:
    """It appends its own begin entry although somebody has begun it."""
    return [method(BeginEntry, "_finds_itself", lambda _: lambda self, state: False)]


@mutant(lambda shape: replace(_far(shape), isolation="snapshot", mix="counter"))
def it_begins_where_it_reads_of_it() -> Patches:
    """Its snapshot is taken for that of the head, and what landed between is not compared."""

    def make(real: Any) -> Any:
        def finds(self: Any, state: LogState) -> bool:
            found: bool = real(self, state)
            if found:
                self.found = replace(self.found, slot=self._session.log.next_slot - 1)
            return found

        return finds

    return [method(BeginEntry, "_finds_itself", make)]


@mutant(lambda shape: replace(_far(shape), admin=True))
def settings_may_change_behind_a_request() -> Patches:
    """Who has asked under settings that are not in force any more is begun."""
    return [_takes(settled=True)]


@mutant(lambda shape: replace(_far(shape), reserve=0.4))
def a_leader_does_not_heed_reservations_for_others() -> Patches:
    """It begins anyone who asks while somebody has reserved something."""
    return [_takes(open=True)]


@mutant(lambda shape: replace(_far(shape), faults={}, batches=True))
def who_gives_up_does_not_end_itself() -> Patches:
    """It may have begun, or be begun by another, and nobody knows of it."""
    return [method(BeginEntry, "leave", lambda _: lambda self: self.over())]
