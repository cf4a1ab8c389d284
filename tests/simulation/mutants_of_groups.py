"""Mutants of commits that land together: whom a leader takes, what a member relies on, and how members are published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.conflict import ReadSet
from lakelatch.occ.landing import landing, together
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.landing.validator import CommitValidator
from lakelatch.occ.log.commit_log import CommitLog, Recent
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.workspace.attempt import Attempt

from .mutant import Patches, method, mutant
from .shape import Shape


def _crowd(shape: Shape) -> Shape:
    shape = replace(shape, appends=False, merge_on_read=False, streams=0, seed=4 * shape.seed + 1)
    return replace(replace(shape, writers=2, bucket_count=None).crowded(), isolation="snapshot", reserve=0.0)


class _Lax(CommitValidator):
    def decide(self, state: Any, instant: str, commits: Any, **words: Any) -> Any:
        before = [each for each in commits if each.slot < state.newest[-1].slot]
        return super().decide(state, instant, before, **words)


@mutant(_crowd)
def members_are_not_compared_with_each_other() -> Patches:
    """A member is validated against the log alone."""
    return [mock.patch.object(together, "CommitValidator", _Lax)]


@mutant(lambda shape: replace(_crowd(shape), batches=True))
def batches_of_members_are_not_looked_for() -> Patches:
    """A numbered batch is looked for by who commits it alone."""
    return [mock.patch.object(together, "refuse_landed")]


@mutant(_crowd)
def members_are_judged_from_the_head_of_the_log() -> Patches:
    """A member is validated against those that land with it, and not from its own begin slot."""
    return [method(Recent, "since", lambda _: lambda self, slot: [])]


@mutant(lambda shape: replace(_crowd(shape), isolation="serializable", mix="skew"))
def members_are_judged_by_what_they_write() -> Patches:
    """What a member has read does not count."""
    return [method(together.Requested, "read_set", lambda _: lambda self: ReadSet(blind=True))]


@mutant(lambda shape: replace(_crowd(shape), faults={"lose reply at lock grant": 0.6}))
def who_gives_up_waiting_writes_no_abort_entry() -> Patches:
    """A member that has waited too long deletes its files, and a leader takes it."""

    def make(real: Any) -> Any:
        def abort(self: Any, reason: str, **words: Any) -> Any:
            if "lock" not in reason.lower() or self.state != "open":
                return real(self, reason, **words)
            self.over("aborted")
            self.session.cleaner._sweep_dead(self.instant, self.announced_as)
            return True

        return abort

    return [method(Attempt, "abort", make)]


@mutant(lambda shape: replace(_crowd(shape), faults={"stop at put commit": 0.3, "slow answer at put commits": 0.5}))
def who_gives_up_does_not_look_whether_it_has_landed() -> Patches:
    """It tells its caller that nothing has landed."""

    def give_up(self: Any, error: BaseException) -> None:
        self.abort(str(error), because=error)
        raise error

    return [
        method(Landing, "_give_up", lambda _: give_up),
        method(Landing, "_by_others", lambda _: lambda self: False),
        method(Landing, "_landed", lambda _: lambda self: None),
    ]


@mutant(_crowd)
def members_are_published_in_any_order() -> Patches:
    """The last member of an entry appears first."""

    def publish_all(self: Any, commits: Any, **_: Any) -> None:
        for commit in reversed(commits):
            self.publish(commit)

    return [method(Publisher, "publish_all", lambda _: publish_all)]


@mutant(_crowd)
def the_first_member_alone_is_looked_for() -> Patches:
    """Who appends next publishes the first commit of the newest entry, and not the others."""
    return [method(Publisher, "publish_all", lambda real: lambda self, commits, **_: real(self, commits[:1]))]


@mutant(lambda shape: replace(_crowd(shape), faults={"unflushed at put commits": 0.2, "slow at secure log": 0.2}))
def a_member_relies_on_what_it_can_see() -> Patches:
    """It tells its caller that it has landed while the entry is on no disk."""
    return [
        mock.patch.object(landing, "is_flushed", return_value=True),
        method(CommitLog, "secure", lambda _: lambda self, commit: None),
    ]
