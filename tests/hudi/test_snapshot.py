"""Which files count: one rule of both readers per test, and agreement of building and following."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTableError, UnsupportedTableError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.listing import BaseFile, Listing, LogFile
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.timeline.archived_files import ArchivedFiles
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat
from lakelatch.hudi.timeline.instant import Instant
from lakelatch.hudi.timeline.snapshot import FileSlice, Replacement, Snapshot, TimelineView, build

V8 = TableConfig("t", "MERGE_ON_READ", 8, 2, partition_fields=("p",))
V6 = dataclasses.replace(V8, version=6, layout=1)
GROUP = FileGroupId("p", "a")


def base(instant: str, file_id: str = "a", *, partition: str = "p", token: str = "0") -> BaseFile:
    found = BaseFile.at(f"{partition}/{file_id}_{token}_{instant}.parquet", 10)
    assert found is not None
    return found


def log(instant: str, file_id: str = "a", *, version: int = 1) -> LogFile:
    found = LogFile.at(f"p/.{file_id}_{instant}.log.{version}_0", 5)
    assert found is not None
    return found


def snapshot(*files: BaseFile | LogFile, view: TimelineView, config: TableConfig = V8, **more: Any) -> Snapshot:
    bases = tuple(file for file in files if isinstance(file, BaseFile))
    logs = tuple(file for file in files if isinstance(file, LogFile))
    return build(Listing(bases, logs), view, config, **more)


def view(completion: dict[str, str], *replacements: Replacement, first: str | None = None) -> TimelineView:
    return TimelineView(completion, first or min(completion, default=None), replacements)


def times(found: Snapshot) -> list[str]:
    return [each.instant for each in found.file_slices()]


def test_the_larger_requested_time_wins_whatever_completed_last():
    found = snapshot(base("11"), base("12"), view=view({"11": "19", "12": "13"}))
    assert times(found) == ["12"]


def test_uncommitted_files_are_invisible():
    assert times(snapshot(base("11"), base("12"), view=view({"11": "13"}))) == ["11"]
    assert len(snapshot(base("12"), view=view({}, first="12"))) == 0


def test_files_of_a_pending_instant_at_the_start_of_the_timeline_are_invisible():
    assert len(snapshot(base("11"), view=view({"12": "13"}, first="11"))) == 0


def test_files_older_than_the_timeline_are_archived_commits():
    assert times(snapshot(base("05"), view=view({"11": "12"}))) == ["05"]


def test_nothing_counts_on_an_empty_timeline():
    assert len(snapshot(base("05"), view=view({}))) == 0


def test_replaced_groups_are_gone():
    gone = Replacement("12", "13", (GROUP,))
    assert len(snapshot(base("11"), log("11"), view=view({"11": "11", "12": "13"}, gone))) == 0


def test_replaced_groups_are_there_as_of_an_earlier_time():
    gone = Replacement("12", "14", (GROUP,))
    seen = view({"11": "11", "12": "14"}, gone)
    assert times(snapshot(base("11"), view=seen, as_of="11")) == ["11"]
    assert times(snapshot(base("11"), view=seen, as_of="12")) == []
    assert times(snapshot(base("11"), view=seen, as_of_completion="13")) == ["11"]
    assert times(snapshot(base("11"), view=seen, as_of_completion="14")) == []


@pytest.mark.parametrize("left", [base("13"), log("13")], ids=["base file", "log file"])
@pytest.mark.parametrize(
    ("replaced", "there", "as_of", "seen"),
    [
        (
            "15",
            False,
            {},
            False,
        ),  # by T=12, which has been archived; T=13 has completed at 14 and is still on the timeline
        ("13", False, {}, True),  # somebody has deleted the file, and a reader has to miss it
        ("15", False, {"as_of_completion": "14"}, True),
        ("15", True, {}, True),
    ],
    ids=["replaced", "replaced before", "as of before", "there"],
)
def test_a_named_file_of_a_group_that_an_archived_commit_has_replaced_does_not_count(
    left: BaseFile | LogFile, replaced: str, there: bool, as_of: dict[str, str], seen: bool
) -> None:
    archived = mock.create_autospec(ArchivedFiles, instance=True)
    archived.replaced.side_effect = lambda *, counts: (
        {GROUP} if counts(Instant("12", "replacecommit", "completed", replaced)) else set()
    )
    archived.counts.return_value, archived.named.return_value, archived.not_replaced.return_value = None, (), []
    timeline = TimelineView({"13": "14"}, "13", (), "13", archived)
    slice_ = FileSlice(GROUP, left) if isinstance(left, BaseFile) else FileSlice(GROUP, None, (left,))
    files = [left] if there else []
    found = snapshot(*files, view=timeline, named={"p": {"a": slice_}}, **as_of)
    assert bool(len(found)) == seen
    assert archived.replaced.called is not there


def test_time_travel_is_by_requested_time_and_ours_by_completion_time():
    files, seen = [base("11"), base("12")], view({"11": "19", "12": "13"})
    assert times(snapshot(*files, view=seen, as_of="11")) == ["11"]
    assert times(snapshot(*files, view=seen, as_of_completion="13")) == ["12"]
    assert times(snapshot(*files, view=seen, as_of_completion="12")) == []


def test_a_log_file_belongs_to_the_newest_base_file_at_its_completion():
    seen = view({"10": "10", "11": "14", "12": "13"})
    (late,) = snapshot(base("10"), base("12"), log("11"), view=seen).file_slices()
    assert late.instant == "12"
    assert [each.instant for each in late.logs] == ["11"]
    (compacted,) = snapshot(
        base("10"), base("12"), log("11"), view=view({"10": "10", "11": "11", "12": "13"})
    ).file_slices()
    assert compacted.logs == ()


def test_an_uncommitted_log_file_is_invisible():
    (found,) = snapshot(base("10"), log("11"), view=view({"10": "10"})).file_slices()
    assert found.logs == ()


def test_a_log_file_of_version_6_belongs_to_the_base_file_in_its_name():
    seen = view({"10": "10", "12": "12"})
    (old,) = snapshot(base("10"), log("10", version=2), log("10"), view=seen, config=V6).file_slices()
    assert [each.version for each in old.logs] == [1, 2]
    (new,) = snapshot(base("10"), base("12"), log("10"), view=seen, config=V6).file_slices()
    assert new.logs == ()


def test_a_group_of_log_files_has_no_rows_of_its_own_yet():
    (found,) = snapshot(log("11"), log("10"), view=view({"10": "10", "11": "11"})).file_slices()
    assert found.instant == "10"
    with pytest.raises(UnsupportedTableError, match="only log files"):
        found.path  # noqa: B018


def test_two_base_files_of_one_commit_are_damage():
    with pytest.raises(CorruptTableError, match=r"a_0_11.parquet and p/a_1_11.parquet"):
        snapshot(base("11"), base("11", token="1"), view=view({"11": "12"}))


def test_slices_are_found_by_partition_and_group():
    seen = view({"11": "12"})
    found = snapshot(base("11"), base("11", "b"), base("11", partition="q"), view=seen)
    assert found.partitions() == ["p", "q"]
    assert [each.file_id for each in found.file_slices("p")] == ["a", "b"]
    assert found.file_slices("nowhere") == []
    first = found.file_slices()[0]
    assert found.get(("p", "a")) == found.get(GROUP) == first
    assert (first.partition, first.file_id, first.instant, first.size) == ("p", "a", "11", 10)
    assert first.path == "p/a_0_11.parquet"
    assert found.get(("p", "z")) is None


def test_snapshots_pickle():
    found = snapshot(base("11"), log("11"), view=view({"11": "12"}))
    assert pickle.loads(pickle.dumps(found)) == found


def test_following_shares_untouched_partitions_and_leaves_the_old_snapshot_alone():
    before = snapshot(base("11"), base("11", partition="q"), view=view({"11": "12"}))
    commit = CommitMetadata(stats=(WriteStat("a", "p/a_0_13.parquet", "p", file_size=7),))
    after = before.after(commit, "13", "14")
    assert times(before) == ["11", "11"]
    assert times(after) == ["13", "11"]
    assert after._partitions["q"] is before._partitions["q"]
    assert after.get(GROUP).size == 7


def test_a_partition_without_groups_is_no_partition():
    before = snapshot(base("11"), view=view({"11": "12"}))
    assert before.after(CommitMetadata(replaced={"p": ("a",)}), "13", "14").partitions() == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from("pq"),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        st.sampled_from(["write", "append", "replace"]),
    ),
    max_size=12,
)


@given(STEPS)
def test_following_commits_is_the_same_as_building_from_all_files(steps):
    """File ids are never used again after a replacement, as in a real table."""
    generation: dict[tuple[str, str], int] = {}
    followed, seen = Snapshot(), TimelineView()
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for number, (partition, letters, action) in enumerate(steps):
        requested, completed = f"{2 * number + 10}", f"{2 * number + 11}"
        ids = [f"{letter}{generation.get((partition, letter), 0)}" for letter in letters]
        if action == "replace":
            commit = CommitMetadata(replaced={partition: tuple(ids)})
            generation |= {(partition, letter): generation.get((partition, letter), 0) + 1 for letter in letters}
        else:
            names = [
                f"{partition}/{each}_0_{requested}.parquet"
                if action == "write"
                else f"{partition}/.{each}_{requested}.log.1_0"
                for each in ids
            ]
            bases += [file for file in (BaseFile.at(name, 1) for name in names) if file]
            logs += [file for file in (LogFile.at(name, 1) for name in names) if file]
            stats = (WriteStat(each, name, partition, file_size=1) for each, name in zip(ids, names, strict=True))
            commit = CommitMetadata(stats=tuple(stats))
        followed = followed.after(commit, requested, completed)
        groups = tuple(FileGroupId(where, each) for where, gone in commit.replaced.items() for each in gone)
        replaced = (Replacement(requested, completed, groups),) if groups else ()
        seen = TimelineView(
            {**seen.completion, requested: completed}, seen.first_active or requested, (*seen.replacements, *replaced)
        )
        assert followed == build(Listing(tuple(bases), tuple(logs)), seen, V8)
