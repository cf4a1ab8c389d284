"""Rules of coordinators, each broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lakelatch.occ.landing import coordinator as leading
from lakelatch.occ.landing.coordinator import Coordinator
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.landing.together import GroupCommitFollower
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.state import LogState

from .mutant import Patches, method, mutant
from .mutants_of_groups import _crowd
from .shape import NO_LOCK, Shape


def _led(shape: Shape) -> Shape:
    return replace(_crowd(shape).coordinated(), together=False, at_once=False)


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

    def make(real: Any) -> Any:
        def ask(self: GroupCommitFollower, template: Any) -> Any:
            answer = real(self, template)
            if answer is None:
                self.asked.clear()
            return answer

        return ask

    def give_up(self: Any, error: BaseException) -> None:
        self.abort(str(error), because=error)
        raise error

    return [
        method(GroupCommitFollower, "ask_coordinator", make),
        method(Landing, "_give_up", lambda _: give_up),
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
