"""The changes and the reads of a transaction, as values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..hudi.files import FileGroupId
from .predicate import FileStatistics, Term, Where

# Values that no two rows may share: new record keys, and the columns of unique constraints. Pure.
#
# A transaction carries the values that it wrote as 64-bit hashes. Two transactions conflict if they have one in common. Two
# different values collide with a probability of 2^-64, which costs a retry and no row. Spans are compared first: the hashes of
# a large commit are in an object of their own, which is read only if its spans overlap ours.

_FEW = 64
NEW_KEYS = ""  # the name for new record keys; a constraint is named by its columns


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of one kind that a transaction wrote.

    Attributes:
        spans: smallest and largest text for each partition; for what is unique in the whole table there is one, "".
        hashes: returns them as a sorted ``numpy.uint64`` array, the partition mixed in; None if they are no
            longer known, so any value may be among them. It may read, so it is called only if spans overlap.
    """

    spans: Mapping[str, tuple[str, str]]
    hashes: Callable[[], Any]


def shared(ours: Values, theirs: Values) -> tuple[str, ...]:
    """Return the keys of the spans in which both may have written the same value; () if there are none."""
    few, many = ours.spans, theirs.spans
    if len(few) > len(many):
        few, many = many, few
    near = tuple(place for place, span in few.items() if place in many and _overlap(span, many[place]))
    return near if near and _meet(ours.hashes(), theirs.hashes()) else ()


