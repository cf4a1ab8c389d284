"""The details of a loss, kept in the abort entry for `Table.why`. Pure.

Written with the abort, so it costs no request. Bounded: for a wide transaction some file groups are left out, and the
entry says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from ...conflict import ISOLATION_LEVELS, ReadSet, Region, Scan, WriteSet, groups_from_json
from ...hudi.files import FileGroupId
from ...hudi.timeline import WriteStat

GROUPS_MAX = 200
_SCANS_MAX = 20
_PARTITIONS_MAX = 200
_OVERLAP_MAX = 20
_TEXTS = ("winner", "winner_op", "winner_writer", "rule", "isolation")
_NUMBERS = ("files", "rows", "bytes", "rounds", "same_rows")


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes of a transaction to the rows of one file group."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    rows: int = 0  # of the file

    @classmethod
    def of(cls, stat: Mapping[str, Any]) -> Changed:
        """Make it from the plain values of a write statistic (`WriteStat`)."""
        return cls(*(stat.get(f"num_{name}", 0) for name in ("inserts", "updates", "deletes", "writes")))

    @property
    def before(self) -> int:
        """The number of rows that the file group had before."""
        return self.rows - self.inserts + self.deletes


@dataclass(frozen=True, slots=True)
class Loss:
    """One transaction that lost.

    Attributes:
        winner, winner_op, winner_writer, rule: as its `ConflictError` named them.
        overlap: file groups (or record keys) named by the error, as text, 20 at most.
        writes, reads: its write set and read set.
        changed: its changes to the rows of its file groups.
        isolation: the level in force for it.
        files, rows, bytes: the wasted writes.
        took_s: seconds from its T to its abort.
        rounds: the number of its rebase rounds.
        merges: it could merge again, if the setting ``rebase`` allows it.
        same_rows: rows known to be changed by both.
        early: it yielded before its commit.
        cut: some details were left out.
    """

    winner: str
    winner_op: str
    winner_writer: str
    rule: str
    overlap: tuple[str, ...] = ()
    writes: WriteSet = field(default_factory=WriteSet)
    reads: ReadSet = field(default_factory=ReadSet)
    changed: Mapping[FileGroupId, Changed] = field(default_factory=dict)
    isolation: str = "snapshot"
    files: int = 0
    rows: int = 0
    bytes: int = 0
    took_s: float = 0.0
    rounds: int = 0
    merges: bool = False
    same_rows: int = 0
    early: bool = False
    cut: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any], writes: WriteSet, reads: ReadSet, **more: Any) -> Loss:
        """Make it from the facts of a `ConflictError`; ``more`` are attributes."""
        texts = {name: facts.get(name, "") for name in ("winner", "winner_op", "winner_writer", "rule")}
        same, early = facts.get("same_rows", 0), facts.get("early", False)
        overlap = tuple(map(str, facts.get("overlap", ())))
        return cls(**texts, overlap=overlap, writes=writes, reads=reads, same_rows=same, early=early, **more)

    def with_files(self, stats: Iterable[WriteStat]) -> Loss:
        """Add the files that it had written."""
        stats = list(stats)
        changed = {
            FileGroupId(each.partition, each.file_id): Changed(
                each.num_inserts, each.num_updates, each.num_deletes, each.num_writes
            )
            for each in stats
        }
        return replace(
            self,
            changed=changed,
            files=len(stats),
            rows=sum(each.num_writes for each in stats),
            bytes=sum(each.file_size for each in stats),
        )

    def bounded(self, lost_on: Collection[FileGroupId]) -> Loss:
        """Reduce it to the size allowed in an entry; the groups it lost on stay."""
        first = frozenset(lost_on)

        def few(groups: Collection[FileGroupId]) -> frozenset[FileGroupId]:
            kept = (
                groups if len(groups) <= GROUPS_MAX else sorted(groups, key=lambda g: (g not in first, g))[:GROUPS_MAX]
            )
            return frozenset(kept)

        def near(region: Region) -> Region:
            # Names are left out rather than the region widened, because a wider one would claim more than was claimed.
            names = region.partitions
            if len(names) <= _PARTITIONS_MAX:
                return region
            places = {group.partition for group in first}
            kept = sorted(names, key=lambda name: (name not in places, name))[:_PARTITIONS_MAX]
            return Region(frozenset(kept), region.whole_table)

        def less(scans: Sequence[Scan]) -> tuple[Scan, ...]:
            return tuple(
                replace(each, region=near(each.region), groups=few(each.groups)) for each in scans[:_SCANS_MAX]
            )

        reads, writes = (
            self.reads,
            WriteSet(few(self.writes.groups), near(self.writes.region), few(self.writes.appended)),
        )
        small = ReadSet(
            near(reads.region),
            blind=reads.blind,
            condition=less(reads.condition),
            scans=None if reads.scans is None else less(reads.scans),
            lookups=less(reads.lookups),
        )
        return replace(
            self,
            overlap=self.overlap[:_OVERLAP_MAX],
            writes=writes,
            reads=small,
            changed={group: each for group, each in self.changed.items() if group in writes.groups},
            cut=self.cut
            or small != reads
            or writes != WriteSet(self.writes.groups, self.writes.region, self.writes.appended),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry."""
        changed = [
            [*group, each.inserts, each.updates, each.deletes, each.rows] for group, each in self.changed.items()
        ]
        return {
            **{name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)},
            "overlap": list(self.overlap),
            "writes": {
                "groups": sorted(map(list, self.writes.groups)),
                "region": self.writes.region.to_json(),
                "appended": sorted(map(list, self.writes.appended)),
            },
            "reads": self.reads.to_json(),
            "changed": sorted(changed),
            "took_s": round(self.took_s, 3),
            "merges": self.merges,
            "early": self.early,
            "cut": self.cut,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Loss:
        """The reverse of `to_json`; `ValueError`, `KeyError` or `TypeError` for invalid values."""
        texts = {name: value[name] for name in _TEXTS}
        numbers = {name: value[name] for name in _NUMBERS}
        if not all(type(each) is str for each in (*texts.values(), *value["overlap"])):
            raise ValueError("a name is no text")
        if not all(type(each) is int and each >= 0 for each in numbers.values()):
            raise ValueError("a number cannot be")
        if type(value["took_s"]) not in (int, float) or not isfinite(value["took_s"]):
            raise ValueError(f"took_s is {value['took_s']!r:.40}")
        if value["isolation"] not in ISOLATION_LEVELS:
            raise ValueError(f"isolation is {value['isolation']!r:.40}")
        changed = {}
        for partition, file_id, *counts in value["changed"]:
            if len(counts) != 4 or not all(type(each) is int for each in counts):
                raise ValueError(f"changed has {counts!r:.40}")
            changed.update(dict.fromkeys(groups_from_json([[partition, file_id]]), Changed(*counts)))
        writes = value["writes"]
        return cls(
            **texts,
            **numbers,
            overlap=tuple(value["overlap"]),
            writes=WriteSet(
                groups_from_json(writes["groups"]),
                Region.from_json(writes["region"]),
                groups_from_json(writes["appended"]),
            ),
            reads=ReadSet.from_json(value["reads"]),
            changed=changed,
            took_s=value["took_s"],
            merges=value["merges"] is True,
            early=value["early"] is True,
            cut=value["cut"] is True,
        )
