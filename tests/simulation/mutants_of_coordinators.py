"""Rules of coordinators and of those that ask them, each broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.conflict import ReadSet
from lakelatch.occ.landing import coordinator as leading
from lakelatch.occ.landing.coordinator import Coordinator
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.landing.validator import CommitValidator
from lakelatch.occ.log.commit_log import CommitLog, KnownEntries, Recent
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.log.state import LogState
from lakelatch.occ.workspace.attempt import Attempt
from lakelatch.occ.workspace.begin_entry import BeginEntry

from .mutant import Patches, method, mutant
from .shape import NO_LOCK, Shape


def _led(shape: Shape) -> Shape:
    shape = replace(shape, appends=False, merge_on_read=False, streams=0, seed=4 * shape.seed + 1)
    shape = replace(shape, writers=2, bucket_count=None).crowded()
    return replace(replace(shape, isolation="snapshot", reserve=0.0).coordinated(), at_once=False)


# --- commits -----------------------------------------------------------------------------------------------------------


class _Lax(CommitValidator):
    def decide(self, state: Any, instant: str, commits: Any, **words: Any) -> Any:
        before = [each for each in commits if each.slot < state.newest[-1].slot]
        return super().decide(state, instant, before, **words)


@mutant(_led)
def members_are_not_compared_with_each_other() -> Patches:
    """A member is validated against the log alone."""
    return [mock.patch.object(leading, "CommitValidator", _Lax)]


@mutant(lambda shape: replace(_led(shape), batches=True))
def batches_of_members_are_not_looked_for() -> Patches:
    """A numbered batch is looked for by who commits it alone."""
    return [mock.patch.object(leading, "refuse_landed")]


@mutant(_led)
def members_are_judged_from_the_head_of_the_log() -> Patches:
    """A member is validated against those that land with it, and not from its own begin slot."""
    return [method(Recent, "since", lambda _: lambda self, slot: [])]


@mutant(lambda shape: replace(_led(shape), isolation="serializable", mix="skew"))
def members_are_judged_by_what_they_write() -> Patches:
    """What a member has read does not count."""
    return [method(leading._Requested, "read_set", lambda _: lambda self: ReadSet(blind=True))]


@mutant(lambda shape: replace(_led(shape), faults={"lose reply at ask commit": 0.6, "lose reply at lock grant": 0.6}))
def who_gives_up_waiting_writes_no_abort_entry() -> Patches:
    """One that has asked and waited too long deletes its files, and its coordinator takes it."""

    def make(real: Any) -> Any:
        def abort(self: Any, reason: str, **words: Any) -> Any:
            if "lock" not in reason.lower() or self.state != "open":
                return real(self, reason, **words)
            self.over("aborted")
            self.session.cleaner._sweep_dead(self.instant, self.announced_as)
            return True

        return abort

    return [method(Attempt, "abort", make)]


@mutant(
    lambda shape: replace(
        _led(shape),
        seed=shape.seed * 4 + 1,
        crashes=6,
        faults={"crash before at put completed": 0.3, "stop at put completed": 0.1},
    )
)
def the_first_member_alone_is_looked_for() -> Patches:
    """Who appends next publishes the first commit of the newest entry, and not the others."""
    return [method(Publisher, "publish_all", lambda real: lambda self, commits, **_: real(self, commits[:1]))]


class _Forgetful(LogState):
    def apply(self, entry: Any) -> None:
        pass


@mutant(lambda shape: replace(_led(shape), faults={"twice at ask commit": 0.3}))
def members_do_not_count_for_those_behind_them() -> Patches:
    """A commit that was asked for twice lands twice, in one entry and with one completion time."""

    def fork(self: LogState) -> LogState:
        return _Forgetful(**{name: getattr(self, name) for name in LogState.__slots__})

    return [method(LogState, "fork", lambda _: fork)]


@mutant(lambda shape: replace(_led(shape), faults={"late at ask begin": 0.3, "twice at ask begin": 0.2}))
def a_question_to_begin_counts_for_ever() -> Patches:
    """A coordinator does not look whether the question was answered, by itself, by another or by its writer."""

    def takes(state: LogState, epoch: int, request: Any) -> bool:
        return bool(request.settled == state.settled)

    return [method(leading, "takes", lambda _: takes)]


@mutant(lambda shape: replace(_led(shape), faults={"lose reply at ask commit": 0.6, "slow at lock grant": 0.4}))
def who_hears_nothing_forgets_that_it_has_asked() -> Patches:
    """It tells its caller that nothing has landed, and the coordinator has committed it."""

    def give_up(self: Any, error: BaseException) -> None:
        self.abort(str(error), because=error)
        raise error

    return [
        method(Landing, "_give_up", lambda _: give_up),
        method(Landing, "_by_others", lambda _: lambda self: False),
        method(Landing, "_landed", lambda _: lambda self: None),
    ]


@mutant(_led)
def a_coordinator_publishes_in_any_order() -> Patches:
    """The last member of an entry appears first."""

    def publish(self: CommitLog, members: Any) -> Iterator[Any]:
        for each in reversed(members):
            self._timeline.publish(each)
            yield each

    return [method(CommitLog, "publish_in_turn", lambda _: publish)]


@mutant(_led)
def a_coordinator_takes_the_first_of_an_entry_for_all() -> Patches:
    """It answers that all are on the timeline once the first is there."""

    def publish(self: CommitLog, members: Any) -> Iterator[Any]:
        self._timeline.publish(members[0])
        self._published = members[-1].slot
        yield from members

    return [method(CommitLog, "publish_in_turn", lambda _: publish)]


@mutant(lambda shape: replace(_led(shape), coordinators=2, lock=NO_LOCK, threads=2, mix="rows"))
def what_was_judged_at_a_lost_slot_is_kept() -> Patches:
    """A member that was judged at a slot passes for the commit that took it."""
    return [method(Coordinator, "_forget", lambda _: lambda self, state, slot: None)]


@mutant(lambda shape: replace(_led(shape), coordinators=2))
def a_writer_skips_what_it_was_not_told() -> Patches:
    """It takes the entries of an answer one after the other, whatever slots they are of."""

    def make(real: Any) -> Any:
        def take(self: CommitLog, told: Any) -> Any:
            for path, _ in told[-1:]:
                self.next_slot = int(path.rpartition("/")[2])
            return real(self, told)

        return take

    return [method(CommitLog, "take", make)]


_PRUNED = {"epoch_slots": 5, "log_epochs": 1, "transactions": 3, "far": True, "crashes": 0}


@mutant(
    lambda shape: replace(
        _led(shape),
        **_PRUNED,
        faults={"stop at put commit": 0.2, "stop at put commits": 0.2, "stop at put begins": 0.1},
    )
)
def a_coordinator_does_not_look_whether_its_entry_counts() -> Patches:
    """It was suspended, its epoch has been removed, and its put into an emptied slot is answered (trap 18)."""

    def confirm(self: CommitLog, entry: Any) -> bool:
        assert self.known is not None
        epoch = self.known.epoch_of(entry)
        self.known.certify(self.epoch if epoch is None else epoch, entry.slot + 1)
        return True

    return [method(CommitLog, "confirm", lambda _: confirm)]


@mutant(
    lambda shape: replace(
        _led(shape),
        **_PRUNED,
        coordinators=2,
        faults={"stop at put commit": 0.2, "stop at put commits": 0.2, "stop at put begins": 0.1},
    )
)
def a_coordinator_tells_what_may_not_count() -> Patches:
    """It tells what it has read and put, also in an epoch that has been removed."""

    def make(real: Any) -> Any:
        def since(self: KnownEntries, slot: int) -> Any:
            self._certain = (sys.maxsize, 0)
            return real(self, slot)

        return since

    return [method(KnownEntries, "since", make)]


# --- begins ------------------------------------------------------------------------------------------------------------


def _short(shape: Shape) -> Shape:
    return replace(_led(shape), epoch_slots=5, far=True)


def _takes(**ignored: Any) -> Any:
    """`takes`, which sees another state or request."""
    real = leading.takes

    def takes(state: LogState, epoch: int, request: Any) -> bool:
        if "open" in ignored:
            state = replace(state, open={})
        if "settled" in ignored:
            request = replace(request, settled=state.settled)
        if "epoch" in ignored:
            request = replace(request, epoch=epoch)
        return bool(real(state, epoch, request))

    return mock.patch.object(leading, "takes", takes)


@mutant(lambda shape: replace(_short(shape), faults={"late at ask begin": 0.3, "twice at ask begin": 0.3}))
def a_request_counts_in_every_epoch() -> Patches:
    """Whose transaction has ended before the epoch is begun once more. (The slot of the settings is another one then, too.)"""
    return [_takes(epoch=True, settled=True)]


@mutant(lambda shape: replace(_short(shape), faults={"lose reply at ask begin": 0.6}))
def an_epoch_does_not_say_who_had_asked() -> Patches:
    """Who has begun in the epoch before does not find itself."""

    def make(real: Any) -> Any:
        def carried(self: LogState, slot: int) -> Any:
            opening = real(self, slot)
            return replace(opening, open=tuple(replace(each, asked="") for each in opening.open))

        return carried

    return [method(LogState, "carried", make)]


@mutant(lambda shape: replace(_led(shape), faults={}, crashes=0))
def the_own_begin_does_not_name_its_request() -> Patches:
    """Who has begun by its own entry is begun once more when its question arrives."""

    def make(real: Any) -> Any:
        def build(self: BeginEntry, state: LogState) -> Any:
            entry = real(self, state)
            members = getattr(entry, "members", ())
            return replace(entry, members=(replace(members[0], asked=""),)) if members else entry

        return build

    return [method(BeginEntry, "__call__", make)]


@mutant(lambda shape: replace(_led(shape), faults={"lose reply at ask begin": 0.6}))
def who_has_asked_does_not_look_for_itself() -> Patches:
    """It appends its own begin entry although its coordinator has begun it."""
    return [method(BeginEntry, "_finds_itself", lambda _: lambda self, state: False)]


@mutant(lambda shape: replace(_led(shape), mix="counter", faults={"lose reply at ask begin": 0.6}))
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


@mutant(lambda shape: replace(_led(shape), admin=True))
def settings_may_change_behind_a_request() -> Patches:
    """Who has asked under settings that are not in force any more is begun."""
    return [_takes(settled=True)]


@mutant(lambda shape: replace(_led(shape), reserve=0.4))
def a_coordinator_does_not_heed_reservations_for_others() -> Patches:
    """It begins anyone who asks while somebody has reserved something."""
    return [_takes(open=True)]


@mutant(lambda shape: replace(_led(shape), batches=True, faults={}, crashes=0))
def who_gives_up_does_not_end_itself() -> Patches:
    """It may have begun, or be begun later, and nobody knows of it."""
    return [method(BeginEntry, "leave", lambda _: lambda self: None)]
