"""Find what stands where readers and writers expect a file or a folder, and is none: a named pipe, a link to nothing ..."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...hudi.files import PARTITION_METADATA, BaseFile, LogFile
from ...hudi.table import BACKUP_PATH, PROPERTIES_PATH
from ...hudi.timeline import NOTED, parse
from ..entries import RANGES, SIDES
from ..liveness import HEARTBEATS, MARKERS, READERS
from ..log import LOG, is_slot
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store

_LOCKS = ".hoodie/.lakelatch/locks"
_FLAT = (HEARTBEATS, SIDES, READERS, RANGES)  # they hold files only
_BELOW = {_LOCKS: re.compile(".*-[0-9a-f]{16}"), LOG: re.compile("[0-9]+")}  # names of folders there
_FOLDERS = (*_FLAT, ".hoodie/.lakelatch", _LOCKS, LOG, MARKERS, ".hoodie/timeline")


def no_files(store: Store) -> list[tuple[str, str, str]]:
    """Return path, kind in words, and the kind that belongs there, "file" or "folder", of all that stops a reader or writer.

    Only disks can have such things.
    """
    if (look := getattr(store, "no_files", None)) is None:
        return []
    every = dict(look())
    found = [(path, kind, "folder" if _is_opened(path) else "file") for path, kind in every.items()]
    found = [each for each in found if (each[1] != "a folder" if each[2] == "folder" else _is_read(*each[:2]))]
    blocked = [path for path, _, wanted in found if wanted == "folder"]

    def reached(folder: str) -> bool:
        return not any(f"{folder}/".startswith(f"{each}/") for each in blocked)

    files = {path for path in _FOLDERS if reached(path) and every.get(path) is None and store.head(path) is not None}
    for folder in filter(reached, (LOG, _LOCKS)):
        files |= {path for name in store.names(folder) if _is_opened(path := f"{folder}/{name}") and path not in every}
    return sorted([*found, *((path, "a file", "folder") for path in files)])


def _is_opened(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return path in _FOLDERS or (folder in _BELOW and bool(_BELOW[folder].fullmatch(name)))


def _is_read(path: str, kind: str) -> bool:
    folder, _, name = path.rpartition("/")
    above, is_folder = folder.rpartition("/")[0], kind == "a folder"
    if path in (PROPERTIES_PATH, BACKUP_PATH, NOTED) or name.startswith(PARTITION_METADATA):
        return True
    if not path.startswith(".hoodie/"):
        return bool(BaseFile.at(path, 0) or LogFile.at(path, 0))
    if above == LOG:
        return is_slot(name)
    if folder in _FLAT or above == _LOCKS:
        return True
    if path.startswith(f"{MARKERS}/"):
        return not is_folder or ".marker." in name
    return bool(parse(name, layout=2) or parse(name, layout=1))


def check_no_files(store: Store, out: Findings) -> bool:
    """Report names of files and folders that are something else; return False if there are any: every read stops there."""
    found = no_files(store)
    for path, kind, wanted in found:
        message = f"{path} is {kind}, where a {wanted} belongs: readers or writers stop there"
        out.add("no-file", path, message, "find out who made it, and move it out of the table")
    return not found
