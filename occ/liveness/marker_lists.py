"""Markers in lists, as a timeline server writes them instead of an object for each data file.

The form is Hudi's (`MarkerUtils`, `MarkerDirState`): in the folder of the transaction ``MARKERS.type`` with the text
``TIMELINE_SERVER_BASED``, and ``MARKERS0``, ``MARKERS1`` ..., UTF-8, a name on each line. Hudi's server joins the names
that it had with commas after a restart, and leaves a last line half-written when it is killed; both are read.

Our lists are replaced only if unchanged since the read. So two servers, and a cleaner beside them, never lose a name to
each other, and no name that a cleaner has removed comes back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable

from ...errors import StorageError
from ...storage import Outcome, Store

TYPE = "MARKERS.type"
_TYPE_BODY = b"TIMELINE_SERVER_BASED"
_LIST = re.compile("MARKERS[0-9]+")
_NAME = re.compile(r".+\.marker\.(?:CREATE|MERGE|APPEND)", re.DOTALL)
_JOINED = re.compile(r"(?<=\.marker\.CREATE),|(?<=\.marker\.MERGE),|(?<=\.marker\.APPEND),")
_LINES = re.compile(r"\r\n|\r|\n")  # as Java splits them; `str.splitlines` splits at more
_TRIES = 50
_log = logging.getLogger("lakelatch.markers")


def is_list(name: str) -> bool:
    """Return whether that is the name of a list."""
    return _LIST.fullmatch(name) is not None


def names_in(body: bytes) -> list[str]:
    """The marker names in a list, without torn ones."""
    found = (each for line in _LINES.split(body.decode(errors="replace")) for each in _JOINED.split(line))
    return [each for each in found if _NAME.fullmatch(each)]


def fits(name: str) -> bool:
    """Return whether a name can be written to a list and read back."""
    try:
        return names_in(name.encode()) == [name]
    except UnicodeEncodeError:
        return False


def encoded(names: Iterable[str]) -> bytes:
    """The bytes of a list of these names."""
    return "".join(f"{name}\n" for name in names).encode()


def put_type(store: Store, folder: str) -> None:
    """Mark the folder as one with lists. Raises `StorageError` if that fails."""
    path = f"{folder}/{TYPE}"
    put = store.put_if_absent(path, _TYPE_BODY, durable=False)
    if put.outcome is Outcome.UNKNOWN and store.head(path) is None:
        raise StorageError(f"{path} could not be written: {put.cause}; try again", path=path)


def strike(store: Store, path: str, gone: Collection[str]) -> None:
    """Remove these names from the list. Raises `StorageError` if others keep changing it."""
    for _ in range(_TRIES):
        if (stored := store.get(path)) is None:
            return
        names = names_in(stored.body)
        left = [name for name in names if name not in gone]
        # Only if unchanged, else read again: a server may add names meanwhile.
        if len(left) == len(names) or store.replace_if_match(path, encoded(left), stored.tag).done:
            return
    raise StorageError(f"{path} is changed by others again and again; try again", path=path)
