"""Direct markers: one small object per data file, written before the file, so that a cleaner finds what to delete.

The form is the one JVM writers use and look for (``<file name>.marker.CREATE`` or ``.MERGE`` below
``.hoodie/.temp/<T>/<partition>/``; Apache Hudi, `MarkerFiles`/`DirectWriteMarkers`).

A marker says what may be deleted, so it counts only if its file bears its own T (`removal`): else whoever can write a
marker could have any file deleted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from ...errors import InputError, StorageError
from ...storage import Outcome, Store
from .removal import delete_data_file

_log = logging.getLogger("lakelatch.markers")
MARKERS = ".hoodie/.temp"
_INFIX = ".marker."
# What a timeline server of Hudi's writes: a name on each line; after a restart it joins those it had with commas.
_LISTS = re.compile(r"MARKERS\d+")
_JOINED = re.compile(r"(?<=\.marker\.CREATE),|(?<=\.marker\.MERGE),|(?<=\.marker\.APPEND),")

Io = Literal["CREATE", "MERGE", "APPEND"]


@dataclass(frozen=True, slots=True)
class Marker:
    """Announces that ``path`` (relative to the table) is coming from the transaction ``instant``."""

    instant: str
    path: str
    io: str

    @property
    def marker_path(self) -> str:
        """Where the marker lies."""
        return f"{MARKERS}/{self.instant}/{self.path}{_INFIX}{self.io}"


def announce(store: Store, instant: str, path: str, io: Io) -> Marker:
    """After this the marker exists, whoever wrote it (a retried task meets its own). Raises `StorageError` else."""
    marker = Marker(instant, path, io)
    # Not flushed: after a power failure the data file is gone with its marker, or the sweep of `check` finds it.
    put = store.put_if_absent(marker.marker_path, b"", durable=False)
    if put.outcome is Outcome.UNKNOWN and store.head(marker.marker_path) is None:
        raise StorageError(f"no marker could be written for {path}: {put.cause}; nothing was written", path=path)
    return marker


def stands(store: Store, marker: Marker) -> bool:
    """False when somebody has removed the marker: the transaction is over, its file must not appear."""
    return store.head(marker.marker_path) is not None


def list_markers(store: Store, instant: str) -> list[Marker]:
    """All markers of one transaction, sorted by the path of the marker."""
    folder = f"{MARKERS}/{instant}"
    found = []
    for name in store.names(folder, recursive=True):
        path, infix, io = name.rpartition(_INFIX)
        if infix:
            found.append(Marker(instant, path, io))
    return found


def announced_paths(store: Store, instant: str) -> list[str]:
    """The data files that a transaction of any engine has announced, by markers of their own or in lists of a server."""
    folder = f"{MARKERS}/{instant}"
    found = []
    for name in store.names(folder, recursive=True):
        path, infix, _io = name.rpartition(_INFIX)
        if infix:
            found.append(path)
        elif _LISTS.fullmatch(name) and (body := store.body(f"{folder}/{name}")) is not None:
            for line in body.decode(errors="replace").splitlines():
                found += [each.rpartition(_INFIX)[0] for each in _JOINED.split(line) if _INFIX in each]
    return found


def instants_with_markers(store: Store) -> list[str]:
    """Requested times of the transactions that have left markers."""
    return store.folders(MARKERS)


def delete_announced(store: Store, markers: Collection[Marker]) -> None:
    """The files that these markers name, and the markers, are gone, also when a late worker publishes one meanwhile."""
    own = [marker for marker in markers if delete_data_file(store, marker.path, instant=marker.instant)]
    remove(store, markers)
    for marker in own:
        # A worker looks at its marker after it has published: it published before the marker went, and the file is
        # deleted here, or after, and it deletes the file itself.
        delete_data_file(store, marker.path, instant=marker.instant)


def remove(store: Store, markers: Iterable[Marker]) -> None:
    """Delete markers; a later sweep finds those that could not be deleted."""
    for marker in markers:
        try:
            store.delete(marker.marker_path)
        except InputError as e:
            _log.warning("%s", e)
