"""The check of partition folders, and of strange files and folders in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...hudi.files import PARTITION_METADATA, BaseFile, Listing, LogFile, join
from ...hudi.table import BACKUP_PATH, PROPERTIES_PATH, TableConfig
from ...hudi.timeline import NOTED, parse
from ..entries import RANGES, SIDES
from ..liveness import HEARTBEATS, MARKERS, READERS
from ..log import LOG, is_slot
from .files import data_files
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store


# hudi-rs splits names with these endings at the underscores, and fails if there are too few.
_BASE_ENDINGS = (".parquet", ".lance", ".hfile")


def check_folders(store: Store, listing: Listing, config: TableConfig, out: Findings) -> None:
    """Report partitions without their metadata file, and files or folders on which a reader fails."""
    for partition in listing.unmarked:
        if store.head(join(partition, PARTITION_METADATA)) is None:
            path = join(partition, PARTITION_METADATA)
            out.add(
                "partition-unmarked",
                path,
                f"partition {partition or '(the root)'} has data files but no {PARTITION_METADATA}: the JVM misses it",
                f"write {path} with commitTime and partitionDepth, as in the other partitions",
            )
    partitions = set(listing.partitions)
    harmless: list[str] = []
    for entry in listing.others:
        folder, _, name = entry.path.rpartition("/")
        if folder in partitions and name.endswith(_BASE_ENDINGS) and name.count("_") < 2:
            out.add(
                "stray-file",
                entry.path,
                f"{entry.path} is no file of a commit, and hudi-rs fails on every read because of its name",
                "move it out of the table",
            )
        else:
            harmless.append(entry.path)
    if harmless:
        more = f" and {len(harmless) - 3} more" if len(harmless) > 3 else ""
        out.add(
            "other-files",
            harmless[0],
            f"files that no reader looks at: {', '.join(harmless[:3])}{more}",
            "nothing; move them out of the table if they do not belong there",
        )
    if config.partition_fields:
        _check_nested(store, listing, config, partitions - {""}, out)


def _check_nested(store: Store, listing: Listing, config: TableConfig, partitions: set[str], out: Findings) -> None:
    # Dates formatted with slashes make partition paths of unknown depth.
    known_depth = config.keygen in ("SIMPLE", "COMPLEX")
    depth = len(config.partition_fields)
    reported: set[str] = set()
    for folder in sorted(_folders(store, listing)):
        above = _above(folder)
        if reported.intersection(above):
            continue
        parent = next((each for each in above if each in partitions), None)
        if parent is not None:
            message = f"{folder} is a folder inside partition {parent}: hudi-rs shows no rows of that partition"
        elif known_depth and folder.count("/") >= depth:
            message = f"{folder} lies deeper than the partitions ({depth} levels): hudi-rs shows no rows of the table"
        else:
            continue
        reported.add(folder)
        out.add(
            "folder-in-partition",
            folder,
            f"{message}, and says nothing",
            "move it out of the table, also if it is empty",
        )


def _folders(store: Store, listing: Listing) -> set[str]:
    files = [each.path for each in data_files(listing)] + [each.path for each in listing.others]
    found = {part for path in files for part in _chain(path.rpartition("/")[0])}
    # Only disks have folders without files in them.
    empty = getattr(store, "empty_folders", None)
    if empty is not None:
        found.update(each for each in empty() if not each.startswith("."))
    return found


def _chain(folder: str) -> Iterable[str]:
    return [folder, *_above(folder)] if folder else []


def _above(folder: str) -> list[str]:
    """Return the parent folders, nearest first."""
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]


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
