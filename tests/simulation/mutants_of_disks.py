"""Mutants of what a disk keeps, of listings that are made while names come and go, and of buckets and archived instants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakelatch.conflict import write_set
from lakelatch.hudi.timeline import ArchivedFiles, archived_files
from lakelatch.hudi.timeline.archived import History
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.services import archive
from lakelatch.occ.session.session import Session
from lakelatch.storage import Outcome, Put

from .mutant import Patches, method, mutant
from .shape import Shape
from .store import SimStore


def _unflushed(step: str, *more: str) -> Any:
    return lambda shape: replace(shape, faults={f"unflushed at {step}": 0.2} | dict.fromkeys(more, 0.2))


def _seen(self: Any, path: str) -> Put:
    return Put(Outcome.LOST if self.head(path) is None else Outcome.DONE)


@mutant(_unflushed("put commit"))
def a_commit_entry_that_can_be_read_is_taken_for_flushed() -> Patches:
    """Anyone who finds its own bytes after a failed flush has landed (trap 21). This was so until somebody cut the power."""
    return [method(SimStore, "secure", lambda _: _seen)]


@mutant(_unflushed("put data"))
def a_data_file_that_can_be_read_is_taken_for_flushed() -> Patches:
    """The same for the folder of a data file."""
    return [method(SimStore, "secure", lambda _: _seen)]


@mutant(lambda shape: replace(shape, power_cut=True, transactions=2))
def readers_merge_the_newest_commit_only() -> Patches:
    """Of the commits that the timeline lacks a reader takes the last one from the log (trap 24). This was so until then."""

    def missing(real: Any) -> Any:
        return lambda self, commits, names: real(self, commits[-1:], names)

    return [method(Publisher, "missing", missing)]


@mutant(lambda shape: replace(shape, power_cut=True, transactions=2))
def what_is_older_than_the_timeline_is_taken_for_archived() -> Patches:
    """Nothing is put back that is older than all that is left. This was so until then."""

    def missing(real: Any) -> Any:
        def found(self: Any, commits: Any, names: Any) -> Any:
            first = min((name for name in names if "_" in name), default="")
            return [(c, name) for c, name in real(self, commits, names) if name >= first]

        return found

    return [method(Publisher, "missing", missing)]


@mutant(lambda shape: replace(shape, readers=2, transactions=2, faults={"torn at list timeline": 0.5}))
def the_timeline_is_believed_alone() -> Patches:
    """A reader shows what one listing of the timeline does, whatever the log says."""

    def make(real: Any) -> Any:
        return lambda self, timeline, follower: (timeline, real(self, timeline, follower)[1])

    return [method(Session, "_whole", make)]


@mutant(lambda shape: replace(shape, bucket_count=2, mix="mixed", writers=3, transactions=2))
def buckets_are_not_compared() -> Patches:
    """Two writers make the first file group of one bucket at once, and both land."""
    return [method(write_set, "_is_bucket", lambda _: lambda file_id: False)]


@mutant(
    lambda shape: replace(
        shape,
        keepers=2,
        transactions=4,
        writers=3,
        faults={"slow at put completed": 0.3, "twice at put completed": 0.3},
    )
)
def what_was_archived_meanwhile_is_published() -> Patches:
    """A late publisher leaves its instant on the timeline, from which it was archived, and views show it (trap 4)."""
    archived = method(Publisher, "_is_archived", lambda _: lambda self, name: False)
    taken = method(archive, "take_archived_away", lambda _: lambda table: 0)
    return [archived, taken, method(History, "begun", lambda _: lambda self: False)]


def _late_files(shape: Shape) -> Shape:
    faults = {"late at put data": 0.3, "twice at put data": 0.3, "slow at put data": 0.1}
    return replace(shape, keepers=2, transactions=3, writers=3, epoch_slots=12, log_epochs=1, faults=faults)


@mutant(_late_files)
def what_is_older_than_the_timeline_counts() -> Patches:
    """A file of a dead transaction that comes after an archival is read, as other engines do. This was so until then."""
    return [method(ArchivedFiles, "counts", lambda _: lambda self, file: None)]


@mutant(_late_files)
def what_an_archival_finds_has_landed() -> Patches:
    """An archival notes all files that there are, no matter who wrote them."""

    def following(real: Any) -> Any:
        return lambda last, before, landed, files, newest: real(
            last, before, {*landed, *(f.instant for f in files)}, files, newest
        )

    return [method(archived_files, "_next", following)]
