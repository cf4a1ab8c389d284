"""The timeline as the log's publication: instants that Hudi's readers see, in the order of the log.

`Publisher` may be asked by anybody, any number of times: the bytes are a function of the log entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..environment import Environment
from ..errors import DamagedTableError, StorageError
from ..storage import Outcome, Store
from .avro import CommitMetadata, decode_commit, encode_commit
from .instant import COMMIT_ACTIONS, Instant, file_name, parse
from .log_state import Commit
from .timeline import TIMELINE

SIDES = ".hoodie/.lakelatch/sides"
_INLINE_BYTES = 64 * 1024


def attach(store: Store, commit: Commit, metadata: CommitMetadata) -> Commit:
    """The entry with its metadata: inline, or in a side object that is written and read back first."""
    plain = replace(metadata, schema=None).to_json()
    body = json.dumps(plain, separators=(",", ":")).encode()
    if len(body) <= _INLINE_BYTES:
        return replace(commit, metadata=plain)
    digest = hashlib.sha256(body).hexdigest()
    path = f"{SIDES}/{commit.instant}-{digest[:16]}.json"
    store.put_if_absent(path, body)
    stored = store.get(path)
    if stored is None or stored.body != body:
        raise StorageError(
            f"{store.url}: the side object {path} could not be written; nothing landed, try again", path=path
        )
    return replace(commit, side={"path": path, "sha256": digest})


def metadata_of(store: Store, commit: Commit) -> CommitMetadata:
    """What the commit did. Raises `DamagedTableError` when its side object is gone or altered."""
    return replace(CommitMetadata.from_json(plain_metadata_of(store, commit)), schema=commit.schema)


def plain_metadata_of(store: Store, commit: Commit) -> dict[str, Any]:
    """The same as the plain values of the log entry, without the schema."""
    if commit.metadata is not None:
        return commit.metadata
    assert commit.side is not None
    path = commit.side["path"]
    stored = store.get(path)
    if stored is None or hashlib.sha256(stored.body).hexdigest() != commit.side["sha256"]:
        if (published := _published(store, commit)) is not None:
            return published.to_json()
        raise DamagedTableError(
            f"{store.url}: the side object {path} of commit {commit.instant} is missing or altered; restore it, or "
            "rebuild the log with `lakelatch init --adopt`",
            path=path,
            instant=commit.instant,
        )
    plain: dict[str, Any] = json.loads(stored.body)
    return plain


def _published(store: Store, commit: Commit) -> CommitMetadata | None:
    """What the instant says, which has all of it once it is on the timeline: a lost side object must block nobody."""
    name = file_name(Instant(commit.instant, commit.action, "completed", commit.completion))
    stored = store.get(f"{TIMELINE}/{name}")
    return None if stored is None else decode_commit(stored.body, name=name, layout=2, table=store.url)


class Publisher:
    """Puts commits of the log on the timeline of one table."""

    def __init__(self, store: Store, env: Environment, folder: str) -> None:
        self._store, self._env, self._folder = store, env, folder

    def publish(self, commit: Commit) -> None:
        """After this the completed instant stands on the timeline. Raises `StorageError` when it cannot be put there."""
        store, path = self._store, self._path(commit)
        if store.head(path) is not None:
            return
        body = encode_commit(metadata_of(store, commit), replace=commit.action == "replacecommit")
        pause = 0.05
        for _ in range(8):
            # "bytes": never torn; a name that a power cut takes away is put back from the log by the next handle.
            if store.put_if_absent(path, body, durable="bytes").outcome is not Outcome.UNKNOWN or store.head(path):
                return
            self._env.sleep(pause)
            pause *= 2
        raise StorageError(
            f"{store.url}: commit {commit.instant} has landed in the log but its instant {path} could not be put on the "
            "timeline; the next writer or `lakelatch rollback` publishes it",
            instant=commit.instant,
        )

    def reconcile(self, commits: Sequence[Commit], *, since: str) -> list[str]:
        """Publish those of ``commits`` (in slot order) that one listing of the timeline does not show.

        Returns the requested times later than ``since`` of commits that the listing shows and ``commits`` lacks: a
        stranger's, who does not read the log, or one that has landed meanwhile.
        """
        names = {entry.name for entry in self._store.list(self._folder)}
        first = min((name for name in names if name[:1].isdigit()), default="")
        for commit in commits:
            # One older than the active timeline was archived; putting it back would hide the archived ones after it.
            if commit.instant >= first[:17] and self._path(commit).rpartition("/")[2] not in names:
                self.publish(commit)
        known = {commit.instant for commit in commits}
        shown = (parse(name, layout=2) for name in names if name[:17] > since)
        return sorted(
            i.requested
            for i in shown
            if i and i.state == "completed" and i.action in COMMIT_ACTIONS and i.requested not in known
        )

    def completion_of(self, instant: str) -> str | None:
        """C of a transaction that is on the timeline as completed, else None. One listing."""
        for entry in self._store.list(self._folder, after=f"{instant}_"):
            found = parse(entry.name, layout=2)
            if found is None or found.requested != instant:
                return None
            return found.completed
        return None

    def _path(self, commit: Commit) -> str:
        return f"{self._folder}/{file_name(Instant(commit.instant, commit.action, 'completed', commit.completion))}"
