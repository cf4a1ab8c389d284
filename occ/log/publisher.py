"""The timeline as the log's publication: instants that Hudi's readers see, in the order of the log.

`Publisher` is idempotent and may be called by any process: the bytes are a function of the log entry.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from ...ahead import Task, in_order
from ...conflict import Values
from ...environment import Environment
from ...errors import CorruptTableError, LakeLatchError, StorageError
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    COMPLETED_AS,
    TIMELINE,
    CommitMetadata,
    History,
    Instant,
    decode_commit,
    decode_container,
    encode_commit,
    file_name,
    parse,
    parse_unknown,
)
from ...storage import Outcome, Store, is_far, secured
from ..entries import (
    INLINE_BYTES,
    Commit,
    Landed,
    content_of,
    echo_body,
    hash_of,
    held,
    instant_body,
    put_aside,
    read_aside,
    to_entry,
    undone_by,
)
from .standing_batches import archived_by, standing_batches

FOLDER_KEEPER = ".lakelatch"  # on the timeline; the JVM fails when a folder that it lists is not there
# Services of other engines whose instants change no row, and so no commit of ours; a restore takes commits back.
# Rollbacks are not among them, because readers must learn of them: one may undo a completed commit.
_CHANGE_NOTHING = frozenset({"clean", "indexing", "savepoint", "schemacommit"})
_STEPS = (1, 2, 4, 8, 16, 32)  # back from the end of an entry, when searching for its first unpublished commit
_TRIES = 8  # requests until an answer
_AT_ONCE = 64  # instants that are put at the same time
_OF_FILES = ("path", "partition", "file_size", "log_files")  # of the statistics of a file
_INLINE_FILES = 256  # with more files the metadata goes into a side object, encoded piece by piece
_log = logging.getLogger("lakelatch.log")
_NONE: Mapping[str, Values] = {}


def attach(
    store: Store,
    commit: Commit,
    metadata: CommitMetadata,
    values: Mapping[str, Values] = _NONE,
    *,
    inline_bytes: int = INLINE_BYTES,
) -> Commit:
    """Return the entry with its metadata and the values of its unique columns.

    They are inline, or, above ``inline_bytes``, in side objects that are written and read back first.
    """
    bare, recent = replace(metadata, schema=None), weakref.ref(metadata)

    def aside(name: str, pieces: Iterable[bytes]) -> dict[str, str]:
        path, digest = put_aside(store, f"{commit.instant}-{name}", pieces)
        return {"path": path, "sha256": digest}

    unique = to_entry(values, lambda packed: aside(f"{hash_of([packed])[:16]}.hashes", [packed]))
    if len(bare.stats) <= _INLINE_FILES:
        plain = bare.to_json() | ({"unique": unique} if unique else {})
        body = json.dumps(plain, separators=(",", ":")).encode()
        if len(body) <= inline_bytes:
            return replace(commit, metadata=plain, recent=recent)
    # The file names identify the content, so that the path is known before everything is encoded.
    paths = hash_of(path.encode() for stat in bare.stats for path in stat.paths)[:16]
    pieces = (piece.encode() for piece in bare.json_pieces({"unique": unique} if unique else {}))
    return replace(commit, side=aside(f"{paths}.json", pieces), recent=recent)


def metadata_of(store: Store, commit: Commit) -> CommitMetadata:
    """The metadata of a commit. Raise `CorruptTableError` if its side object is gone or altered."""
    recent = commit.recent() if commit.recent else None
    content = recent or CommitMetadata.from_json(plain_metadata_of(store, commit))
    return replace(content, schema=commit.schema)


def plain_metadata_of(store: Store, commit: Commit) -> dict[str, Any]:
    """The metadata as the plain values of the log entry, without the schema."""
    if commit.metadata is not None:
        kept = commit.metadata.get("held")
        return commit.metadata if kept is None else {**commit.metadata, **held(store, kept)}
    assert commit.side is not None
    path = commit.side["path"]
    body = read_aside(store, path, commit.side["sha256"])
    if body is None:
        if (published := _published(store, commit)) is not None:
            return published.to_json()
        raise CorruptTableError(
            f"{store.url}: the side object {path} of commit {commit.instant} is missing or altered; restore it, or "
            "rebuild the log with `lakelatch adopt`",
            path=path,
            instant=commit.instant,
        )
    try:
        return content_of(body)
    except ValueError as e:
        raise CorruptTableError(
            f"{store.url}: the side object {path} of commit {commit.instant} cannot be understood: {e}. Restore it, or "
            "rebuild the log with `lakelatch adopt`",
            path=path,
            instant=commit.instant,
        ) from e


def files_of(store: Store, commit: Commit) -> dict[str, Any]:
    """The metadata for a snapshot (`Snapshot.after_all`), files only; our own side object is not read back."""
    recent = commit.recent() if commit.recent and commit.side else None
    return recent.to_json() if recent else plain_metadata_of(store, commit)


def files_only(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a commit's plain metadata what says which files it wrote and replaced."""
    stats = [{each: stat.get(each) for each in _OF_FILES} for stat in metadata.get("stats", ())]
    return {"stats": stats, "replaced": metadata.get("replaced", {})}


