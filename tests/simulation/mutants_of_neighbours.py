"""Mutants of the work beside another engine: the timeline first, imports, begins under the lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.hudi.timeline import COMMIT_ACTIONS
from lakelatch.occ.entries import Commit
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.liveness.neighbours import NeighboursAtWork
from lakelatch.occ.liveness.rollback import FailedWriteCleaner
from lakelatch.occ.log import commit_log, imports
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.session.table_lock import NoLease, TableLease
from lakelatch.occ.workspace.begin_entry import BeginEntry

from .mutant import Patches, method, mutant
from .shape import Shape


def _beside(**faults: float) -> Callable[[Shape], Shape]:
    """Schedules beside another engine, with these faults alone if there are any; "_" stands for a blank."""
    aimed = {name.replace("_", " "): rate for name, rate in faults.items()}

    def suited(shape: Shape) -> Shape:
        beside = shape.beside()
        busy = replace(beside, strangers=2, writers=3, transactions=3, groups=1, keepers=0)
        return replace(busy, faults=aimed) if aimed else busy

    return suited


@mutant(_beside())
def nothing_is_imported() -> Patches:
    """The log is appended to without the commits that another engine has made."""
    return [method(CommitLog, "_to_import", lambda _: lambda self: None)]


@mutant(_beside())
def foreign_commits_are_looked_for_before_the_lock_alone() -> Patches:
    """What has completed while ours waited for the lock is not imported before it decides."""

    def make(real: Any) -> Any:
        def append(self: Any, build: Any, *, first: Any = None, look: bool | None = None, **more: Any) -> Any:
            return real(self, build, first=first, look=False if first is not None else look, **more)

        return append

    return [method(CommitLog, "append", make)]


def _log_first(real: Any) -> Any:
    def append(self: Any, build: Any, *, first: Any = None, **more: Any) -> Any:
        entry = real(self, build, **more)
        if first is not None and isinstance(entry, Commit) and entry.action in COMMIT_ACTIONS:
            first(entry)
        return entry

    return append


@mutant(_beside())
def the_log_comes_first() -> Patches:
    """The entry is appended, and then the instant is put: one who dies between has committed in the log alone."""
    return [method(CommitLog, "append", _log_first)]


@mutant(_beside(crash_before_at_put_completed=0.3, slow_at_put_completed=0.1))
def the_dead_are_published_for() -> Patches:
    """The log comes first, and the next of ours publishes what is missing, whoever has committed since."""

    def make(real: Any) -> Any:
        def publish(self: CommitLog, **how: bool) -> bool:
            for each in self.state.newest:
                self._timeline.publish(each)
            return bool(real(self, **how))

        return publish

    return [method(CommitLog, "append", _log_first), method(CommitLog, "_publish_newest", make)]


@mutant(_beside(slow_at_list_timeline=0.1))
def begins_below_are_not_waited_for() -> Patches:
    """Ours commits over a stranger with a smaller T that has not read the timeline yet."""
    return [method(NeighboursAtWork, "in_the_way", lambda _: lambda *_, **__: None)]


@mutant(_beside(slow_at_put_begin=0.6))
def who_begins_takes_no_lock() -> Patches:
    """T is picked, and its instant put, while strangers begin and commit."""

    def append(self: BeginEntry, follower: Any, _: str) -> Any:
        log = self._session.log
        self.lease = self.lease or TableLease(NoLease(), log.state.settings, self._session.url)
        return log.append(self, follower=follower, publishes=False)

    return [method(BeginEntry, "append", lambda _: append)]


@mutant(_beside(crash_after_at_put_completed=0.3, slow_answer_at_put_completed=0.1))
def a_rollback_imports_nothing() -> Patches:
    """One whose instant is on the timeline, and not in the log, is rolled back."""

    def make(real: Any) -> Any:
        def roll_back(self: FailedWriteCleaner, *given: Any, **named: Any) -> bool:
            append = self._log.append
            with mock.patch.object(self._log, "append", lambda build, **_: append(build)):
                return bool(real(self, *given, **named))

        return roll_back

    return [method(FailedWriteCleaner, "roll_back", make)]


_PAUSED = {"slow_at_put_completed": 0.2, "stop_at_put_completed": 0.1}


@mutant(_beside(**_PAUSED))
def hidden_commits_are_not_looked_for() -> Patches:
    """An import does not compare the versions of a file group."""
    return [mock.patch.object(commit_log, "refuse_skipped")]


@mutant(_beside(**_PAUSED))
def nobody_asks_for_the_lock_behind_its_put() -> Patches:
    """A commit is acknowledged although its lease had ended at its put, and another engine's came in."""
    return [mock.patch.object(Landing, "_refuse_clash")]


@mutant(_beside(stop_at_put_requested=0.15))
def an_import_is_compared_from_the_version_before_on() -> Patches:
    """A version under a smaller T than that of the one it was made from is not seen."""

    def make(real: Any) -> Any:
        def refuse(store: Any, folder: Any, new: Any, since: Any, **kind: Any) -> None:
            before = [s.prev_commit for each in new.values() for s in each.stats if imports.is_time(s.prev_commit)]
            real(store, folder, new, lambda _: since(min(before, default=min(new))), **kind)

        return refuse

    return [mock.patch.object(commit_log, "refuse_skipped", make(imports.refuse_skipped))]


@mutant(lambda shape: replace(_beside()(shape), keepers=2))
def a_restore_waits_for_no_neighbour() -> Patches:
    """It commits while another engine is at work on what it takes back."""

    def make(real: Any) -> Any:
        def in_the_way(self: Any, pending: Any, instant: str, action: str, groups: Any) -> Any:
            return None if action == "restore" else real(self, pending, instant, action, groups)

        return in_the_way

    return [method(NeighboursAtWork, "in_the_way", make)]
