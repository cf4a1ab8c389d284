"""Neighbours at work: the pending instants of other engines, which show what they write and whether they live.

Hudi's writers write the file groups that they change into their inflight instant, as soon as they know them, and beat
by the modification time of ``.hoodie/.heartbeat/<T>``; one that has failed removes that file and leaves its instants.

    t=0  a JVM job of 15 s begins on file group g; ours commit to g every second, so the job fails with a conflict
    t=1  the job is run again, with a larger T: nothing shows its age, and it would fail for ever
    t=2  ours see a live job, and on g one that has failed: they wait until the live one has ended
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ...environment import Environment
from ...errors import CorruptTableError
from ...hudi.files import FileGroupId
from ...hudi.timeline import COMPLETED_AS, Instant, decode_commit, file_name
from ...storage import Store
from .heartbeat import beat_age_s

SILENT_S = 120.0  # after which Hudi's writers take each other for failed, by default


class NeighboursAtWork:
    """One handle's view of the pending instants of other engines. ``folder`` is the timeline's."""

    def __init__(self, store: Store, env: Environment, folder: str) -> None:
        self._store, self._env, self._folder = store, env, folder
        self._groups: dict[str, frozenset[FileGroupId]] = {}  # by T; they never change once they are written

    def first_to_wait_for(self, pending: Iterable[Instant], groups: Collection[FileGroupId]) -> Instant | None:
        """Return a live writer that may change one of these file groups and has lost them before, if there is one.

        A writer whose file groups are not known yet counts as one that changes them.
        """
        waiting = sorted(pending, key=lambda each: each.requested)
        self._groups = {each.requested: self._groups.get(each.requested, frozenset()) for each in waiting}
        lost_before = False
        for each in waiting:
            named = self._named(each)
            if named and named.isdisjoint(groups):
                continue
            if not self.lives(each):
                lost_before = lost_before or bool(named)
            elif lost_before:
                return each
        return None

    def lives(self, each: Instant) -> bool:
        """Return whether its last beat is recent, by the store's clock and this host's."""
        age_s = beat_age_s(self._store, self._env, each.requested)
        return age_s is not None and age_s < SILENT_S

    def _named(self, each: Instant) -> frozenset[FileGroupId]:
        if not self._groups[each.requested]:
            self._groups[each.requested] = self._read(each)
        return self._groups[each.requested]

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