def _overlap(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _meet(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return True
    few, many = (ours, theirs) if len(ours) <= len(theirs) else (theirs, ours)
    if not len(few):
        return False
    if len(many) <= _FEW:  # most concurrent commits are this small, and there may be thousands
        return not set(few.tolist()).isdisjoint(many.tolist())
    import numpy as np

    places = np.searchsorted(many, few)
    return bool((many[np.minimum(places, len(many) - 1)] == few).any())


@dataclass(frozen=True, slots=True)
class Region:
    """Some partitions, or the whole table. It covers file groups that do not exist yet."""

    partitions: frozenset[str] = frozenset()
    whole_table: bool = False

    def covers(self, partition: str) -> bool:
        """Return whether anything that appears in ``partition`` is in this region."""
        return self.whole_table or partition in self.partitions

    def meets(self, other: Region) -> bool:
        """Return whether some partition, present or future, is in both."""
        if self.whole_table:
            return other.whole_table or bool(other.partitions)
        return (other.whole_table and bool(self.partitions)) or not self.partitions.isdisjoint(other.partitions)

    def __bool__(self) -> bool:
        return self.whole_table or bool(self.partitions)

    def __or__(self, other: Region) -> Region:
        return Region(self.partitions | other.partitions, self.whole_table or other.whole_table)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry."""
        return {"partitions": sorted(self.partitions), "whole_table": self.whole_table}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> Region:
        """Reverse `to_json`; None is the empty region. Raise `ValueError` for anything else."""
        if not value:
            return cls()
        partitions, whole = value["partitions"], value["whole_table"]
        if type(whole) is not bool or not all(type(each) is str for each in partitions):
            raise ValueError(f"{value!r:.80} is no region")
        return cls(frozenset(partitions), whole)


NOWHERE = Region()
EVERYWHERE = Region(whole_table=True)
_NO_STATISTICS: Mapping[FileGroupId, FileStatistics] = {}
_NO_VALUES: Mapping[str, Values] = {}


@dataclass(frozen=True, slots=True)
class WriteSet:
    """The writes of a transaction. A plan's are the groups that it names, a clean's the groups that it removes slices of.

    Attributes:
        groups: file groups created, changed or replaced.
        region: the partitions that an overwrite replaces, empty ones included.
        appended: the groups that only got log files, which a compaction leaves for the next slice.
        streamed: True if these log files belong to streams, whose events have an order of their own.
        statistics: the statistics of a group's new file, where they are known.
        unique: values written that no two rows may share, by name (`unique.NEW_KEYS`, or that of a constraint).
    """

    groups: frozenset[FileGroupId] = frozenset()
    region: Region = field(default=NOWHERE)
    appended: frozenset[FileGroupId] = frozenset()
    streamed: bool = False
    statistics: Mapping[FileGroupId, FileStatistics] = field(
        default_factory=lambda: _NO_STATISTICS, compare=False, repr=False
    )
    unique: Mapping[str, Values] = field(default_factory=lambda: _NO_VALUES, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Equal sets are made one object here, once, so that `only_appends` is an identity test for each transaction it is
        # compared with.
        if self.appended is not self.groups and self.appended == self.groups:
            object.__setattr__(self, "appended", self.groups)

    @property
    def only_appends(self) -> bool:
        """True if every file group only got log files. Costs nothing per group."""
        return self.appended is self.groups


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows that were read: the rows of ``groups``, and the rows of ``region`` that meet ``where``, present and absent ones.

    ``groups`` names every file group of the snapshot that may hold such a row, so of any other group only new rows matter. A
    scan without a condition reads its whole region, and needs no groups.
    """

    region: Region = field(default=NOWHERE)
    where: Where = ()
    groups: frozenset[FileGroupId] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry. Conditions without a plain form are left out, so the stored scan may read
        more.
        """
        where = [plain for each in self.where if (plain := each.to_json()) is not None]
        return {"region": self.region.to_json(), "where": where, "groups": sorted(map(list, self.groups))}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scan:
        """Reverse `to_json`."""
        where = tuple(Term.from_json(each) for each in value["where"])
        return cls(Region.from_json(value["region"]), where, groups_from_json(value["groups"]))


def groups_from_json(value: Any) -> frozenset[FileGroupId]:
    """Return file groups from lists of two texts; raise `ValueError` for anything else."""
    if not isinstance(value, list) or not all(
        isinstance(each, list) and len(each) == 2 and all(type(text) is str for text in each) for each in value
    ):
        raise ValueError(f"{value!r:.80} are no file groups")
    return frozenset(FileGroupId(*each) for each in value)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The reads that a transaction's result depends on.

    Attributes:
        region: the partitions that the write's own condition was evaluated on, checked at every level: a file group
            that appears there meanwhile matters.
        blind: True if nothing of the table was read (an insert of new rows): a concurrent overwrite is no
            conflict, because "overwrite, then insert" gives the same table.
        condition: the scans of the write's own condition, more exact than ``region``; checked at every level.
        scans: all other reads; the isolation level says whether they count. None: unknown, so it may be everything.
        lookups: key lookups of a merge that can repeat them. They count as ``scans`` do, but a repeated
            lookup makes up for changes there, except under ``serializable``.
    """

    region: Region = field(default=NOWHERE)
    blind: bool = False
    condition: tuple[Scan, ...] = ()
    scans: tuple[Scan, ...] | None = None
    lookups: tuple[Scan, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry."""
        return {
            "region": self.region.to_json(),
            "blind": self.blind,
            "condition": [each.to_json() for each in self.condition],
            "scans": None if self.scans is None else [each.to_json() for each in self.scans],
            "lookups": [each.to_json() for each in self.lookups],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ReadSet:
        """Reverse `to_json`."""

        def scans(given: list[dict[str, Any]]) -> tuple[Scan, ...]:
            return tuple(Scan.from_json(each) for each in given)

        return cls(
            Region.from_json(value["region"]),
            blind=value["blind"] is True,
            condition=scans(value["condition"]),
            scans=None if value["scans"] is None else scans(value["scans"]),
            lookups=scans(value["lookups"]),
        )


# Pairs of file groups that two write sets share, by file id or by bucket.
#
# The index is built once for the committing transaction, and only if a candidate needs it. It is asked once per candidate, so
# one question may cost no more than one step for each of the candidate's groups.

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
