"""Rows that a later commit hides without having read them, found by what commits and plans name."""

from __future__ import annotations

from typing import Any

from lakelatch.hudi.timeline import (
    CommitMetadata,
    Instant,
    WriteStat,
    encode_clustering_plan,
    encode_compaction_plan,
    skipped,
)


def at(minute: int) -> str:
    return f"2026010100{minute:02}00000"


def instant(action: str, requested: int, completed: int) -> Instant:
    return Instant(at(requested), action, "completed", at(completed))


def base(t: int, group: str = "g", **more: Any) -> WriteStat:
    return WriteStat(group, f"p/{group}_0-0-0_{at(t)}.parquet", "p", **more)


def log(t: int, group: str = "g") -> WriteStat:
    return WriteStat(group, f"p/.{group}_{at(t)}.log.1_0-0-0", "p")


def wrote(*stats: WriteStat, operation: str = "UPSERT", replaced: tuple[str, ...] = ()) -> CommitMetadata:
    return CommitMetadata(operation, stats=stats, replaced={"p": replaced} if replaced else {})


def compaction(*logs: WriteStat, of: int = 1) -> bytes:
    names = [each.path.rpartition("/")[2] for each in logs]
    group = {"instant": at(of), "logs": names, "base": base(of).path.rpartition("/")[2], "file_id": "g"}
    return encode_compaction_plan({"groups": [group | {"partition": "p", "log_bytes": 1}]})


def clustering(*files: WriteStat) -> bytes:
    groups = [{"partition": "p", "files": [each.path.rpartition("/")[2] for each in files]}]
    return encode_clustering_plan({"groups": groups}, uri=lambda path: f"file:///t/{path}")


def lost(
    commits: list[tuple[Instant, CommitMetadata]], plans: dict[str, bytes] | None = None, *, merge_on_read: bool = True
) -> list[tuple[str, str]]:
    found = skipped(commits, (plans or {}).get, merge_on_read=merge_on_read)
    return [(each.lost, each.kept) for each in found]


FIRST = instant("deltacommit", 1, 2), wrote(base(1))


def test_a_base_file_made_from_the_version_before_the_last() -> None:
    three = [(instant("commit", 1, 2), wrote(base(1)))]
    three += [(instant("commit", 3, 5), wrote(base(3, prev_commit=at(1))))]
    three += [(instant("commit", 4, 6), wrote(base(4, prev_commit=at(1))))]
    assert lost(three, merge_on_read=False) == [(at(3), at(4))]
    assert lost(three[:2], merge_on_read=False) == []


def test_a_compaction_hides_a_log_file_that_its_plan_lacks() -> None:
    """Its writer took C before the compaction was planned, was paused, and put its instant after that."""
    commits = [FIRST, (instant("deltacommit", 3, 4), wrote(log(3))), (instant("deltacommit", 5, 6), wrote(log(5)))]
    compacted = instant("commit", 8, 9), wrote(base(8), operation="COMPACT")
    name = f"{at(8)}.compaction.requested"
    assert lost([*commits, compacted], {name: compaction(log(3), log(5))}) == []
    assert lost([*commits, compacted], {name: compaction(log(3))}) == [(at(5), at(8))]
    assert lost([*commits, compacted]) == []  # the plan is gone, so nothing is known


def test_a_log_file_that_is_completed_after_the_plan_belongs_to_the_new_base_file() -> None:
    commits = [FIRST, (instant("deltacommit", 7, 9), wrote(log(7))), (instant("commit", 8, 10), wrote(base(8)))]
    assert lost(commits, {f"{at(8)}.compaction.requested": compaction()}) == []


def test_log_files_of_an_older_version_need_not_be_in_the_plan() -> None:
    commits = [FIRST, (instant("deltacommit", 3, 4), wrote(log(3))), (instant("commit", 5, 6), wrote(base(5)))]
    commits += [(instant("commit", 8, 9), wrote(base(8)))]
    plans = {f"{at(5)}.compaction.requested": compaction(log(3)), f"{at(8)}.compaction.requested": compaction(of=5)}
    assert lost(commits, plans) == []


def test_a_clustering_hides_what_its_plan_lacks() -> None:
    clustered = instant("replacecommit", 8, 9), wrote(base(8, "new"), operation="CLUSTER", replaced=("g",))
    name = f"{at(8)}.clustering.requested"
    for merge_on_read, second in ((True, log(3)), (False, base(3, prev_commit=at(1)))):
        commits = [FIRST, (instant("deltacommit" if merge_on_read else "commit", 3, 7), wrote(second)), clustered]
        whole = clustering(base(1), second) if merge_on_read else clustering(second)
        assert lost(commits, {name: whole}, merge_on_read=merge_on_read) == []
        assert lost(commits, {name: clustering(base(1))}, merge_on_read=merge_on_read) == [(at(3), at(8))]


def test_what_is_written_to_a_file_group_after_it_was_replaced() -> None:
    replaced = instant("replacecommit", 3, 4), wrote(base(3, "new"), operation="INSERT_OVERWRITE", replaced=("g",))
    before, after = (instant("deltacommit", 2, 3), wrote(log(2))), (instant("deltacommit", 2, 5), wrote(log(2)))
    assert lost([FIRST, before, replaced]) == []
    assert lost([FIRST, after, replaced]) == [(at(2), at(3))]


def test_a_compaction_of_a_file_group_that_was_replaced_meanwhile_loses_nothing() -> None:
    replaced = instant("replacecommit", 3, 4), wrote(base(3, "new"), operation="INSERT_OVERWRITE", replaced=("g",))
    compacted = instant("commit", 2, 5), wrote(base(2), operation="COMPACT")
    merged = instant("deltacommit", 2, 5), wrote(log(2), operation="LOG_COMPACT")
    for each in (compacted, merged):
        assert lost([FIRST, replaced, each]) == []