def _published(store: Store, commit: Commit) -> CommitMetadata | None:
    """The metadata from the published instant, which is complete: a lost side object must block nobody."""
    name = file_name(Instant(commit.instant, commit.action, "completed", commit.completion))
    stored = store.get(f"{TIMELINE}/{name}")
    return None if stored is None else decode_commit(stored.body, name=name, layout=2, table=store.url)


def _says_the_same(one: Commit, other: Commit) -> bool:
    # A commit that was merged again has other metadata, and another writer may have put it into the log.
    same = one.metadata is other.metadata or one.metadata == other.metadata
    return same and one.schema == other.schema and one.side == other.side


class Publisher:
    """The publication of a table's log on its timeline, which is in ``folder``."""

    def __init__(self, store: Store, env: Environment, folder: str, *, merge_on_read: bool = False) -> None:
        self._store, self._env, self._folder = store, env, folder
        self.folder, self.merge_on_read = folder, merge_on_read
        self._history = History(store, folder)
        self._ready: dict[str, tuple[Commit, bytes]] = {}  # by instant
        self._far = is_far(store.url)
        self._looks: list[Task[None]] = []
        self._mutex = threading.Lock()  # guards that list

    @contextmanager
    def ready(self, commit: Commit) -> Iterator[None]:
        """Keep the instant of that commit prepared in the block, except its name, which depends on the slot.

        ``commit`` is the entry as it will most likely be. If it commits with another schema, its instant is encoded
        again.
        """
        if commit.action not in COMMIT_ACTIONS:  # the instant of a table service depends on its slot
            yield
            return
        with self._store.settled(self._folder, self._body(commit)) as body:
            self._ready[commit.instant] = commit, body
            try:
                yield
            finally:
                del self._ready[commit.instant]

    def publish(self, commit: Commit, *, unseen: bool = False, durable: bool = False) -> None:
        """Put the completed instant on the timeline. Raise `StorageError` if that fails.

            t=0  a publisher finds no instant of commit 3 on the timeline, and is suspended
            t=1  others publish it, and the timeline is archived up to commit 5
            t=2  its put succeeds: 3 is the first active instant now, and nobody sees 4 and 5 (trap 4)

        So after its put the publisher checks the archive, where the instant stood before it left the timeline, and
        withdraws its own. On a far store nobody waits for that check: a process stopped before it equals one that was
        killed then.

        ``unseen``: most likely not published yet; put it without a check. ``durable``: the name is on disk as well.
        """
        for name in commit.published:
            self._put(commit, name, unseen=unseen, durable=durable)

    def publish_at_once(self, commits: Sequence[Commit], *, unseen: bool = False) -> Iterator[Commit]:
        """Publish the commits of one entry at the same time, in any order; yield each in its turn."""
        puts = [partial(self.publish, each, unseen=unseen and each.side is None) for each in commits]
        for each, _ in zip(commits, in_order(self._env, puts, _AT_ONCE), strict=True):
            yield each

    def publish_all(self, commits: Sequence[Commit], *, unseen: bool = False) -> None:
        """Publish the commits of one entry, in their order.

        Publishing one implies publishing those before it, so search for the first that is missing: from the end, by
        growing steps, then by halves. On a far store all steps are checked together. ``unseen``: on a far store, put
        those after the first missing one without a check, because others wait for the caller.
        """
        shown, first, step = 0, len(commits) - 1, 1
        while shown < first:
            if self._far:
                looked = [first - each for each in _STEPS if first - each >= shown]
                there = in_order(self._env, [partial(self.shows, commits[each]) for each in looked], len(_STEPS))
                for place, is_there in zip(looked, there, strict=True):
                    if is_there:
                        shown = place + 1
                        break
                    first = place
                continue
            place = first - min(step, (first - shown + 1) // 2)
            if self.shows(commits[place]):
                shown = place + 1
            else:
                first, step = place, 2 * step
        for commit in commits[first:]:
            self.publish(commit, unseen=unseen and self._far and commit.side is None)

    def can_publish(self, commit: Commit) -> bool:
        """Return whether an instant can be encoded. A commit for which that fails would block every later append."""
        try:
            return bool(self._body(commit))
        except (LakeLatchError, ValueError, TypeError, KeyError, AttributeError, IndexError) as e:
            _log.info("%s: what was prepared of %s cannot be published: %s", self._store.url, commit.instant, e)
            return False

    def shows(self, commit: Commit) -> bool:
        """Return whether everything that `publish` would put is on the timeline."""
        return all(self._store.head(f"{self._folder}/{name}") is not None for name in commit.published)

    def _put(self, commit: Commit, name: str, *, unseen: bool = False, durable: bool = False) -> None:
        store, path = self._store, f"{self._folder}/{name}"
        # Another writer has most likely published its own commit; the check avoids reading its metadata.
        if not unseen and commit.instant not in self._ready and store.head(path) is not None:
            return
        body = echo_body(commit.schema) if name == commit.echo else self._body(commit)
        for _ in self._tries():
            # "bytes": never torn. A name lost in a power cut is restored from the log by the next handle.
            put = store.put_if_absent(path, body, durable=durable or "bytes")
            if durable and put.outcome is Outcome.LOST:
                put = store.secure(path)  # of an earlier try, whose flush may have failed
            if put.outcome is not Outcome.UNKNOWN or (not durable and store.head(path)):
                if put.outcome is Outcome.LOST:
                    return
                if self._far:
                    with self._mutex:
                        self._looks = [each for each in self._looks if not each.ended]
                        self._looks.append(Task(self._env, partial(self._withdraw_if_archived, name, path)))
                else:
                    self._withdraw_if_archived(name, path)
                return
        raise StorageError(
            f"{store.url}: commit {commit.instant} has landed in the log but its instant {path} could not be put on the "
            "timeline; the next writer or `lakelatch rollback` publishes it",
            instant=commit.instant,
        )

    def _withdraw_if_archived(self, name: str, path: str) -> None:
        if self._is_archived(name):
            self._store.delete(path)

    def close(self) -> None:
        """Wait for the pending archive checks. Idempotent."""
        for look in self._looks:
            look.wait()

    def _tries(self) -> Iterator[None]:
        """Yield once per try, with growing pauses between them."""
        for number in range(_TRIES):
            yield
            self._env.sleep(0.05 * 2**number)

    def _is_archived(self, name: str) -> bool:
        instant = name.partition("_")[0]
        try:
            return self._history.begun() and name in self._history.instants(first=instant, last=instant)
        except CorruptTableError:  # `check` reports it; it must not stop anybody from writing
            return False

    def _body(self, commit: Commit) -> bytes:
        expected, body = self._ready.get(commit.instant, (None, b""))
        if expected is not None and _says_the_same(expected, commit):
            return body
        if commit.action in COMMIT_ACTIONS:
            return encode_commit(metadata_of(self._store, commit), replace=commit.action == "replacecommit")
        return instant_body(self._store, commit)

    def take_back(self, undone: Iterable[Instant]) -> None:
        """Remove these instants from the timeline."""
        for instant in undone:
            self._take_pending_away(instant)
            # Last, because a retry finds what is to be removed by this name.
            self._take_away(file_name(instant))

    def take_archived(self, instants: Iterable[Instant], *, pause_s: float) -> None:
        """Remove these instants from the timeline, the pending files of all first, and a pause before the completed ones.

        t=0  a JVM lists the timeline; it has come to T.commit.inflight, and not yet to T_C.commit
        t=1  an archival deletes both
        t=2  the JVM finds a pending instant that is not completed: it rolls it back, with its files
        """
        gone = list(instants)
        for each in gone:
            self._take_pending_away(each)
        if gone and pause_s:
            self._env.sleep(pause_s)
        for each in gone:
            self._take_away(file_name(each))

    def _take_pending_away(self, instant: Instant) -> None:
        actions = [action for action, completed in COMPLETED_AS.items() if completed == instant.action]
        for action in (instant.action, *actions):
            for state in ("requested", "inflight"):
                self._take_away(file_name(Instant(instant.requested, action, state)))

    def _take_away(self, name: str) -> None:
        for _ in self._tries():
            if self._store.delete(f"{self._folder}/{name}") is not Outcome.UNKNOWN:
                return
        raise StorageError(
            f"{self._store.url}: {name} has been taken back and could not be deleted from the timeline; the next writer or "
            "`lakelatch rollback` does it",
            instant=name,
        )

    def reconcile(self, commits: Sequence[Commit], may: Callable[[list[Instant]], bool] = lambda _: True) -> bool:
        """Publish the ``commits`` (in slot order) that one listing of the timeline does not show.

        First remove the instants that they undid, newest first, so that every intermediate timeline is one of an
        earlier moment. ``may`` is called before, with the commit instants of the listing. Return False if it forbids a
        repair that is needed.
        """
        names = set(self._store.names(self._folder))
        undone, lost = {name for each in commits for name in _undone(each)}, self.missing(commits, names)
        if not may(_of_commits(names - undone)) and (lost or undone & names):
            return False
        self._take_undone(commits, names)
        for commit, name in lost:
            self._put(commit, name)
        return True

    def missing(self, commits: Sequence[Commit], names: Collection[str]) -> list[tuple[Commit, str]]:
        """Return the instants of ``commits`` (in slot order) that these names lack, except those removed on purpose.

        The newest entry may not be published yet; older instants were lost in a power cut. Archived and rolled-back
        ones were removed on purpose. Instants older than all names count too: the oldest may be the lost ones.
        """
        undone = {name for commit in commits for name in commit.undone}
        found = [(c, n) for c in commits for n in c.published if n not in names and n not in undone]
        if all(commit.slot == commits[-1].slot for commit, _ in found):
            return found
        gone = self._rolled_back(names)
        return [
            (c, n) for c, n in found if c.slot == commits[-1].slot or not (c.instant in gone or self._is_archived(n))
        ]

    def _rolled_back(self, names: Iterable[str]) -> set[str]:
        """T of the commits that other engines have rolled back."""
        found: set[str] = set()
        for name in names:
            if name.endswith(".rollback") and (body := self._store.body(f"{self._folder}/{name}")):
                with suppress(CorruptTableError):  # `check` reports it
                    found.update(decode_container(body, "HoodieRollbackMetadata", name=name)["commitsRollback"])
        return found

    def keep_away(self, commits: Iterable[Commit]) -> None:
        """Remove from the timeline what these commits undid; a late put may have brought it back."""
        self._take_undone(commits, set(self._store.names(self._folder)))

    def _take_undone(self, commits: Iterable[Commit], names: set[str]) -> None:
        """Remove from the timeline those of ``names`` that ``commits`` undid."""
        undone: dict[str, Instant] = {}
        archived: set[str] = set()
        for commit in commits:
            undone |= _undone(commit)
            archived.update(commit.undone if commit.operation == "ARCHIVE" else ())
        there = undone.keys() & names
        self.take_back(undone[name] for name in sorted(there & archived))  # archived ones oldest first
        self.take_back(sorted((undone[name] for name in there - archived), key=lambda each: each.order, reverse=True))

    def since(self, first: str, known: Callable[[str], bool] = lambda _: False) -> list[Instant]:
        """Return the instants of commits and rollbacks from that T on, without ``known`` T, by one ranged listing."""
        names = self._store.names(self._folder, after=first)
        return _of_commits(name for name in names if not known(name.partition(".")[0].partition("_")[0]))

    def content(self, instant: Instant) -> CommitMetadata | None:
        """The content of a completed commit on the timeline; None if it is gone."""
        body = self._store.body(f"{self._folder}/{file_name(instant)}")
        return None if body is None else decode_commit(body, name=file_name(instant), layout=2, table=self._store.url)

    def standing(self, sources: Collection[str], completed: str) -> tuple[Landed, ...]:
        """The newest batches of these sources by the commits that the timeline and its archive show up to that C."""
        shown = [each for each in self.since("") if each.action in COMMIT_ACTIONS and each.completed]
        newest = sorted((each for each in shown if each.order[0] <= completed), key=lambda i: i.order, reverse=True)
        active = ((each, content) for each in newest if (content := self.content(each)) is not None)
        archived = archived_by(self._history, completed, table=self._store.url)
        return standing_batches(chain(active, archived), sources)

    def lacking(self, commits: Sequence[Commit], *, but: Collection[str] = ()) -> list[str]:
        """T of the commits that the timeline lacks without explanation; ``but`` names instants that are meant to be gone."""
        names = set(self._store.names(self._folder))
        shown = [found for found in (parse(name, layout=2) for name in names) if found]
        # Explanations: archival removes older instants; a restore, or another engine's rollback, removes those it
        # undoes.
        first = _first_active(shown)
        undone = max((each.requested for each in shown if each.action in ("restore", "rollback")), default="")
        wanted = ((_begun_at(c, name), name) for c in commits for name in c.published if name not in but)
        return [instant for instant, name in wanted if instant >= max(first, undone) and name not in names]

    def secure(self) -> None:
        """Flush everything published so far, names and bytes. Raise `StorageError` if that fails."""
        put = self._store.put(f"{self._folder}/{FOLDER_KEEPER}", b"", durable=True)
        if put.done:
            return
        for name in self._store.names(self._folder):
            found = parse(name, layout=2)
            if (
                found
                and found.state == "completed"
                and secured(self._store, f"{self._folder}/{name}").outcome is Outcome.UNKNOWN
            ):
                raise StorageError(
                    f"{self._store.url}: the timeline could not be flushed ({put.cause}), so this epoch of the log goes on; the "
                    "next writer tries again. See whether the disk is failing",
                    path=self._folder,
                )

    def completion_of(self, instant: str) -> str | None:
        """C of a completed or archived transaction, else None. One listing."""
        for name in self._store.names(self._folder, after=f"{instant}_"):
            found = parse(name, layout=2)
            if found is None or found.requested != instant:
                break
            if found.action != "savepoint":  # it bears the name of the commit that it keeps
                return found.completed
        return self._history.completion_of(instant) if self._history.begun() else None


def _undone(commit: Commit) -> dict[str, Instant]:
    return {file_name(each): each for each in undone_by(commit)}


def _begun_at(commit: Commit, name: str) -> str:
    """T of one of its instants. A savepoint's name has that of the commit that it keeps."""
    return commit.schema_under if name == commit.echo else commit.instant


def _first_active(shown: Iterable[Instant]) -> str:
    """T of the oldest commit, or plan for one. Other services stay when the instants around them are archived."""
    commits = (each.requested for each in shown if COMPLETED_AS.get(each.action, each.action) in COMMIT_ACTIONS)
    return min(commits, default="")


def _of_commits(names: Iterable[str]) -> list[Instant]:
    """The instants that may change rows, each once, completed or pending. Unknown actions are included."""
    found = [
        i
        for i in (parse(name, layout=2) or parse_unknown(name) for name in names)
        if i and COMPLETED_AS.get(i.action, i.action) not in _CHANGE_NOTHING
    ]
    done = {i.requested for i in found if i.state == "completed"}
    return [i for i in found if i.state == "completed" or i.requested not in done]
