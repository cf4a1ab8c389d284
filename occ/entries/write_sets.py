"""The write sets of commits, from their log entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ...conflict import FileStatistics, Values, WriteSet
from ...hudi.files import FileGroupId
from ...storage import Store
from .entries import Commit
from .service_content import groups_of
from .value_hashes import from_entry


def write_set_of(store: Store, commit: Commit, plain: Mapping[str, Any]) -> WriteSet:
    """The write set of a commit, from the plain values of its metadata.

    Read under the lock once for each candidate, so it decodes no more of the metadata than it needs.
    """
    stats = plain.get("stats", ())
    appended = frozenset(FileGroupId(s["partition"], s["file_id"]) for s in stats if s.get("log_files"))
    others = {FileGroupId(s["partition"], s["file_id"]) for s in stats if not s.get("log_files")}
    if "replaced" in plain:
        others |= {FileGroupId(p, f) for p, ids in plain["replaced"].items() for f in ids}
    # The same set object, so that nobody has to compare them.
    groups = appended | others if others else appended
    # A group that also got a base file was not only appended to.
    appended -= others
    if "slices" in plain:
        groups |= groups_of(plain)
    unique: dict[str, Values] = {}
    if "unique" in plain:
        unique = from_entry(store, plain["unique"])
    return WriteSet(groups, commit.region, appended, statistics=InEntry(stats), unique=unique)


class InEntry(Mapping[FileGroupId, FileStatistics]):
    """Statistics of a commit's files, decoded when a condition asks for them."""

    def __init__(self, stats: Sequence[Mapping[str, Any]]) -> None:
        self._stats = stats

    @cached_property
    def _plain(self) -> dict[FileGroupId, Mapping[str, Any]]:
        return {FileGroupId(s["partition"], s["file_id"]): s["columns"] for s in self._stats if "columns" in s}

    def __getitem__(self, group: FileGroupId) -> FileStatistics:
        try:
            return FileStatistics.from_json(self._plain[group])
        except (AttributeError, TypeError, ValueError) as e:
            # Unintelligible statistics exclude nothing.
            raise KeyError(group) from e

    def __iter__(self) -> Iterator[FileGroupId]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)
