"""The view of a transaction: the file slices and the schema as of one slot of the log.

A warm handle derives the next view from the last one and the commits between, so its cost does not grow with the
history. A cold one lists the timeline once, and the data files: a reader all, a transaction only the partitions that it
asks for. A restore, a replaced log and changes of other engines past the log cannot be derived, and make a handle cold.
A cleaning and an archival remove only files and instants that no newest view holds.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import CorruptTableError, StorageError, UnsupportedTableError
from ...hudi.files import list_data_files
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    EARLIEST,
    CommitMetadata,
    Instant,
    ListedLater,
    Named,
    Snapshot,
    Timeline,
    build,
)
from ..entries import Commit
from ..log import CommitLog, Follower

if TYPE_CHECKING:
    import pyarrow as pa

    from ...storage import Store

_COMMITS_KEPT = 32  # a handle that is seldom asked for its file slices applies commits in batches of this size


@functools.lru_cache(maxsize=64)
def arrow_schema(avro: str) -> pa.Schema:
    """The data columns of a schema in Avro JSON, as rows have them: all nullable."""
    from ...hudi.table import optional

    return optional(declared_schema(avro))


@functools.lru_cache(maxsize=64)
def declared_schema(avro: str) -> pa.Schema:
    """The data columns of a schema in Avro JSON; those declared not null are not nullable."""
    from ...hudi.table import from_avro, optional, required_columns, with_required

    schema = from_avro(avro)
    return with_required(optional(schema), required_columns(schema))


@functools.lru_cache(maxsize=64)
def required_by(avro: str | None) -> tuple[str, ...]:
    """The columns of a schema in Avro JSON that were declared not null."""
    from ...hudi.table import required_columns

    return required_columns(declared_schema(avro)) if avro else ()


@functools.lru_cache(maxsize=64)
def dropped_by(avro: str | None) -> tuple[str, ...]:
    """The columns that were dropped from a table with this schema in Avro JSON."""
    from ...hudi.table import dropped_columns

    return dropped_columns(avro) if avro else ()


def dropped_since(before: str | None, avro: str | None) -> list[str]:
    """The columns that were dropped between two schemas in Avro JSON."""
    known = dropped_by(before)
    return [name for name in dropped_by(avro) if name not in known]


@dataclass(frozen=True, slots=True)
class View:
    """Snapshot and schema (Avro JSON of the data columns, None before the first commit) as of one slot.

    ``completion`` is the largest C of its commits.
    """

    snapshot: Snapshot
    schema: str | None
    completion: str = EARLIEST

    def arrow_schema(self) -> pa.Schema | None:
        """The data columns as an Arrow schema."""
        return arrow_schema(self.schema) if self.schema else None

    def after(self, commit: Commit, metadata: CommitMetadata) -> View:
        """The view after this commit."""
        snapshot = self.snapshot.after(metadata, commit.instant, commit.completion)
        return View(snapshot, commit.schema or self.schema, commit.completion)

    def after_all(self, commits: Sequence[Commit], files_of: Callable[[Commit], Mapping[str, Any]]) -> View:
        """The view after these commits, which are in slot order."""
        snapshot = self.snapshot.after_all((files_of(each), each.instant, each.completion) for each in commits)
        last = next((each.completion for each in reversed(commits) if each.action in COMMIT_ACTIONS), self.completion)
        return View(snapshot, next((each.schema for each in reversed(commits) if each.schema), self.schema), last)


def cold_view(
    store: Store,
    timeline: Timeline,
    *,
    as_of: str | None = None,
    as_of_completion: str | None = None,
    whole: bool = False,
    schema: str | None = None,
    named: Named = lambda _timeline, _landed: {},
) -> View:
    """Build the view from one listing; the bounds are those of `Table.snapshot`.

    Args:
        whole: for a past moment: archived commits may have completed after it, which only the archive shows.
        schema: of the view, if the log has it; saves reading the newest commit, which may be large.
        named: returns the slices that commits left, given T and C of each; see `Session.named`.
    """
    past = timeline.completed_by(requested=as_of, completed=as_of_completion)
    snapshot = build(
        list_data_files(store),
        timeline.view(whole=whole),
        timeline.config,
        as_of=as_of,
        as_of_completion=as_of_completion,
        named=named(timeline, {each.requested: each.completed or each.requested for each in past}),
    )
    older = () if past or not whole else timeline.archived_by(requested=as_of, completed=as_of_completion)
    completion = max((each.completed or each.requested for each in past), default=EARLIEST)
    return View(snapshot, schema or _newest_schema(timeline, past or older), completion)


def view_listed_later(
    timeline: Timeline,
    completed: str,
    schema: str | None,
    refuse: Callable[[str], None],
    named: Named,
) -> View:
    """The view of all commits with C up to ``completed``, whose partitions are listed one by one on demand.

    Args:
        schema: as in `cold_view`; ``named`` too.
        refuse: as in `ListedLater`.
    """
    past = timeline.completed_by(completed=completed)
    top = max((each.completed or each.requested for each in past), default=EARLIEST)
    snapshot = Snapshot(unlisted=ListedLater.of(timeline, completed, refuse, named))
    return View(snapshot, schema or _newest_schema(timeline, past), top)


def _newest_schema(timeline: Timeline, commits: Sequence[Instant]) -> str | None:
    for instant in reversed(commits):
        metadata = timeline.metadata(instant)
        if "latest_schema" in metadata.extra:
            name = timeline.config.name
            raise UnsupportedTableError(
                f"the columns of table {name} were changed by Hudi's schema-on-read ({instant.requested}), which finds a renamed "
                "column in older files by its number; this library goes by names, and would show nulls. Read it with Hudi and "
                "hoodie.schema.on.read.enable=true, or write it to another table with that",
                table=name,
                feature="schema_on_read",
            )
        if metadata.schema:
            return metadata.schema
    return timeline.config.create_schema


class ViewCache:
    """The newest view that a table handle has needed, and the commits since.

    A view belongs to one slot. On the timeline it is the commits with completion time up to ``top``, the largest time
    before the slot: every later commit's is greater.

    Args:
        cold: builds the view of all commits with a completion time up to its first argument, from one listing; the
            second is its schema, if the log has it.
        newest: builds the view now from one listing; returns it, its slot, and a follower from there on.
        files_of: returns the files of a commit for `Snapshot.after_all`.
    """

    def __init__(
        self,
        log: CommitLog,
        cold: Callable[[str, str | None], View],
        newest: Callable[[], tuple[View, int, Follower]],
        files_of: Callable[[Commit], Mapping[str, Any]],
    ) -> None:
        self._log, self._cold, self._newest, self._files_of = log, cold, newest, files_of
        self._mutex = threading.Lock()
        self._view: View | None = None
        self._slot = -1
        self._asked = self._bare = False
        self._since = Follower()
        self._head: tuple[int, View] | None = None  # the view after the commits since, for readers
        self._rollbacks: frozenset[str] = frozenset()  # of other engines, included in the view

    def newest(self) -> View:
        """The view of everything committed before this call. A warm handle only reads the head of the log."""
        with self._mutex:
            self._asked = True
            self._log.catch_up()
            if (
                self._is_useless()
                or not (self._view and self._view.snapshot.is_whole)
                or any(each.restores for each in self._since.commits)
            ):
                return self._looked_up(self._log.rollbacks, keep=True)
            passed, rollbacks = self._log.past_the_log()
            if passed or rollbacks != self._rollbacks:
                return self._looked_up(rollbacks, keep=not passed)
            try:
                return self._moved_to_head()
            # the metadata of a commit cannot be read; the timeline may have it
            except (CorruptTableError, StorageError):
                return self._looked_up(rollbacks, keep=True)

    def _looked_up(self, rollbacks: frozenset[str], *, keep: bool) -> View:
        self._log.lists_the_timeline()
        view, slot, later = self._newest()
        self._log.unfollow(self._since if keep else later)
        if keep:
            self._begin_with(view, slot, later, rollbacks)
        else:
            self._view = None  # the view may hold changes of another engine, which no commit of the log would undo
        return view

    def _moved_to_head(self) -> View:
        assert self._view is not None
        slot, view = self._head if self._head is not None and self._head[0] >= self._slot else (self._slot, self._view)
        waiting = list(self._since.commits)
        if more := [each for each in waiting if each.slot >= slot]:
            slot, view = more[-1].slot + 1, view.after_all(more, self._files_of)
            self._head = slot, view
        # a transaction that began before and has not read its snapshot yet has to list
        if len(waiting) > _COMMITS_KEPT:
            self._moved(view, slot, waiting)
        return view

    def at(self, slot: int, top: str, later: Follower) -> View:
        """The view of every commit before ``slot`` and no other; ``later`` follows the commits after it."""
        with self._mutex:
            self._asked = True
            view = self._warm(slot, top, later)
            return self._cold(top, self._told(slot)) if view is None else self._advance(view, slot)

    def schema_at(self, slot: int, top: str, later: Follower) -> str | None:
        """The schema of that view, without deriving its file slices."""
        with self._mutex:
            if self._view is None and (known := self._told(slot)):
                return known
            view = self._warm(slot, top, later)
            if view is None:
                return self._cold(top, self._told(slot)).schema
            if len(self._since.commits) > _COMMITS_KEPT:
                return (self._advance if self._asked else self._skip)(view, slot).schema
            return next((c.schema for c in reversed(self._since.commits) if c.slot < slot and c.schema), view.schema)

    def _warm(self, slot: int, top: str, later: Follower) -> View | None:
        """A view of an earlier slot to derive from; None for a transaction older than the kept view."""
        rollbacks = self._log.rollbacks
        if self._is_useless() or self._taken_back(slot) or rollbacks != self._rollbacks:
            view = self._cold(
                top, self._told(slot)
            )  # first: if it fails, the old view must not pass for one with a follower
            self._log.unfollow(self._since)
            self._begin_with(view, slot, self._log.follow(later), rollbacks)
        return self._view if self._slot <= slot else None

    def _told(self, slot: int) -> str | None:
        return self._log.state.schema_before(slot)

    def _is_useless(self) -> bool:
        return self._view is None or (self._bare and self._asked) or not self._since.complete

    def _begin_with(self, view: View, slot: int, since: Follower, rollbacks: frozenset[str]) -> None:
        # The follower may have begun before the slot; the view has those commits already.
        del since.commits[: bisect_left(since.commits, slot, key=lambda commit: commit.slot)]
        self._view, self._slot, self._bare, self._since = view, slot, False, since
        self._head, self._rollbacks = None, rollbacks

    def _taken_back(self, slot: int) -> bool:
        return any(commit.restores for commit in self._since.commits if commit.slot < slot)

    def _advance(self, view: View, slot: int) -> View:
        before = self._before(slot)
        return self._moved(view.after_all(before, self._files_of), slot, before)

    def _skip(self, view: View, slot: int) -> View:
        """Advance the schema and drop the slices: a handle that only adds files never asks for them."""
        before = self._before(slot)
        schema = next((each.schema for each in reversed(before) if each.schema), view.schema)
        self._bare = True
        return self._moved(View(Snapshot(), schema, view.completion), slot, before)

    def _before(self, slot: int) -> list[Commit]:
        waiting = self._since.commits
        return waiting[: bisect_left(waiting, slot, key=lambda commit: commit.slot)]

    def _moved(self, view: View, slot: int, counted: Sequence[Commit]) -> View:
        # not sooner: a commit that could not be read now must still be there next time
        del self._since.commits[: len(counted)]
        self._view, self._slot = view, slot
        return view
