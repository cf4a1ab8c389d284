"""The kinds of transactions, and the table of which kinds may share a file group.

This is data. `resolve` decides by it, and docs/conflicts.md is generated from it by `scripts/conflict_matrix.py`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from itertools import product


class Kind(StrEnum):
    """The effect of a transaction on the file groups in its write set; the values are the words of the documents."""

    REWRITE = "ingestion, base files"
    APPEND = "ingestion, log files"
    STREAM = "events of a stream"  # in log files, which are merged in the order of commits
    OVERWRITE = "insert overwrite, delete partition"
    COMPACTION = "compaction"
    LOG_COMPACTION = "log compaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"


INGESTION = frozenset({Kind.REWRITE, Kind.APPEND, Kind.STREAM, Kind.OVERWRITE})  # these change rows, the others do not
PLANNED = frozenset({Kind.COMPACTION, Kind.LOG_COMPACTION, Kind.CLUSTERING})  # these rearrange rows by a plan
MAKES_GROUPS = INGESTION | {Kind.CLUSTERING}
# JVM Hudi does not check these at their commit (clustering only under its PreferWriter). A JVM writer that has begun one
# commits it whatever we do, so ours has to yield.
UNCHECKED_IN_JVM = frozenset({Kind.COMPACTION, Kind.CLUSTERING})

# Hudi's names of write operations, as commits carry them; every other name is some ingestion.
_KINDS = {
    "INSERT_OVERWRITE": Kind.OVERWRITE,
    "INSERT_OVERWRITE_TABLE": Kind.OVERWRITE,
    "DELETE_PARTITION": Kind.OVERWRITE,
    "COMPACT": Kind.COMPACTION,
    "LOG_COMPACT": Kind.LOG_COMPACTION,
    "CLUSTER": Kind.CLUSTERING,
    "CLEAN": Kind.CLEAN,
    "ARCHIVE": Kind.CLEAN,  # of instants instead of files
    "ROLLBACK": Kind.ROLLBACK,
    "SAVEPOINT": Kind.SAVEPOINT,
    "SAVEPOINT_DELETE": Kind.SAVEPOINT,
    "RESTORE": Kind.RESTORE,
}
BLIND = frozenset({"INSERT", "BULK_INSERT"})  # add rows and read none


@lru_cache(maxsize=256)  # asked several times for each candidate of each commit
def kind_of(operation: str) -> Kind:
    """Return the kind of a Hudi operation. An unknown one is a rewrite, which loses against most kinds."""
    return _KINDS.get(operation.upper(), Kind.REWRITE)


# --- against a committed one ---------------------------------------------------------------------------------------------
#
# Row: the transaction that wants to commit. Column: one that committed since it began (a planned one: since its plan).
#   .  both stand    x  it loses if they share a file group    X  it loses, whatever it touches

_GRID = """
                REWRITE APPEND STREAM OVERWRITE COMPACTION LOG_COMPACTION CLUSTERING CLEAN ROLLBACK SAVEPOINT RESTORE
REWRITE            x       x      x       x         x            x            x        .       .        .        X
APPEND             x       x      x       x         .            .            x        .       .        .        X
STREAM             x       x      .       x         .            .            x        .       .        .        X
OVERWRITE          x       x      x       x         .            .            x        .       .        .        X
COMPACTION         x       .      .       x         x            x            x        .       .        .        X
LOG_COMPACTION     x       .      .       x         x            x            x        .       .        .        X
CLUSTERING         x       x      x       x         x            x            x        .       .        .        X
CLEAN              .       .      .       .         .            .            .        .       .        x        X
ROLLBACK           .       .      .       .         .            .            .        .       .        .        .
SAVEPOINT          .       .      .       .         .            .            .        x       .        .        X
RESTORE            X       X      X       X         X            X            X        X       .        X        X
"""


def _read_grid() -> dict[tuple[Kind, Kind], str]:
    head, *rows = (line.split() for line in _GRID.strip().splitlines())
    return {(Kind[row[0]], Kind[name]): cell for row in rows for name, cell in zip(head, row[1:], strict=True)}


COMPLETED = _read_grid()
# Pairs of kinds that both stand whichever commits first, so the file groups that they share do not matter.
INDIFFERENT = frozenset((a, b) for a, b in COMPLETED if COMPLETED[a, b] == COMPLETED[b, a] == ".")

# --- a pending one -----------------------------------------------------------------------------------------------
#
# A pending transaction is in the way only if it would lose when ours commits first: the grid with the sides exchanged.
# Then ours commits and the other loses at its own commit, unless ours yields, which the strategy decides by kind:
# (ours, theirs). No two kinds yield to each other, so one of two can always commit.

_Pairs = frozenset[tuple[Kind, Kind]]

YIELDS_ALWAYS: _Pairs = frozenset(
    (ours, Kind.RESTORE) for ours in Kind if ours not in (Kind.RESTORE, Kind.ROLLBACK)
) | {
    (Kind.SAVEPOINT, Kind.CLEAN)  # the clean may already have deleted files that the savepoint would keep
}
_TO_PLANS: _Pairs = frozenset(
    {
        (Kind.REWRITE, Kind.COMPACTION),
        (Kind.REWRITE, Kind.LOG_COMPACTION),
        (Kind.REWRITE, Kind.CLUSTERING),
        (Kind.APPEND, Kind.CLUSTERING),
        (Kind.STREAM, Kind.CLUSTERING),
        (Kind.OVERWRITE, Kind.CLUSTERING),
    }
)
_AMONG_PLANS: _Pairs = frozenset(
    {(Kind.LOG_COMPACTION, Kind.COMPACTION), (Kind.LOG_COMPACTION, Kind.CLUSTERING)}  # the cheaper service yields
)
_TO_INGESTION: _Pairs = frozenset(product(PLANNED, INGESTION))

YIELDS_BY_PLAN = YIELDS_ALWAYS | _AMONG_PLANS | _TO_PLANS
YIELDS_TO_INGESTION = YIELDS_ALWAYS | _AMONG_PLANS | _TO_INGESTION
