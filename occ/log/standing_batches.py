"""Find which batches of sources a state of the table contains, by its commits on the timeline and in the archive.

The log remembers the newest batch of each source. Only when a restore or another engine removes a commit is the batch
before it searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...hudi.timeline import COMMIT_ACTIONS, CommitMetadata, History, Instant, decode_commit, file_name
from ..entries import Batch, Batches, Landed

if TYPE_CHECKING:
    from ...hudi.timeline import Timeline

_AT_ONCE = 100  # archived commits read at a time


def standing_batches(commits: Iterable[tuple[Instant, CommitMetadata]], sources: Iterable[str]) -> tuple[Landed, ...]:
    """The newest batch of each of these sources in these commits, newest first; sources without one are left out."""
    wanted, found = set(sources), list[Landed]()
    if not wanted:
        return ()
    for instant, metadata in commits:
        batch = Batch.told_in(metadata.extra)
        if batch is not None and batch.source in wanted:
            wanted.remove(batch.source)
            found.append(Landed(batch, instant.requested))
            if not wanted:
                break
    return tuple(found)


def known_batches(timeline: Timeline, history: History, said: Batches, *, whole: bool = True) -> tuple[Landed, ...]:
    """The newest batch of each source, from what a log ``said`` and what became of its commits since.

    ``whole``: the log was read to its end. Otherwise archived commits are looked into as well.
    """
    there = {each.requested for each in timeline.commits}
    gone = [each for each in said if each.instant not in there and history.completion_of(each.instant) is None]
    newest = max((each.order[0] for each in timeline.commits), default="")
    found = Batches(said)
    sources = [each.batch.source for each in gone]
    found.take_back([each.instant for each in gone], standing_batches(commits_by(timeline, history, newest), sources))
    known = [(each, timeline.metadata(each)) for each in timeline.commits]
    for each, metadata in (*known, *(() if whole else archived_by(history, newest, table=timeline.store.url))):
        batch = Batch.told_in(metadata.extra)
        if batch is not None and found.before(batch) is None:
            found.add(batch, each.requested)
    return tuple(found)


def commits_by(timeline: Timeline, history: History, completed: str) -> Iterator[tuple[Instant, CommitMetadata]]:
    """The commits completed by then, newest first, with those that are archived."""
    for each in reversed(timeline.completed_by(completed=completed)):
        yield each, timeline.metadata(each)
    yield from archived_by(history, completed, table=timeline.store.url)


def archived_by(history: History, completed: str, *, table: str) -> Iterator[tuple[Instant, CommitMetadata]]:
    """The archived commits that were completed by then, newest first."""
    archived = [i for i in history.instants().values() if i.action in COMMIT_ACTIONS and i.order[0] <= completed]
    archived.sort(key=lambda each: each.order, reverse=True)
    for start in range(0, len(archived), _AT_ONCE):
        some = archived[start : start + _AT_ONCE]
        bodies = history.contents(some)
        for each in some:
            yield each, decode_commit(bodies[each], name=file_name(each), layout=2, table=table)
