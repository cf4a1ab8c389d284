"""The grid of operations against a model of file slices: what a reader sees when both land.

One file group with a base file and a log file. Two transactions begin on the same snapshot and both land, in either
order of T. The model reads as Hudi's readers do: of two base files the larger T, then the log files whose C is not
before it. What it shows must be what the two give one after the other, wherever the grid lets both stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from lakelatch.conflict.operations import COMPLETED, INGESTION, PLANNED, Kind

Rows = dict[str, int]


@dataclass(frozen=True)
class Log:
    t: int
    c: int
    rows: Rows
    merged: frozenset[int] = frozenset()  # T of the log files that this one stands for


@dataclass(frozen=True)
class Group:
    bases: dict[int, Rows] = field(default_factory=dict)
    logs: tuple[Log, ...] = ()

    def rows(self) -> Rows:
        t = max(self.bases, default=0)
        seen = dict(self.bases.get(t, {}))
        skipped = {each for log in self.logs for each in log.merged}
        for log in sorted(self.logs, key=lambda log: max(log.merged, default=log.t)):
            if log.c >= t and log.t not in skipped:
                seen |= log.rows
        return seen


@dataclass(frozen=True)
class Table:
    groups: dict[str, Group]
    gone: frozenset[str] = frozenset()
    wrote_gone: bool = False

    def rows(self) -> list[tuple[str, int]]:
        return sorted(pair for name, g in self.groups.items() if name not in self.gone for pair in g.rows().items())


START = Table({"g": Group({1: {"n": 1, "a": 1, "b": 1}}, (Log(2, 3, {"n": 2}),))})


@dataclass(frozen=True)
class Work:
    kind: Kind
    t: int
    c: int
    name: str

    def land(self, seen: Table, now: Table) -> Table:
        """What it computed from ``seen``, put on top of ``now``."""
        mine, group = seen.groups["g"], now.groups["g"]
        rows = mine.rows() if "g" not in seen.gone else {}
        changed = {self.name: rows.get(self.name, 0) + 10, "n": rows.get("n", 0) + 1}
        gone, groups = now.gone, dict(now.groups)
        match self.kind:
            case Kind.REWRITE:
                groups["g"] = replace(group, bases={**group.bases, self.t: rows | changed})
            case Kind.APPEND:
                groups["g"] = replace(group, logs=(*group.logs, Log(self.t, self.c, changed)))
            case Kind.STREAM:  # it reads nothing, and its columns are its own
                groups["g"] = replace(group, logs=(*group.logs, Log(self.t, self.c, {self.name: 10})))
            case Kind.COMPACTION:
                groups["g"] = replace(group, bases={**group.bases, self.t: rows})
            case Kind.LOG_COMPACTION:
                base = max(mine.bases)
                logs = [log for log in mine.logs if log.c >= base]
                all_rows = {k: v for log in logs for k, v in log.rows.items()}
                block = Log(self.t, self.c, all_rows, frozenset(log.t for log in logs))
                groups["g"] = replace(group, logs=(*group.logs, block)) if logs else group
            case Kind.CLUSTERING:
                groups[self.name + "'"] = Group({self.t: rows})
                gone |= {"g"}
            case Kind.OVERWRITE:
                groups[self.name + "'"] = Group({self.t: {"fresh " + self.name: 1}})
                gone |= set(seen.groups)
        wrote = "g" in now.gone and self.kind not in (Kind.OVERWRITE, Kind.CLUSTERING)
        return Table(groups, gone, now.wrote_gone or wrote)


def harm(ours: Kind, theirs: Kind) -> bool:
    """Whether a reader sees what no serial order gives, or a group is written that is gone, if both land."""
    for t_ours, t_theirs in ((10, 11), (11, 10)):
        first, second = Work(theirs, t_theirs, 20, "b"), Work(ours, t_ours, 30, "a")
        landed = first.land(START, START)
        both = second.land(START, landed)
        again = replace(second, t=25)  # run again, after the first: a new T
        serial = again.land(landed, landed) if "g" not in landed.gone or ours is Kind.OVERWRITE else None
        if serial is None or both.wrote_gone or both.rows() != serial.rows():
            return True
    return False


WRITERS = sorted(INGESTION | PLANNED)
# An overwrite takes the place of whatever the other wrote, so it could stand; it loses as in Hudi, and its author
# decides. A later service changes no row either; it loses to another service, and is planned again on what there is.
# A table with streams takes no other writes at all.
STRICT = {
    *((Kind.OVERWRITE, other) for other in (Kind.REWRITE, Kind.APPEND, Kind.STREAM)),
    *((Kind.STREAM, other) for other in (Kind.REWRITE, Kind.APPEND)),
    *((other, Kind.STREAM) for other in (Kind.REWRITE, Kind.APPEND)),
    *product(PLANNED, PLANNED),
}


@pytest.mark.parametrize(("ours", "theirs"), list(product(WRITERS, WRITERS)))
def test_the_grid_is_what_file_slices_demand(ours, theirs):
    if COMPLETED[ours, theirs] == ".":
        assert not harm(ours, theirs), "both stand, and a reader sees something else"
    elif not harm(ours, theirs):
        assert (ours, theirs) in STRICT, "it loses without need"
