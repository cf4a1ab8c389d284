"""Apache Hudi's own tests of conflict resolution, row by row, and what this library answers to each.

One scenario per test of Hudi (named in ``source``; the facts of each test, retold). ``hudi`` is what Hudi's test demands;
``here`` our answer. Where they differ, ``why`` says so. Table version 8 and later: older ones are not written here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from lakelatch.conflict import Party, ReadSet, WriteSet, candidates, resolve
from lakelatch.conflict.write_set import Region
from lakelatch.hudi.files import FileGroupId

SIMPLE = "TestSimpleConcurrentFileWritesConflictResolutionStrategy"
WRITER = "TestPreferWriterConflictResolutionStrategy"
BUCKET = "TestBucketIndexConcurrentFileWritesConflictResolutionStrategy"
CLIENT = "TestHoodieClientMultiWriter"
P = "2016/03/15"


def files(*ids: str, partition: str = P) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId(partition, each) for each in ids)


def party(t: str, operation: str = "UPSERT", *ids: str, c: str = "", append: bool = False, **more) -> Party:
    groups = files(*ids)
    region = Region(frozenset({P})) if operation in ("INSERT_OVERWRITE", "DELETE_PARTITION") and c else Region()
    return Party(t, c, operation, f"writer of {t}", WriteSet(groups, region, groups if append else frozenset()), **more)


@dataclass(frozen=True)
class Scenario:
    name: str
    source: str
    ours: Party
    at_begin: tuple[Party, ...]  # what there was when ours began
    now: tuple[Party, ...]  # what there is when it commits
    hudi: str  # fails or lands
    here: str  # fails, waits or lands
    against: str = ""  # T of the one in the way
    by: str = "simple"
    why: str = ""
    candidates: int | None = None  # how many Hudi compares, where its test says

    def __str__(self) -> str:
        return f"{self.source}-{self.name}"


C0 = party("01", "UPSERT", "file-1", "file-2", c="02")
W1 = party("10", "UPSERT", "file-1")
MOR = replace(W1, writes=WriteSet(files("file-1"), appended=files("file-1")))


def row(name, source, ours, now, hudi, here="", *, at_begin=(C0,), **more) -> Scenario:
    return Scenario(name, source, ours, at_begin, (*at_begin[: 1 if at_begin else 0], *now), hudi, here or hudi, **more)


SCENARIOS = [
    row("NoConcurrentWrites", SIMPLE, W1, [], "lands", candidates=0),
    row(
        "ConcurrentWrites",
        SIMPLE,
        W1,
        [party("11", "UPSERT", "file-1"), party("12", "UPSERT", "file-1")],
        "lands",
        candidates=0,
    ),
    row("InterleavingSuccessfulCommit", SIMPLE, W1, [party("11", "UPSERT", "file-1", c="12")], "fails", against="11"),
    row(
        "ReplaceInflightCommit",
        SIMPLE,
        W1,
        [party("11", "INSERT_OVERWRITE", "file-1")],
        "fails",
        "lands",
        at_begin=(),
        why="a pending overwrite is no plan that others wait for: the first to commit wins, and it loses at its own "
        "commit. In Hudi both would fail if both were to commit",
        candidates=1,
    ),
    row("ClusteringInflightCommit", SIMPLE, W1, [party("11", "CLUSTER", "file-1")], "fails", "waits", against="11"),
    row(
        "LegacyClusteringInflightCommit",
        SIMPLE,
        W1,
        [party("09", "CLUSTER", "file-1")],
        "fails",
        "waits",
        at_begin=(C0, party("09", "CLUSTER", "file-1")),
        against="09",
    ),
    row("InterleavingScheduledCompaction", SIMPLE, MOR, [party("11", "COMPACT", "file-1")], "lands", candidates=0),
    row(
        "InterleavingSuccessfulCompaction",
        SIMPLE,
        MOR,
        [party("11", "COMPACT", "file-1", c="12")],
        "lands",
        candidates=0,
    ),
    row("InterleavingInflightCompaction", SIMPLE, MOR, [party("11", "COMPACT", "file-1")], "lands", candidates=0),
    row(
        "CompactionScheduledEarlier",
        SIMPLE,
        MOR,
        [party("05", "COMPACT", "file-1", c="06")],
        "lands",
        at_begin=(C0, party("05", "COMPACT", "file-1", c="06")),
        candidates=0,
    ),
    row(
        "InterleavingScheduledCluster", SIMPLE, MOR, [party("11", "CLUSTER", "file-1")], "fails", "waits", against="11"
    ),
    row("InterleavingSuccessfulCluster", SIMPLE, W1, [party("11", "CLUSTER", "file-1", c="12")], "fails", against="11"),
    row(
        "InterleavingSuccessfulReplace",
        SIMPLE,
        W1,
        [party("11", "INSERT_OVERWRITE", "file-1", c="12")],
        "fails",
        against="11",
    ),
    row(
        "PendingInsertOverwriteReplace",
        SIMPLE,
        W1,
        [party("11", "INSERT_OVERWRITE", "file-3")],
        "lands",
        candidates=1,
    ),
    *(
        # Pending at the begin and landed since, requested before or after ours: HUDI-3355.
        row(
            f"PendingInstants-{name}",
            SIMPLE,
            replace(MOR, instant="30", writes=WriteSet(files("file-2"), appended=files("file-2"))),
            [replace(then, completion="40")],
            "fails" if fails else "lands",
            at_begin=(C0, then) if name != "C4 commit" else (C0,),
            against=then.instant if fails else "",
        )
        for name, then, fails in (
            ("C1 clustering", party("03", "CLUSTER", "file-2"), True),
            ("C11 older compaction", party("04", "COMPACT", "file-2"), False),
            ("C12 commit", party("05", "UPSERT", "file-2"), True),
            ("C4 commit", party("31", "UPSERT", "file-2"), True),
        )
    ),
    row(
        "InterleavingSuccessfulCommitWithMORTable",
        SIMPLE,
        MOR,
        [party("11", "COMPACT", "file-1")],
        "fails",
        "lands",
        why="of 0.14 and tables before version 8, where log files belonged to a slice by the base file's time. Since "
        "version 8 ours goes to the next slice",
    ),
    row("InterleavingScheduledCompaction", WRITER, W1, [party("11", "COMPACT", "file-1")], "lands", by="prefer-writer"),
    row(
        "InterleavingSuccessfulCompaction",
        WRITER,
        W1,
        [party("11", "COMPACT", "file-1", c="12")],
        "fails",
        against="11",
        by="prefer-writer",
    ),
    row(
        "InterleavingCompaction",
        WRITER,
        party("11", "COMPACT", "file-1"),
        [W1],
        "fails",
        "waits",
        against="10",
        by="prefer-writer",
        candidates=1,
    ),
    row(
        "InterleavingCompaction, ingestion only appends log files",
        WRITER,
        party("11", "COMPACT", "file-1"),
        [MOR],
        "fails",
        "lands",
        by="prefer-writer",
        why="what it appends goes to the next slice, so neither harms the other",
    ),
    row(
        "WriteAndCompactionScheduledEarlier",
        WRITER,
        W1,
        [party("05", "COMPACT", "file-1", c="06")],
        "lands",
        at_begin=(C0, party("05", "COMPACT", "file-1", c="06")),
        by="prefer-writer",
        candidates=0,
    ),
    row("InterleavingScheduledCluster", WRITER, W1, [party("11", "CLUSTER", "file-1")], "lands", by="prefer-writer"),
    row(
        "InterleavingSuccessfulCluster",
        WRITER,
        W1,
        [party("11", "CLUSTER", "file-1", c="12")],
        "fails",
        against="11",
        by="prefer-writer",
    ),
    row(
        "InterleavingSuccessfulReplace",
        WRITER,
        W1,
        [party("11", "INSERT_OVERWRITE", "file-1", c="12")],
        "fails",
        against="11",
        by="prefer-writer",
    ),
    row("NoConcurrentWrites", BUCKET, party("10", "UPSERT", "00000001-a"), [], "lands", by="bucket", candidates=0),
    row(
        "ConcurrentWrites",
        BUCKET,
        party("10", "UPSERT", "00000001-a"),
        [party("11", "UPSERT", "00000001-b")],
        "lands",
        by="bucket",
        candidates=0,
    ),
    row(
        "InterleavingSuccessfulCommit",
        BUCKET,
        party("10", "UPSERT", "00000001-a"),
        [party("11", "UPSERT", "00000001-b", c="12")],
        "fails",
        against="11",
        by="bucket",
    ),
    row(
        "InterleavingSuccessfulCommitWithDifferentPartition",
        BUCKET,
        replace(W1, writes=WriteSet(files("00000001-a", partition="other"))),
        [party("11", "UPSERT", "00000001-b", c="12")],
        "lands",
        by="bucket",
        candidates=1,
    ),
    *(
        row(
            "BasicMultiWriter", CLIENT, party("03", "UPSERT", "f"), [party("02", "UPSERT", "f", c="04")], "fails", by=by
        )
        for by in ("simple", "prefer-writer")
    ),
    row(
        "MultiWriterWithInsertsToDistinctPartitions",
        CLIENT,
        party("10", "INSERT", "new"),
        [
            Party(f"1{n}", f"2{n}", "INSERT", "other", WriteSet(files("new", partition=f"part-{n}")))
            for n in range(1, 5)
        ],
        "lands",
    ),
    row(
        "WithAsyncTableServicesWithConflict",
        CLIENT,
        MOR,
        [
            party("11", "COMPACT", "file-1", c="13"),
            party("12", "CLEAN", "file-1", c="14"),
            party("15", "INSERT", "n", c="16"),
        ],
        "lands",
    ),
    *(
        row(
            f"WithAsyncLazyCleanRollback, of {dead}",
            CLIENT,
            party("20", "ROLLBACK", undoes=frozenset({dead})),
            [party("002", "UPSERT", "a", c="19"), party("003", "UPSERT", "b")],
            hudi,
            against="002" if hudi == "fails" else "",
            at_begin=(),
        )
        for dead, hudi in (("002", "fails"), ("003", "lands"))
    ),
    row(
        "MultiWriterWithClustering",
        CLIENT,
        party("003", "UPSERT", "f"),
        [party("004", "UPSERT", "g", c="005"), party("006", "CLUSTER", "f")],
        "fails",
        "waits",
        against="006",
    ),
    row("AutoCommitForConflict", CLIENT, W1, [party("11", "UPSERT", "file-1", c="12")], "fails", against="11"),
    row(
        "AutoCommitNonConflict",
        CLIENT,
        party("10", "BULK_INSERT", "mine"),
        [party("11", "BULK_INSERT", "theirs", c="12")],
        "lands",
    ),
    row(
        "IndexingAndAggressiveCleaning",
        CLIENT,
        MOR,
        [party("11", "CLEAN", "file-1", c="12")],
        "lands",
    ),
    row(
        "EarlyConflictDetection, 004 after the dead 003",
        CLIENT,
        party("004", "UPSERT", "f"),
        [party("002", "UPSERT", "f", c="003")],
        "lands",
        at_begin=(party("002", "UPSERT", "f", c="003"),),
    ),
    row(
        "rollback of ours is pending [2026]",
        "SimpleConcurrentFileWritesConflictResolutionStrategy",
        W1,
        [party("11", "ROLLBACK", undoes=frozenset({"10"}), stranger=True)],
        "fails",
        against="11",
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_hudi_s_acceptance_table(scenario: Scenario) -> None:
    known = {each.instant for each in scenario.at_begin if each.landed}
    compared = candidates(known, scenario.now, own=scenario.ours.instant)
    verdict = resolve(scenario.ours, ReadSet(), compared, by=scenario.by, bucketed=scenario.by == "bucket")
    lost = verdict.lost
    assert ("lands" if lost is None else "waits" if lost.waits else "fails") == scenario.here
    if lost is not None:
        assert lost.winner.instant == (scenario.against or lost.winner.instant)
        assert lost.loser == scenario.ours
        assert lost.rule
        assert lost.advice
    if scenario.candidates == 0:
        assert lost is None
    assert bool(scenario.why) == ((scenario.hudi == "lands") != (scenario.here == "lands")), (
        "a difference needs its why"
    )
