"""What a transaction changed and what it depended on, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..hudi.files import FileGroupId
from .predicate import FileStatistics, Term, Where
from .unique import Values


@dataclass(frozen=True, slots=True)
class Region:
    """Some partitions, or the whole table. It covers file groups that do not exist yet."""

    partitions: frozenset[str] = frozenset()
    whole_table: bool = False

    def covers(self, partition: str) -> bool:
        """Whether anything that appears in ``partition`` lies in this region."""
        return self.whole_table or partition in self.partitions

    def meets(self, other: Region) -> bool:
        """Whether some partition, present or future, lies in both."""
        if self.whole_table:
            return other.whole_table or bool(other.partitions)
        return (other.whole_table and bool(self.partitions)) or not self.partitions.isdisjoint(other.partitions)

    def __bool__(self) -> bool:
        return self.whole_table or bool(self.partitions)

    def __or__(self, other: Region) -> Region:
        return Region(self.partitions | other.partitions, self.whole_table or other.whole_table)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry."""
        return {"partitions": sorted(self.partitions), "whole_table": self.whole_table}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> Region:
        """The reverse of `to_json`; None is the empty region. `ValueError` for what is none."""
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
    """What a transaction writes; for a plan what it names, for a clean what it removes slices of.

    Attributes:
        groups: file groups created, changed or replaced.
        region: what an overwrite replaces, empty partitions included.
        appended: those of ``groups`` that only got log files, which a compaction leaves for the next slice.
        streamed: these log files are of streams, whose events have an order of their own.
        statistics: of the new file of a group, where they are known.
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
        # Whoever makes it compares the two once, if at all, so that nobody has to for each transaction it meets.
        if self.appended is not self.groups and self.appended == self.groups:
            object.__setattr__(self, "appended", self.groups)

    @property
    def only_appends(self) -> bool:
        """Whether every file group only got log files. Looks at none of them."""
        return self.appended is self.groups


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows that were read: those of ``groups``, and the rows of ``region`` that meet ``where``, present and absent ones.

    ``groups`` names every file group of the snapshot that may hold such a row, so that of a group that is not among
    them only new rows matter. A scan without a condition reads its whole region, and needs no groups.
    """

    region: Region = field(default=NOWHERE)
    where: Where = ()
    groups: frozenset[FileGroupId] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry; without the conditions that have no plain form, so it may read more."""
        where = [plain for each in self.where if (plain := each.to_json()) is not None]
        return {"region": self.region.to_json(), "where": where, "groups": sorted(map(list, self.groups))}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scan:
        """The reverse of `to_json`."""
        where = tuple(Term.from_json(each) for each in value["where"])
        return cls(Region.from_json(value["region"]), where, groups_from_json(value["groups"]))


def groups_from_json(value: Any) -> frozenset[FileGroupId]:
    """File groups from lists of two texts; `ValueError` for anything else."""
    if not isinstance(value, list) or not all(
        isinstance(each, list) and len(each) == 2 and all(type(text) is str for text in each) for each in value
    ):
        raise ValueError(f"{value!r:.80} are no file groups")
    return frozenset(FileGroupId(*each) for each in value)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What the result depends on.

    Attributes:
        region: the partitions that the write's own condition was evaluated on, checked at every level: a file group
            that appears there meanwhile matters.
        blind: nothing of the table was read (an insert of new rows): an overwrite that landed meanwhile is no
            conflict, because "overwrite, then insert" gives the same table.
        condition: what the write's own condition read, more exactly than ``region`` can say; checked at every level.
        scans: what else was read; the isolation level says whether it counts. None: not known, so it may be all.
        lookups: where keys were looked up by a merge that can do so again. They count as ``scans`` do, but a repeated
            look makes up for what changed there, except under ``serializable``.
    """

    region: Region = field(default=NOWHERE)
    blind: bool = False
    condition: tuple[Scan, ...] = ()
    scans: tuple[Scan, ...] | None = None
    lookups: tuple[Scan, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry."""
        return {
            "region": self.region.to_json(),
            "blind": self.blind,
            "condition": [each.to_json() for each in self.condition],
            "scans": None if self.scans is None else [each.to_json() for each in self.scans],
            "lookups": [each.to_json() for each in self.lookups],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ReadSet:
        """The reverse of `to_json`."""

        def scans(given: list[dict[str, Any]]) -> tuple[Scan, ...]:
            return tuple(Scan.from_json(each) for each in given)

        return cls(
            Region.from_json(value["region"]),
            blind=value["blind"] is True,
            condition=scans(value["condition"]),
            scans=None if value["scans"] is None else scans(value["scans"]),
            lookups=scans(value["lookups"]),
        )
