"""The check of partition folders, and of strange files and folders in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...hudi.files import PARTITION_METADATA, Listing, join
from ...hudi.table import TableConfig
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
