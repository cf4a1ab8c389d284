"""The files of partitions that nobody has asked for yet, listed when somebody does.

A snapshot is of one moment, and a listing is of now. What has landed since the moment is left out by its completion time, and
what belongs to it is still there: nothing that an open transaction sees is cleaned. A restore, which deletes younger files at
once, is looked for after each listing:

    t=0  a transaction begins; T=5 has landed, in partitions p and q; the transaction lists p
    t=1  a restore takes T=5 back, and deletes its files
    t=2  the transaction lists q: older files show through. It must not work with them, though it could not land either
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..files import FileGroupId, Listing, list_data_files
from .snapshot import FileSlice, Landed, Replacement, TimelineView, Unlisted, build

if TYPE_CHECKING:
    from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class ListedLater:
    """All partitions of a table, as of a completion time.

    Attributes:
        timeline: as it was listed; its store is asked.
        view: of that timeline, and of the commits that have landed since. Successors share its completion times.
        completed: commits with a later C do not count.
        refuse: called with that time after each listing; raises if a restore has landed after it.
    """

    timeline: Timeline
    view: TimelineView
    completed: str
    refuse: Callable[[str], None]

    @classmethod
    def of(cls, timeline: Timeline, completed: str, refuse: Callable[[str], None]) -> ListedLater:
        """Every partition, as of that completion time."""
        view = timeline.view()
        return cls(timeline, replace(view, completion=dict(view.completion)), completed, refuse)

    def slices_of(self, partition: str) -> Mapping[str, FileSlice]:
        """See `Unlisted`. One request to list, and what ``refuse`` asks."""
        return self._built(list_data_files(self.timeline.store, [partition])).get(partition, {})

    def all_slices(self) -> Mapping[str, Mapping[str, FileSlice]]:
        """See `Unlisted`."""
        return self._built(list_data_files(self.timeline.store))

    def after_all(self, commits: Iterable[Landed]) -> Unlisted:
        """See `Unlisted`. Nothing is read, and the work is that of the commits alone."""
        completion, replacements, last = self.view.completion, list(self.view.replacements), self.completed
        assert isinstance(completion, dict)
        for commit, requested, completed in commits:
            completion[requested] = completed  # an earlier moment passes it over by its time
            last = max(last, completed)
            if replaced := commit.get("replaced"):
                groups = tuple(FileGroupId(partition, each) for partition, ids in replaced.items() for each in ids)
                replacements.append(Replacement(requested, completed, groups))
        return replace(self, view=replace(self.view, replacements=tuple(replacements)), completed=last)

    def _built(self, listing: Listing) -> Mapping[str, Mapping[str, FileSlice]]:
        self.refuse(self.completed)
        return build(listing, self.view, self.timeline.config, as_of_completion=self.completed).by_partition()
