"""Pairs of file groups that two write sets share, by file id or by bucket.

The index is built once for the committing transaction, and only if a candidate needs it. It is asked once per candidate, so
one question may cost no more than one step for each of the candidate's groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ..hudi.files import FileGroupId

Pairs = list[tuple[FileGroupId, FileGroupId]]  # (ours, theirs)
_DIGITS = 8  # of a bucket's number, with which its file ids begin


def meeting_of(ours: frozenset[FileGroupId], *, bucketed: bool) -> Callable[[frozenset[FileGroupId]], Pairs]:
    """Return a function that pairs our file groups with theirs that are the same place.

    Two writers that create the first file of one bucket at the same time choose two file ids, but a bucket must not have two
    file groups. A file id without a bucket number matches only itself.

    Source: Apache Hudi, ``BucketIdentifier``: the number is the first eight characters of a file id.
    """
    if not bucketed:
        return lambda theirs: [] if ours.isdisjoint(theirs) else [(group, group) for group in ours & theirs]
    starts: defaultdict[str, set[str]] = defaultdict(set)
    start_of = starts.get
    places: dict[tuple[str, str], list[FileGroupId]] = {}

    def meet(theirs: frozenset[FileGroupId]) -> Pairs:
        if not starts:
            for partition, file_id in ours:
                starts[partition].add(file_id[:_DIGITS])
        # Most candidates share nothing, so file ids are parsed only when partition and first eight characters agree.
        near = [group for group in theirs if (known := start_of(group[0])) and group[1][:_DIGITS] in known]
        # Built at the first near group, because most commits never meet one.
        if near and not places:
            for group in ours:
                places.setdefault((group[0], group[1][:_DIGITS]), []).append(group)
        return [
            (mine, group)
            for group in near
            for mine in places[group[0], group[1][:_DIGITS]]
            if mine == group or (_is_bucket(mine.file_id) and _is_bucket(group.file_id))
        ]

    return meet


def _is_bucket(file_id: str) -> bool:
    return file_id[:_DIGITS].isascii() and file_id[:_DIGITS].isdigit() and file_id[_DIGITS : _DIGITS + 1] == "-"
