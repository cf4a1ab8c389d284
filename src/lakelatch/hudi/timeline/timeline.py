"""The timeline: what has happened to the table, as its instants say.

One listing gives names, and names give everything but the content; the content of a commit is read when somebody asks.
Times on the timeline of version 6 are the writer's local ones and there is no completion time: order is that of T.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import CorruptTableError
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

# Where the active timeline of every table that this library writes lies; older ones differ (`timeline_folder`).
TIMELINE = ".hoodie/timeline"
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Timeline:
    """The active timeline at the moment of one listing.

    Attributes:
        store: where the instants lie.
        config: the table's.
        completed: completed instants of every action, in order of completion.
        pending: requested and inflight instants, each once in its later state, in order of T.
        empty: completed commits of zero bytes, which no reader survives.
    """

    store: Store
    config: TableConfig
    completed: tuple[Instant, ...]
    pending: tuple[Instant, ...]
    empty: tuple[Instant, ...] = ()
    _contents: dict[Instant, CommitMetadata] = field(default_factory=dict, compare=False, repr=False)
    _commits: list[tuple[Instant, ...]] = field(init=False, default_factory=list, compare=False, repr=False)

    @property
    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that change what a reader sees, in order of completion."""
        if not self._commits:  # found once: whoever opens the table asks several times
            self._commits.append(tuple(instant for instant in self.completed if instant.action in COMMIT_ACTIONS))
        return self._commits[0]

    @property
    def first_active(self) -> str | None:
        """Smallest T of a commit or of a plan for one, pending ones included. Files older than that are archived's."""
        times = [
            each.requested for each in (*self.completed, *self.pending) if _published(each.action) in COMMIT_ACTIONS
        ]
        return min(times, default=None)

    @property
    def first_landed(self) -> str | None:
        """Smallest T of a commit on the active timeline: unlike `first_active` not of a pending one, which may have come late."""
        return min((each.requested for each in self.commits), default=None)

    @property
    def latest_time(self) -> str | None:
        """The largest T or C of all instants, or None on an empty timeline."""
        times = [each.requested for each in (*self.completed, *self.pending)]
        times += [each.completed for each in self.completed if each.completed]
        return max(times, default=None)

    def completed_by(self, *, requested: str | None = None, completed: str | None = None) -> tuple[Instant, ...]:
        """The commits with T not after ``requested`` and C not after ``completed``, in order of completion."""
        return tuple(
            each
            for each in self.commits
            if (requested is None or each.requested <= requested)
            and (completed is None or (each.completed or each.requested) <= completed)
        )

    def without(self, requested: Collection[str]) -> Timeline:
        """The timeline as if these commits had not been: a restore has taken them back and their instants still stand."""
        kept = tuple(i for i in self.completed if i.requested not in requested or i.action not in COMMIT_ACTIONS)
        return replace(self, completed=kept)

    def plus(self, commits: Mapping[Instant, CommitMetadata]) -> Timeline:
        """The timeline as if these were on it too: they have landed, and are not published yet or a power cut took them."""
        there = {each.requested for each in commits}
        completed = sorted((*self.completed, *commits), key=lambda each: each.order)
        pending = tuple(each for each in self.pending if each.requested not in there)
        return replace(self, completed=tuple(completed), pending=pending, _contents={**self._contents, **commits})

    def taken_back(self) -> dict[str, str]:
        """T of the commits that restores have taken back: gone before the restore appeared, and perhaps put back since.

        Each with T of the restore.
        """
        undone: dict[str, str] = {}
        for each in self.completed:
            if each.action == "restore" and (stored := self.store.get(self.path(each))) and stored.body:
                with suppress(CorruptTableError):  # which `check` names; nobody's rows depend on it
                    names = decode_container(stored.body, "HoodieRestoreMetadata", name=self.path(each))[
                        "instantsToRollback"
                    ]
                    undone.update(dict.fromkeys(names, each.requested))
        return undone

    def path(self, instant: Instant) -> str:
        """Where the instant's file lies, relative to the table."""
        return f"{self.config.timeline_folder}/{file_name(instant, layout=self.config.layout)}"

    def metadata(self, instant: Instant) -> CommitMetadata:
        """What a completed commit says of itself; read once.

        Raises:
            CorruptTableError: the file is torn, empty or gone.
        """
        if instant not in self._contents:
            path = self.path(instant)
            name = path.rpartition("/")[2]
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
        """What a snapshot needs. Reads the replacecommits, and no other commit; the ``whole`` one also the history.

        That is for past completion times: without it an archived commit is taken to have completed at once.
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
        """What is known of files older than the timeline; None for table version 6, which we never archive."""
        return None if self.config.layout == 1 else ArchivedFiles(self.store)

    def archived_by(self, *, requested: str | None = None, completed: str | None = None) -> tuple[Instant, ...]:
        """The archived commits with T not after ``requested`` and C not after ``completed``, in order of completion."""
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
        found = _without_archived(listed, store, config)
        # An archival leaves the newest commit. Where none is left of those that were listed, or none was met, because what
        # was there went and what came was passed already, later ones have landed since.
        if any(i.state == "completed" and i.action in COMMIT_ACTIONS for i in found) or not _has_history(store, config):
            break
    completed, pending = _by_state(found)
    return Timeline(store, config, completed, pending, tuple(empty))


def _has_history(store: Store, config: TableConfig) -> bool:
    return config.layout != 1 and History(store, config.timeline_folder).begun()


def _listed(store: Store, config: TableConfig, *, tolerate_empty: bool) -> tuple[list[Instant], list[Instant]]:
    """All instants there are, and those of them that are empty."""
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
    """Of the others nothing but the names is read, and there are two for each commit."""
    return not name.endswith((".requested", ".inflight"))


def _without_archived(found: list[Instant], store: Store, config: TableConfig) -> list[Instant]:
    """Those that are not in the history, which is read after they were listed.

        t=0  an archiver has put instants 1 to 3 into the history, and takes 1 away
        t=1  the table is listed: 2 is met before it goes, and 3 is not, since it has gone
        t=2  files of 3 would count for nothing, because 2 is the first active instant and nobody tells of 3

    The same with one that its publisher put back late (`Publisher.publish`), and with a pending one whose put arrived again:
    the files of its commit would not count, as they are not older than the first active instant.
    """
    commits = [i.requested for i in found if _published(i.action) in COMMIT_ACTIONS]
    history = History(store, config.timeline_folder)
    if config.layout == 1 or not commits or not history.begun():
        return found
    first, last = min(commits), max(commits)
    try:
        archived = history.instants(first=first, last=last).values()
    except CorruptTableError:  # which `check` names; nobody's rows depend on it
        return found
    gone = {(i.requested, i.action) for i in archived if i.requested >= first}
    return [i for i in found if (i.requested, _published(i.action)) not in gone]


def has_archive(store: Store, config: TableConfig) -> bool:
    """Whether there is, or may be, an archive of older instants."""
    # Where it lies has changed with the versions; anything in one of these places is one.
    folders = [".hoodie/archived", f"{config.timeline_folder}/history"]
    if named := config.raw.get("hoodie.archivelog.folder"):
        folders.append(f".hoodie/{named}")
    return any(store.list(folder, recursive=True) for folder in folders)


def _by_state(found: Iterable[Instant]) -> tuple[tuple[Instant, ...], tuple[Instant, ...]]:
    """Completed instants, and pending ones that are not completed, each once."""
    instants = list(found)
    completed = [each for each in instants if each.state == "completed"]
    done = {(each.requested, each.action) for each in completed}
    pending: dict[tuple[str, str], Instant] = {}
    for each in instants:
        key = (each.requested, _published(each.action))
        # Of one pending instant the inflight file is the later state.
        if each.state != "completed" and key not in done and (key not in pending or each.state == "inflight"):
            pending[key] = each
    return (
        tuple(sorted(completed, key=lambda each: each.order)),
        tuple(sorted(pending.values(), key=lambda each: each.requested)),
    )


def _published(action: str) -> str:
    return COMPLETED_AS.get(action, action)
