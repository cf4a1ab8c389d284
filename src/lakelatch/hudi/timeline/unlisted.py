"""Files of partitions that are listed only when they are asked for.

A snapshot is of one moment, and a listing is of now. Later commits are excluded by completion time, and the snapshot's own
files still exist: nothing that an open transaction sees is cleaned. A restore deletes younger files at once, so it is checked
for after each listing:

    t=0  a transaction begins; T=5 is committed, in partitions p and q; the transaction lists p
    t=1  a restore undoes T=5, and deletes its files
    t=2  the transaction lists q: older files show through. It must not use them, though it could not commit either
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..files import FileGroupId, Listing, list_data_files
from .snapshot import FileSlice, Landed, Replacement, Slices, TimelineView, Unlisted, build

if TYPE_CHECKING:
    from .timeline import Timeline

Named = Callable[["Timeline", Mapping[str, str]], Slices]


@dataclass(frozen=True, slots=True)
class ListedLater:
    """All partitions of a table, as of a completion time.

    Attributes:
        timeline: as it was listed; its store is asked.
        view: the view of that timeline and of the commits since. Successors share its completion times.
        completed: commits with a later C do not count.
        refuse: called with that time after each listing; raises if a restore has committed since.
        named: returns the slices that commits left, given T and C of each, for `build`.
    """

    timeline: Timeline
    view: TimelineView
    completed: str
    refuse: Callable[[str], None]
    named: Named

    @classmethod
    def of(cls, timeline: Timeline, completed: str, refuse: Callable[[str], None], named: Named) -> ListedLater:
        """Return every partition, as of that completion time."""
        view = timeline.view()
        return cls(timeline, replace(view, completion=dict(view.completion)), completed, refuse, named)

    def slices_of(self, partition: str) -> Mapping[str, FileSlice]:
        """Implement `Unlisted`. One request to list, and those of ``refuse``."""
        return self._built(list_data_files(self.timeline.store, [partition])).get(partition, {})

    def all_slices(self) -> Mapping[str, Mapping[str, FileSlice]]:
        """Implement `Unlisted`."""
        return self._built(list_data_files(self.timeline.store))

    def after_all(self, commits: Iterable[Landed]) -> Unlisted:
        """Implement `Unlisted`. Reads nothing; the work depends on the commits alone."""
        completion, replacements, last = self.view.completion, list(self.view.replacements), self.completed
        assert isinstance(completion, dict)
        for commit, requested, completed in commits:
            completion[requested] = completed  # an earlier moment ignores it because of its time
            last = max(last, completed)
            if replaced := commit.get("replaced"):
                groups = tuple(FileGroupId(partition, each) for partition, ids in replaced.items() for each in ids)
                replacements.append(Replacement(requested, completed, groups))
        return replace(self, view=replace(self.view, replacements=tuple(replacements)), completed=last)

    def _built(self, listing: Listing) -> Mapping[str, Mapping[str, FileSlice]]:
        # After the listing: a restore between an earlier check and the listing would go unnoticed.
        self.refuse(self.completed)
        landed = {requested: c for requested, c in list(self.view.completion.items()) if c <= self.completed}
        named = {each: slices for each, slices in self.named(self.timeline, landed).items() if listing.covers(each)}
        found = build(listing, self.view, self.timeline.config, as_of_completion=self.completed, named=named)
        return found.by_partition()
