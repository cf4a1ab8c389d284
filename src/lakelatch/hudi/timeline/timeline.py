"""The timeline: the history of the table, as its instants record it.

One listing gives the names, and names give everything but the content; a commit's content is read when it is needed. Times on
a version 6 timeline are the writer's local ones without completion times: order is by T.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import CorruptTableError
from ...notebook import view
from ..files import FileGroupId, lies_outside
from ..table import TableConfig
from .archived import History
from .archived_files import ArchivedFiles
from .avro_container import decode_container
from .commit_metadata import CommitMetadata, decode_commit
from .instant import COMMIT_ACTIONS, COMPLETED_AS, Instant, file_name, parse
from .snapshot import Replacement, TimelineView

if TYPE_CHECKING:
    from ...storage import Store

# The folder of the active timeline in every table that this library writes; older tables differ (`timeline_folder`).
TIMELINE = ".hoodie/timeline"
_LOOKS = 3
_SHOWN = 20  # instants, in a notebook


@dataclass(frozen=True, slots=True)
class Timeline:
    """The active timeline at the moment of one listing.

    Attributes:
        store: the table's store.
        config: the table's.
        completed: completed instants of every action, in order of completion.
        pending: requested and inflight instants, each once in its later state, in order of T.
        empty: completed commits of zero bytes, which no reader survives.
        archived: something has been archived.
    """

    store: Store
    config: TableConfig
    completed: tuple[Instant, ...]
    pending: tuple[Instant, ...]
    empty: tuple[Instant, ...] = ()
    archived: bool = True
    _contents: dict[Instant, CommitMetadata] = field(default_factory=dict, compare=False, repr=False)
    _commits: list[tuple[Instant, ...]] = field(init=False, default_factory=list, compare=False, repr=False)

    def _repr_html_(self) -> str:
        instants = (*self.completed, *self.pending)
        return view(
            f"timeline of {self.store.url}: {len(self.completed):,} completed, {len(self.pending):,} pending",
            headers=("requested", "completed", "action", "state"),
            rows=[
                (each.requested, each.completed or "", each.action, each.state) for each in reversed(instants[-_SHOWN:])
            ],
            below=f"the newest {_SHOWN} of {len(instants):,}" if len(instants) > _SHOWN else "",
        )

    @property
    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that change what a reader sees, in order of completion."""
        if not self._commits:  # cached: opening a table asks several times
            self._commits.append(tuple(instant for instant in self.completed if instant.action in COMMIT_ACTIONS))
        return self._commits[0]

    @property
    def first_active(self) -> str | None:
        """Smallest T of a commit or of a plan for one, pending ones included. Files older than that belong to archived
        commits.
        """
        times = [
            each.requested for each in (*self.completed, *self.pending) if _published(each.action) in COMMIT_ACTIONS
        ]
        return min(times, default=None)

    @property
    def first_landed(self) -> str | None:
        """Smallest T of a commit on the active timeline. Unlike `first_active` it ignores pending instants, which may have
        come late.
        """
        return min((each.requested for each in self.commits), default=None)

    @property
    def latest_time(self) -> str | None:
        """The largest T or C of all instants, or None on an empty timeline."""
        times = [each.requested for each in (*self.completed, *self.pending)]
        times += [each.completed for each in self.completed if each.completed]
        return max(times, default=None)

    def completed_by(self, *, requested: str | None = None, completed: str | None = None) -> tuple[Instant, ...]:
        """Return the commits with T not after ``requested`` and C not after ``completed``, in order of completion."""
        return tuple(
            each
            for each in self.commits
            if (requested is None or each.requested <= requested)
            and (completed is None or (each.completed or each.requested) <= completed)
        )

    def without(self, requested: Collection[str]) -> Timeline:
        """Return the timeline without these commits: a restore has undone them and their instants are still there."""
        kept = tuple(i for i in self.completed if i.requested not in requested or i.action not in COMMIT_ACTIONS)
        return replace(self, completed=kept)

    def plus(self, commits: Mapping[Instant, CommitMetadata]) -> Timeline:
        """Return the timeline with these commits too: committed, and not yet published or lost in a power cut."""
        there = {each.requested for each in commits}
        completed = sorted((*self.completed, *commits), key=lambda each: each.order)
        pending = tuple(each for each in self.pending if each.requested not in there)
        return replace(self, completed=tuple(completed), pending=pending, _contents={**self._contents, **commits})

    def taken_back(self) -> dict[str, str]:
        """Return T of the commits that restores have undone -> T of the restore.

        Their instants were deleted before the restore appeared, and may have been put back since.
        """
        undone: dict[str, str] = {}
        for each in self.completed:
            if each.action == "restore" and (stored := self.store.get(self.path(each))) and stored.body:
                with suppress(CorruptTableError):  # `check` reports it; no rows depend on it
                    names = decode_container(stored.body, "HoodieRestoreMetadata", name=self.path(each))[
                        "instantsToRollback"
                    ]
                    undone.update(dict.fromkeys(names, each.requested))
        return undone

    def path(self, instant: Instant) -> str:
        """Return the path of the instant's file, relative to the table."""
        return f"{self.config.timeline_folder}/{file_name(instant, layout=self.config.layout)}"

    def metadata(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed commit; it is read once.

        Raises:
            CorruptTableError: the file is torn, empty or gone.
        """
        if instant not in self._contents:
            path = self.path(instant)
            name = path.rpartition("/")[2]
            # An archival may have moved the instant into the history since the timeline was listed.
            stored = self.store.get(path)
            if stored is None and self.config.layout == 2:
                archived = History(self.store, self.config.timeline_folder).metadata(instant)
                if archived is not None:
                    self._contents[instant] = archived
                    return archived
            if stored is None:
                raise CorruptTableError(
                    f"Instant {name} of table {self.config.name} has vanished since the timeline was listed; it was "
                    "restored away meanwhile. Open the table again",
                    instant=name,
                    table=self.config.name,
                )
            content = decode_commit(stored.body, name=name, layout=self.config.layout, table=self.config.name)
            _refuse_outside(content, name, self.config.name)
            self._contents[instant] = content
        return self._contents[instant]

    def view(self, *, whole: bool = False) -> TimelineView:
        """Return the view that a snapshot needs. Reads the replacecommits and no other commit; ``whole`` reads the history
        too.

        The history matters for past completion times: without it an archived commit counts as completed at its T.
        """
        replacements = []
        for instant in self.commits:
            if instant.action == "replacecommit":
                replaced = self.metadata(instant).replaced
                groups = tuple(FileGroupId(partition, each) for partition, ids in replaced.items() for each in ids)
                replacements.append(Replacement(instant.requested, instant.completed or instant.requested, groups))
        known = (*self._archived(), *self.commits) if whole else self.commits
        completion = {each.requested: each.completed or each.requested for each in known}
        first = self.first_landed or self.first_active
        return TimelineView(completion, self.first_active, tuple(replacements), first, self.archived_files())

    def archived_files(self) -> ArchivedFiles | None:
        """Return which files older than the timeline count; None for table version 6, which we never archive."""
        if self.config.layout == 1:
            return None
        return ArchivedFiles(self.store, History(self.store, self.config.timeline_folder), begun=self.archived)

    def archived_by(self, *, requested: str | None = None, completed: str | None = None) -> tuple[Instant, ...]:
        """Return the archived commits with T not after ``requested`` and C not after ``completed``, in order of completion."""
        return replace(self, completed=self._archived()).completed_by(requested=requested, completed=completed)

    def _archived(self) -> tuple[Instant, ...]:
        if self.config.layout == 1:
            return ()
        found = History(self.store, self.config.timeline_folder).instants().values()
        return tuple(sorted((each for each in found if each.action in COMMIT_ACTIONS), key=lambda each: each.order))


def _refuse_outside(content: CommitMetadata, name: str, table: str) -> None:
    for path in content.places():
        if lies_outside(path):
            raise CorruptTableError(
                f"Instant {name} of table {table} names {path}, which does not lie in the table. Nothing there was touched; "
                "restore the instant from a copy, or roll its commit back with the engine that made it",
                instant=name,
                table=table,
                outside=path,
            )


def read_timeline(store: Store, config: TableConfig, *, tolerate_empty: bool = False) -> Timeline:
    """List the active timeline.

    Args:
        store: at the table's root.
        config: the table's.
        tolerate_empty: name zero-byte commits in `Timeline.empty` instead of raising, for a check.

    Raises:
        CorruptTableError: a completed commit of zero bytes.
    """
    config.refuse_opening()
    for _ in range(_LOOKS):
        listed, empty = _listed(store, config, tolerate_empty=tolerate_empty)
        begun = _has_history(store, config)  # after the listing, so that it is never older than it
        found = _without_archived(listed, store, config) if begun else listed
        # An archival always leaves the newest commit. If no listed commit is left, or none was listed because the old ones
        # went and the new ones sort before the point the listing had reached, later commits have completed: list again.
        if not begun or any(i.state == "completed" and i.action in COMMIT_ACTIONS for i in found):
            break
    completed, pending = _by_state(found)
    return Timeline(store, config, completed, pending, tuple(empty), begun)


def _has_history(store: Store, config: TableConfig) -> bool:
    return config.layout != 1 and History(store, config.timeline_folder).begun()


def _listed(store: Store, config: TableConfig, *, tolerate_empty: bool) -> tuple[list[Instant], list[Instant]]:
    """Return all instants, and the empty commits among them."""
    found: list[Instant] = []
    empty: list[Instant] = []
    for entry in store.list(config.timeline_folder, sized=_is_completed):
        instant = parse(entry.name, layout=config.layout)
        if instant is None:
            continue
        found.append(instant)
        if entry.size == 0 and instant.state == "completed" and instant.action in COMMIT_ACTIONS:
            if not tolerate_empty:
                raise CorruptTableError(
                    f"Instant {entry.name} of table {config.name} is empty: one reader fails on it, the other takes it "
                    "for one without rows. Restore it from a copy or delete it; `lakelatch check` names its files",
                    instant=entry.name,
                    table=config.name,
                )
            empty.append(instant)
    return found, empty


def _is_completed(name: str) -> bool:
    """Return whether an instant's size is needed. Of the two pending files of each commit only the names are."""
    return not name.endswith((".requested", ".inflight"))


def _without_archived(found: list[Instant], store: Store, config: TableConfig) -> list[Instant]:
    """Return the instants that are not in the history, which is read after the listing.

        t=0  an archiver has put instants 1 to 3 into the history, and deletes 1
        t=1  the table is listed: 2 is met before it goes, and 3 is not, since it has gone
        t=2  files of 3 would not count, because 2 is the first active instant and 3 is unknown

    The same holds for an instant that its publisher put back late (`Publisher.publish`), and for a pending one whose put
    arrived twice: files of its commit would not count, as they are not older than the first active instant.
    """
    commits = [i.requested for i in found if _published(i.action) in COMMIT_ACTIONS]
    history = History(store, config.timeline_folder)
    if not commits:
        return found
    first, last = min(commits), max(commits)
    try:
        archived = history.instants(first=first, last=last).values()
    except CorruptTableError:  # `check` reports it; no rows depend on it
        return found
    gone = {(i.requested, i.action) for i in archived if i.requested >= first}
    return [i for i in found if (i.requested, _published(i.action)) not in gone]


def has_archive(store: Store, config: TableConfig) -> bool:
    """Return whether there is, or may be, an archive of older instants."""
    # Its folder changed with the versions; anything in one of these is an archive.
    folders = [".hoodie/archived", f"{config.timeline_folder}/history"]
    if named := config.raw.get("hoodie.archivelog.folder"):
        folders.append(f".hoodie/{named}")
    return any(store.list(folder, recursive=True) for folder in folders)


def _by_state(found: Iterable[Instant]) -> tuple[tuple[Instant, ...], tuple[Instant, ...]]:
    """Return completed instants, and pending ones that are not completed, each once."""
    instants = list(found)
    completed = [each for each in instants if each.state == "completed"]
    done = {(each.requested, each.action) for each in completed}
    pending: dict[tuple[str, str], Instant] = {}
    for each in instants:
        key = (each.requested, _published(each.action))
        # A pending instant has a requested and an inflight file; inflight is the later state.
        if each.state != "completed" and key not in done and (key not in pending or each.state == "inflight"):
            pending[key] = each
    return (
        tuple(sorted(completed, key=lambda each: each.order)),
        tuple(sorted(pending.values(), key=lambda each: each.requested)),
    )


def _published(action: str) -> str:
    return COMPLETED_AS.get(action, action)
