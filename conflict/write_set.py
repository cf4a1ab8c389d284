"""What a transaction changed and what it depended on, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class FileGroupId(NamedTuple):
    """A file group: relative partition path ("" when unpartitioned) and file id."""

    partition: str
    file_id: str

    def __str__(self) -> str:
        return f"{self.partition}/{self.file_id}" if self.partition else self.file_id


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
        """The reverse of `to_json`; None is the empty region."""
        return cls(frozenset(value["partitions"]), value["whole_table"]) if value else cls()


NOWHERE = Region()


@dataclass(frozen=True, slots=True)
class WriteSet:
    """File groups created, changed or replaced, and the region an overwrite replaces, empty partitions included."""

    groups: frozenset[FileGroupId] = frozenset()
    region: Region = field(default=NOWHERE)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What the result depends on.

    ``region``: the partitions a condition was evaluated on: a file group that appears there meanwhile matters.
    ``blind``: nothing of the table was read (an insert of new rows): an overwrite that landed meanwhile is no
    conflict, because "overwrite, then insert" gives the same table.
    """

    region: Region = field(default=NOWHERE)
    blind: bool = False
