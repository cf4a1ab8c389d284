"""Neighbours at work: the pending instants of other engines, which show what they write and whether they live.

Hudi's writers write the file groups that they change into their inflight instant, as soon as they know them, and beat
by the modification time of ``.hoodie/.heartbeat/<T>``; one that has failed removes that file and leaves its instants.

One that has only its requested instant may not have read the timeline yet:

    t=0  a JVM writer takes T=10 and puts its requested instant
    t=1  ours begins with T=20, writes file group g and commits
    t=2  the JVM reads the timeline, and with it 20; it takes that for older than its own work, so it sees no conflict
    t=3  its file of g has T=10 and holds the rows of 20 as well, but readers take the larger T: its rows are lost

So ours does not commit over a smaller T that is not inflight, while its requested instant is young. Nothing else shows when
it reads: that is most often the first thing that it does, and its inflight instant may follow minutes later. One that is
paused for longer in between may hide a commit, which the next import notices. An inflight writer compares with what completes
later. Hudi compares with commits alone, not with a restore: one that has read what a restore takes back
would bring it back, so a restore waits for all that live. And ours lets no commit land beside a restore of theirs: it has
made its list of what it takes back, and deletes files one by one. Nor does it commit to a file group whose clustering they
have planned: Hudi refuses such a write where it begins, and so compares nothing when it completes the clustering:

    t=0  a JVM plans to rewrite the slices of g
    t=1  ours, which has begun before or after that, commits to g
    t=2  the JVM completes its clustering: g is replaced by what it held at t=0

The last wait is for fairness:

    t=0  a JVM job of 15 s begins on file group g; ours commit to g every second, so the job fails with a conflict
    t=1  the job is run again, with a larger T: nothing shows its age, and it would fail for ever
    t=2  ours see a live job, and on g one that has failed: they wait until the live one has ended

A job may roll back its failed attempt before it runs again; so a handle remembers the file groups of those that it has seen
at work and that went away without a commit, until a later one on these groups has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ...environment import Environment
from ...errors import CorruptTableError
from ...hudi.files import FileGroupId
from ...hudi.timeline import COMMIT_ACTIONS, COMPLETED_AS, Instant, decode_commit, decode_container, file_name
from ...storage import Store
from .heartbeat import beat_age_s

SILENT_S = 120.0  # after which Hudi's writers take each other for failed, by default
READS_S = 10.0  # from its requested instant on, until one of them has surely read the timeline


class NeighboursAtWork:
    """One handle's view of the pending instants of other engines. ``folder`` is the timeline's."""

    def __init__(self, store: Store, env: Environment, folder: str) -> None:
        self._store, self._env, self._folder = store, env, folder
        # Of writers and of plans, by T; they never change once they are written.
        self._groups: dict[str, frozenset[FileGroupId]] = {}
        self._plans: dict[str, frozenset[FileGroupId]] = {}
        self._lost: frozenset[FileGroupId] = frozenset()  # of those that are gone

    def first_to_wait_for(
        self, pending: Iterable[Instant], groups: Collection[FileGroupId], has_committed: Callable[[str], bool]
    ) -> Instant | None:
        """Return a live writer that may change one of these file groups and has lost them before, if there is one.

        A writer whose file groups are not known yet counts as one that changes them. ``has_committed`` tells whether
        a transaction of another engine has, by its T.
        """
        waiting = sorted(pending, key=lambda each: each.requested)
        # Replaced and never changed, because threads of one handle share them.
        known = {each.requested: self._groups.get(each.requested) or self._read(each) for each in waiting}
        lost = self._lost
        for instant, named in sorted(self._groups.items()):
            if instant not in known:
                lost = lost - named if has_committed(instant) else lost | named
        self._groups, self._lost = known, lost
        lost_before = not lost.isdisjoint(groups)
        for each in waiting:
            named = known[each.requested]
            if named and named.isdisjoint(groups):
                continue
            if not self.lives(each):
                lost_before = lost_before or bool(named)
            elif lost_before:
                return each
        return None

    def in_the_way(
        self, pending: Iterable[Instant], instant: str, action: str, groups: Collection[FileGroupId]
    ) -> Instant | None:
        """Return what another engine does that this transaction of ours may not commit beside, if there is anything.

        That is a restore, or a clustering of file groups that ours changes. Neither has a heartbeat: one that has died stops
        Hudi's writers too, until it is run again. Beside a commit, a writer with a smaller T that may not have read the
        timeline; beside a restore every live one.
        """
        waiting = list(pending)
        if restoring := next((each for each in waiting if each.action == "restore" and self._is_theirs(each)), None):
            return restoring
        if action == "restore":  # one that has no beat yet may be about to begin
            return next((each for each in waiting if self.lives(each) or self._is_younger(each, SILENT_S)), None)
        if COMPLETED_AS.get(action, action) not in COMMIT_ACTIONS:
            return None
        planned = {each.requested: each for each in waiting if each.action == "clustering"}
        self._plans = {each: self._plans.get(each) or self._planned(plan) for each, plan in planned.items()}
        if clustered := next((each for each, named in self._plans.items() if not named.isdisjoint(groups)), None):
            return planned[clustered]
        # A plan was made under the lock, of all that had been committed.
        writers = [each for each in waiting if each.action not in COMPLETED_AS]
        inflight = {each.requested for each in writers if each.state == "inflight"}
        found = (each for each in writers if each.requested < instant and each.requested not in inflight)
        return next((each for each in found if self._is_younger(each, READS_S)), None)

    def _is_theirs(self, restore: Instant) -> bool:
        """Return whether it is no late put, which is empty, of one of ours that the log has forgotten; theirs has a plan."""
        requested = replace(restore, state="requested")
        return bool(self._store.body(f"{self._folder}/{file_name(requested)}")) or self._is_younger(requested, READS_S)

    def _planned(self, plan: Instant) -> frozenset[FileGroupId]:
        name = file_name(replace(plan, state="requested"))
        body = self._store.body(f"{self._folder}/{name}")
        return groups_of_plan(body, name) if body else frozenset()

    def _is_younger(self, each: Instant, seconds: float) -> bool:
        """Return whether its instant was put less than that long ago."""
        entry = self._store.head(f"{self._folder}/{file_name(each)}")
        return entry is not None and self._env.now() - entry.mtime < seconds

    def lives(self, each: Instant) -> bool:
        """Return whether its last beat is recent, by the store's clock and this host's."""
        age_s = beat_age_s(self._store, self._env, each.requested)
        return age_s is not None and age_s < SILENT_S

    def _read(self, each: Instant) -> frozenset[FileGroupId]:
        name = file_name(replace(each, action=COMPLETED_AS.get(each.action, each.action), state="inflight"))
        body = self._store.body(f"{self._folder}/{name}")
        if not body:
            return frozenset()
        try:
            content = decode_commit(body, name=name, layout=2)
        except CorruptTableError:  # a plan of a service, or written at this moment
            return frozenset()
        return frozenset(FileGroupId(stat.partition, stat.file_id) for stat in content.stats if stat.file_id)


def groups_of_plan(body: bytes, name: str) -> frozenset[FileGroupId]:
    """Return the file groups that Hudi's plan of a compaction or a clustering rewrites."""
    plan = decode_container(body, "HoodieCompactionPlan", "HoodieRequestedReplaceMetadata", name=name)
    parts = list(plan.get("operations") or ())
    for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or ():
        parts += group["slices"] or ()
    return frozenset(FileGroupId(part["partitionPath"] or "", part["fileId"] or "") for part in parts)
