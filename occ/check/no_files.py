"""Find names of files that are not files: named pipes, folders, dangling links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hudi.files import PARTITION_METADATA, BaseFile, LogFile
from ...hudi.table import BACKUP_PATH, PROPERTIES_PATH
from ...hudi.timeline import NOTED, parse
from ..entries import BEGINS, RANGES, REQUESTS, SIDES
from ..liveness import HEARTBEATS, MARKERS, READERS
from ..log import LOG, is_slot
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store

_LOCKS = ".hoodie/.lakelatch/locks"
_FLAT = (HEARTBEATS, REQUESTS, SIDES, READERS, RANGES)  # they hold files only


def no_files(store: Store) -> list[tuple[str, str]]:
    """Return path and kind, in words, of non-files that a reader or writer would open; only disks can have them."""
    found = getattr(store, "no_files", None)
    return [] if found is None else [(path, kind) for path, kind in found() if _is_read(path, kind)]


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
    if path.startswith((f"{BEGINS}/", f"{MARKERS}/")):
        return not is_folder or ".marker." in name
    return bool(parse(name, layout=2) or parse(name, layout=1))


def check_no_files(store: Store, out: Findings) -> bool:
    """Report non-files under names of files; return False if there are any, since reads, also a check's, stop there."""
    found = no_files(store)
    for path, kind in found:
        message = f"{path} is {kind}, where a file belongs: readers or writers stop there"
        out.add("no-file", path, message, "find out who made it, and move it out of the table")
    return not found
