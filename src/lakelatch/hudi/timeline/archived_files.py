"""The data files that count among those older than the first active instant.

Other engines count all of them. Only the history distinguishes a file of an archived commit from one that was never
committed, and nothing distinguishes a cleaned file from a kept one. So they read a file that the store puts late:

    t=0  A ends T=10 by its abort entry, and deletes the file that it wrote
    t=1  an archival takes all instants before T=30 off the timeline, and the log forgets T=10
    t=2  the store carries out the put of A's file a second time

The same happens to a file of a replaced file group once the replacement is archived. This library reads the note of the last
archival (``NOTED``): its bound, and the older committed files that existed. No commit with such a T can follow it. The note
names the base files among them that were the newest of their groups, so a reader misses one that another program deletes.
"""

from __future__ import annotations

import json
import logging
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...errors import StorageError
from ..files import BaseFile, FileGroupId, LogFile
from .archived import History
from .commit_metadata import decode_commit
from .instant import Instant, file_name, is_time

if TYPE_CHECKING:
    from ...storage import Store

NOTED = ".hoodie/.lakelatch/archived"
_BYTES = 8  # of a file's digest; two of a million files are the same with a chance of 1 in 30 million
_TRIES = 20
_log = logging.getLogger("lakelatch.timeline")


def _digest(path: str) -> bytes:
    return blake2b(path.encode(errors="surrogatepass"), digest_size=_BYTES).digest()


@dataclass(frozen=True, slots=True)
class _Note:
    """The committed files with T before ``before``, as digests of their paths; and ``named``, the paths of the base files
    among them that were the newest of their groups.
    """

    before: str = ""
    files: frozenset[bytes] = frozenset()
    named: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        digests, names = b"".join(sorted(self.files)), "\n".join(sorted(self.named)).encode(errors="surrogatepass")
        packed = {"files": digests, "named": zlib.compress(names)}
        return json.dumps({"before": self.before} | {k: b64encode(v).decode() for k, v in packed.items()}).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> _Note | None:
        """Return the note; None if the bytes are not understood."""
        try:
            raw = json.loads(body)
            before, files = raw["before"], b64decode(raw["files"], validate=True)
            if not is_time(before) or len(files) % _BYTES:
                return None
            # Older versions do not name them.
            names = zlib.decompress(b64decode(raw["named"], validate=True)) if "named" in raw else b""
            digests = frozenset(files[at : at + _BYTES] for at in range(0, len(files), _BYTES))
            return cls(before, digests, tuple(names.decode(errors="surrogatepass").split("\n")) if names else ())
        except (ValueError, KeyError, TypeError, RecursionError, zlib.error):
            return None


class ArchivedFiles:
    """The data files of archived commits that count. The note is read once, at the first question.

    Args:
        store: the table's.
        history: its archived timeline.
        begun: something has been archived; else no file is missed, which takes no request.
    """

    def __init__(self, store: Store, history: History, *, begun: bool) -> None:
        self._store, self._history, self._begun = store, history, begun
        self._note: _Note | None = None

    def counts(self, file: BaseFile | LogFile) -> bool | None:
        """Return whether a file counts; None if nothing is noted of its time."""
        note = self._noted()
        return None if file.instant >= note.before else _digest(file.path) in note.files

    def named(self, before: str) -> Iterator[BaseFile]:
        """Yield the base files with T before that one which were the newest of their groups at the last archival."""
        for path in self._noted().named if self._begun else ():
            if (file := BaseFile.at(path, 0)) is not None and file.instant < before:
                yield file

    def not_replaced(self, files: Sequence[BaseFile]) -> list[BaseFile]:
        """Return the files whose groups no commit has replaced that another engine has archived since the note."""
        gone = self.replaced(since=self._noted().before) if files else ()
        return [each for each in files if each.group not in gone]

    def replaced(
        self, *, since: str = "", counts: Callable[[Instant], bool] = lambda _: True
    ) -> Collection[FileGroupId]:
        """Return the file groups that archived commits with T from there on have replaced, those for which ``counts`` is true."""
        if not self._begun:
            return ()
        found = self._history.instants(first=since).values()
        gone = set[FileGroupId]()
        for each, body in self._history.contents(i for i in found if i.action == "replacecommit" and counts(i)).items():
            replaced = decode_commit(body, name=file_name(each), layout=2).replaced
            gone |= {FileGroupId(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
        return gone

    def _noted(self) -> _Note:
        if self._note is None:
            self._note = self._read()
        return self._note

    def _read(self) -> _Note:
        body = self._store.body(NOTED)
        note = _Note() if body is None else _Note.from_bytes(body)
        if note is None:
            _log.warning(
                "%s: %s is not understood, so all files that are older than the timeline count; the next archival writes it "
                "again",
                self._store.url,
                NOTED,
            )
        return note or _Note()


def _next(
    last: _Note,
    before: str,
    landed: Collection[str],
    files: Iterable[BaseFile | LogFile],
    newest: Iterable[BaseFile],
) -> _Note:
    """Return the note with a later bound: files noted before, and files since then whose T is in ``landed``."""
    # A table of an older version has an archive of another form, which is not read.
    oldest = "" if last.before else min(landed, default="")
    noted = set()
    for file in files:
        digest = _digest(file.path)
        since = last.before <= file.instant < before and (file.instant in landed or file.instant < oldest)
        if since or digest in last.files:
            noted.add(digest)
    named = [each.path for each in newest if each.instant < before and _digest(each.path) in noted]
    return _Note(before, frozenset(noted), tuple(named))


def note_archived_files(
    store: Store,
    history: History,
    going: Iterable[str],
    before: str,
    files: Iterable[BaseFile | LogFile],
    newest: Collection[BaseFile] = (),
) -> None:
    """Note the files that count once the commits with these T are archived too. Idempotent, also for concurrent writers.

    Call it before the commits enter the history: from then on readers rely on the note.

    Args:
        store: the table's store.
        history: its archived timeline.
        going: T of the commits that are about to be archived.
        before: the first T that will remain on the active timeline.
        files: all data files that exist.
        newest: the base files that readers of the newest state need, whether they exist or not.

    Raises:
        StorageError: the store gave no answer; retry.
    """
    for _ in range(_TRIES):
        stored = store.get(NOTED)
        last = (stored and _Note.from_bytes(stored.body)) or _Note()
        # Another archival has noted a later bound. Its note must be sure to be stored before ours counts as done.
        if last.before >= before:
            if store.secure(NOTED).done:
                return
            continue
        # Commits archived since the last note, and those that are about to be.
        landed = {*going, *(each.requested for each in history.instants(first=last.before, last=before).values())}
        body = _next(last, before, landed, {*files, *newest}, newest).to_bytes()
        if stored is None:
            store.put_if_absent(NOTED, body)
        else:
            store.replace_if_match(NOTED, body, stored.tag)
    raise StorageError(
        f"{store.url}: {NOTED} could not be written; whatever was to be archived is on the active timeline still, try again",
        path=NOTED,
    )
