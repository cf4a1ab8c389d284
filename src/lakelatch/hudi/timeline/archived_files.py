"""Which data files count of those that are older than the first active instant.

For other engines all do: a file of an archived commit is told from one that never landed by nothing but the history, and
one that was cleaned from one that is still there by nothing at all. So what the store puts late is read by them, until
somebody deletes it:

    t=0  A ends T=10 by its abort entry, and deletes the file that it wrote
    t=1  an archival takes all instants before T=30 off the timeline, and the log forgets T=10
    t=2  the store carries out the put of A's file a second time

The same with a file of a replaced file group, when the replacement is archived. Ours look at what the last archival noted
(``NOTED``): its bound, and which files older than that there were and had landed. After it nothing lands with such a T.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...errors import StorageError
from ..files import BaseFile, LogFile
from .archived import History
from .instant import is_time

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
    """The files with T before ``before`` that have landed, as digests of their paths."""

    before: str = ""
    files: frozenset[bytes] = frozenset()

    def to_bytes(self) -> bytes:
        return json.dumps({"before": self.before, "files": b64encode(b"".join(sorted(self.files))).decode()}).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> _Note | None:
        """None for bytes that are not understood."""
        try:
            raw = json.loads(body)
            before, files = raw["before"], b64decode(raw["files"], validate=True)
            if not is_time(before) or len(files) % _BYTES:
                return None
            return cls(before, frozenset(files[at : at + _BYTES] for at in range(0, len(files), _BYTES)))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


class ArchivedFiles:
    """What is known of the data files of archived commits. Reads nothing before the first question, and then once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._note: _Note | None = None

    def counts(self, file: BaseFile | LogFile) -> bool | None:
        """Whether a file counts; None where nothing is noted of its time."""
        if self._note is None:
            self._note = self._read()
        return None if file.instant >= self._note.before else _digest(file.path) in self._note.files

    def _read(self) -> _Note:
        body = self._store.body(NOTED)
        note = _Note() if body is None else _Note.from_bytes(body)
        if note is None:
            _log.warning(
                "%s: %s is not understood, so all files that are older than the timeline count; the next archival writes it "
                "anew",
                self._store.url,
                NOTED,
            )
        return note or _Note()


def _next(last: _Note, before: str, landed: Collection[str], files: Iterable[BaseFile | LogFile]) -> _Note:
    """The note with a later bound: of the time since the last one those count that have ``landed``."""
    # A table of an older version has an archive of another form, which is not read.
    oldest = "" if last.before else min(landed, default="")
    noted = set()
    for file in files:
        digest = _digest(file.path)
        since = last.before <= file.instant < before and (file.instant in landed or file.instant < oldest)
        if since or digest in last.files:
            noted.add(digest)
    return _Note(before, frozenset(noted))


def note_archived_files(
    store: Store, history: History, going: Iterable[str], before: str, files: Iterable[BaseFile | LogFile]
) -> None:
    """Note what counts when the commits with these T are archived as well. Anybody may say the same again, also at once.

    To be done before they are in the history, since from then on readers look at what is noted.

    Args:
        store: the table's.
        history: its archived timeline.
        going: T of the commits that are about to be archived.
        before: the T that the timeline begins with then.
        files: all data files that there are.

    Raises:
        StorageError: the store gave no answer; ask again.
    """
    for _ in range(_TRIES):
        stored = store.get(NOTED)
        last = (stored and _Note.from_bytes(stored.body)) or _Note()
        if last.before >= before:
            if store.secure(NOTED).done:
                return
            continue
        landed = {*going, *(each.requested for each in history.instants(first=last.before, last=before).values())}
        body = _next(last, before, landed, files).to_bytes()
        if stored is None:
            store.put_if_absent(NOTED, body)
        else:
            store.replace_if_match(NOTED, body, stored.tag)
    raise StorageError(
        f"{store.url}: {NOTED} could not be written; whatever was to be archived is on the active timeline still, try again",
        path=NOTED,
    )
