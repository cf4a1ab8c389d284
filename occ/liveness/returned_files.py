"""Data files that were gone when the commits around them were archived, and are back (`archived_files`).

Our readers skip them, but other engines count their rows, so they have to go. But one may have been deleted by mistake,
and restored from a backup. So a file goes only if it was never committed, or if a clean says that it has deleted it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...errors import CorruptTableError
from ...hudi.files import BaseFile, LogFile, join
from ...hudi.timeline import COMMIT_ACTIONS, History, Timeline, decode_container, file_name
from ...storage import Store


def returned_files(store: Store, timeline: Timeline, files: Iterable[BaseFile | LogFile]) -> list[str]:
    """The paths of the files to delete."""
    noted, first = timeline.archived_files(), timeline.first_landed or ""
    back = [f for f in files if noted is not None and f.instant < first and noted.counts(f) is False]
    if not back:
        return []
    archived = History(store, timeline.config.timeline_folder).instants().values()
    landed = {each.requested for each in archived if each.action in COMMIT_ACTIONS}
    oldest = min(landed, default=first)
    cleaned = _cleaned(store, timeline) if any(file.instant in landed for file in back) else set()
    return [f.path for f in back if f.path in cleaned or (f.instant > oldest and f.instant not in landed)]


def _cleaned(store: Store, timeline: Timeline) -> set[str]:
    """Paths deleted by the cleans on the timeline and in the archive, of any engine."""
    history = History(store, timeline.config.timeline_folder)
    bodies = history.contents(each for each in history.instants().values() if each.action == "clean")
    for each in timeline.completed:
        if each.action == "clean" and (stored := store.get(timeline.path(each))):
            bodies[each] = stored.body
    found: set[str] = set()
    for each, body in bodies.items():
        with suppress(CorruptTableError):  # `check` reports it
            content = decode_container(body, "HoodieCleanMetadata", name=file_name(each))
            for partition, gone in content["partitionMetadata"].items():
                found.update(join(partition, path.rpartition("/")[2]) for path in gone["successDeleteFiles"])
    return found
