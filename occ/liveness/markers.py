"""Markers: a note for each data file, written before the file, so that a cleaner finds what to delete.

A direct marker is a small object, in the form of JVM writers (``<file name>.marker.CREATE`` or ``.MERGE``
below ``.hoodie/.temp/<T>/<partition>/``; Apache Hudi, `MarkerFiles`/`DirectWriteMarkers`). If a server takes them, many
are in one list (`marker_lists`). A transaction may have both: files not taken by the server are announced directly.

A marker allows a deletion, so it counts only if its file bears its own T (`removal`): otherwise anybody who can write a
marker could have any file deleted.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import InputError, StorageError
from ...storage import Outcome, Store
from .marker_client import MarkerClient
from .marker_lists import TYPE, fits, is_list, names_in, strike
from .removal import delete_data_file

_log = logging.getLogger("lakelatch.markers")
MARKERS = ".hoodie/.temp"
_INFIX = ".marker."
Io = Literal["CREATE", "MERGE", "APPEND"]


@dataclass(frozen=True, slots=True)
class Marker:
    """The announcement that the transaction ``instant`` will write ``path`` (relative to the table).

    ``list``: name of the list that holds it; "" if it is an object of its own.
    """

    instant: str
    path: str
    io: str
    list: str = ""

    @property
    def name(self) -> str:
        """The name of the marker in the folder of its transaction."""
        return f"{self.path}{_INFIX}{self.io}"

    @property
    def marker_path(self) -> str:
        """The object that the marker is, or is listed in."""
        return f"{MARKERS}/{self.instant}/{self.list or self.name}"


def announce_all(
    store: Store, instant: str, files: Iterable[tuple[str, Io]], *, marker_client: MarkerClient | None = None
) -> list[Marker]:
    """Make sure that the markers exist, also from an earlier try of the task. Raises `StorageError` if that fails.

    By one request to a server, and one by one the files that it does not take.
    """
    markers = [Marker(instant, path, io) for path, io in files]
    listed = [each.name for each in markers if fits(each.name)] if marker_client is not None else []
    lists = (marker_client.take(instant, listed) if marker_client is not None and listed else None) or {}
    return [replace(each, list=lists[each.name]) if each.name in lists else _put(store, each) for each in markers]


def _put(store: Store, marker: Marker) -> Marker:
    # Not flushed: after a power failure the data file is gone with its marker, or the sweep of `check` finds it.
    put = store.put_if_absent(marker.marker_path, b"", durable=False)
    if put.outcome is Outcome.UNKNOWN and store.head(marker.marker_path) is None:
        path = marker.path
        raise StorageError(f"no marker could be written for {path}: {put.cause}; nothing was written", path=path)
    return marker


def stands(store: Store, marker: Marker) -> bool:
    """Return whether the marker exists. False: the transaction is over, and its file must not appear."""
    if not marker.list:
        return store.head(marker.marker_path) is not None
    body = store.body(marker.marker_path)
    return body is not None and marker.name in names_in(body)


@dataclass(frozen=True, slots=True)
class Left:
    """The content of a transaction's marker folder: its markers, and the paths of its lists, including the type file."""

    markers: list[Marker]
    lists: list[str]


def left_by(store: Store, instant: str) -> Left:
    """The markers of a transaction of any engine, in both forms; one listing, and a read for each list."""
    folder = f"{MARKERS}/{instant}"
    markers, lists = [], []
    for name in store.names(folder, recursive=True):
        path, infix, io = name.rpartition(_INFIX)
        if infix:
            markers.append(Marker(instant, path, io))
        elif is_list(name) and (body := store.body(f"{folder}/{name}")) is not None:
            lists.append(f"{folder}/{name}")
            for each in dict.fromkeys(names_in(body)):
                path, _, io = each.rpartition(_INFIX)
                markers.append(Marker(instant, path, io, name))
        elif name == TYPE:
            lists.append(f"{folder}/{name}")
    # The type file last, so that it is deleted last: JVM cleaners find lists only through it.
    return Left(markers, sorted(lists, key=lambda path: path.endswith(TYPE)))


def list_markers(store: Store, instant: str) -> list[Marker]:
    """All markers of one transaction, sorted by the object that each is or is listed in."""
    return left_by(store, instant).markers


def instants_with_markers(store: Store) -> list[str]:
    """Requested times of the transactions that have left markers."""
    return store.folders(MARKERS)


def delete_announced(store: Store, markers: Collection[Marker], *, lists: Collection[str] = ()) -> None:
    """Delete the files that these markers name, and the markers; safe against a late worker that publishes meanwhile.

    ``lists`` as in `remove`.
    """
    own = [marker for marker in markers if delete_data_file(store, marker.path, instant=marker.instant)]
    remove(store, markers, lists=lists)
    for marker in own:
        # A worker checks its marker after it has published. Either it published before the marker went, and the file is
        # deleted here; or after, and it deletes the file itself.
        delete_data_file(store, marker.path, instant=marker.instant)


def remove(store: Store, markers: Iterable[Marker], *, lists: Collection[str] = ()) -> None:
    """Delete markers; a later sweep finds those that could not be deleted.

    Args:
        lists: of a transaction that is over, from `left_by`: they are deleted whole. From other lists only the names of
            the markers are removed.
    """
    struck: dict[str, set[str]] = defaultdict(set)
    for marker in markers:
        if not marker.list:
            _delete(store, marker.marker_path)
        elif marker.marker_path not in lists:
            struck[marker.marker_path].add(marker.name)
    for path, names in struck.items():
        strike(store, path, names)
    for path in lists:
        _delete(store, path)


def _delete(store: Store, path: str) -> None:
    try:
        store.delete(path)
    except InputError as e:
        _log.warning("%s", e)
