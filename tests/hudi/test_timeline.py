"""The timeline of a table that somebody has damaged, and of one that somebody is writing."""

from __future__ import annotations

import pytest

from lakelatch.errors import CorruptTableError
from lakelatch.hudi.files.listing import list_data_files
from lakelatch.hudi.timeline import Instant, archived
from lakelatch.hudi.timeline.snapshot import build
from lakelatch.hudi.timeline.timeline import TIMELINE, read_timeline
from lakelatch.storage.local.store import LocalStore


def test_a_zero_byte_commit_is_damage_by_name(clustered):
    name = "20260307135708654_20260307135708860.commit"
    (clustered.root / TIMELINE / name).write_bytes(b"")
    with pytest.raises(CorruptTableError, match=name):
        read_timeline(clustered.store, clustered.config)
    tolerant = read_timeline(clustered.store, clustered.config, tolerate_empty=True)
    assert [each.requested for each in tolerant.empty] == ["20260307135708654"]


def test_a_torn_commit_is_damage_when_it_is_read(clustered):
    name = "20260307135708654_20260307135708860.commit"
    path = clustered.root / TIMELINE / name
    path.write_bytes(path.read_bytes()[:-100])
    timeline = read_timeline(clustered.store, clustered.config)
    (torn,) = [each for each in timeline.commits if each.requested == "20260307135708654"]
    with pytest.raises(CorruptTableError, match=name):
        timeline.metadata(torn)


def test_a_torn_replacecommit_stops_every_snapshot(clustered):
    name = "20260307135707243_20260307135707527.replacecommit"
    path = clustered.root / TIMELINE / name
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorruptTableError, match=name):
        read_timeline(clustered.store, clustered.config).view()


def test_a_commit_that_vanishes_after_the_listing_is_said(clustered):
    timeline = read_timeline(clustered.store, clustered.config)
    instant = timeline.commits[0]
    (clustered.root / timeline.path(instant)).unlink()
    with pytest.raises(CorruptTableError, match="vanished"):
        timeline.metadata(instant)


def test_metadata_is_read_once(clustered):
    timeline = read_timeline(clustered.store, clustered.config)
    instant = timeline.commits[0]
    first = timeline.metadata(instant)
    (clustered.root / timeline.path(instant)).unlink()
    assert timeline.metadata(instant) is first


def test_pending_instants_are_listed_once_in_their_later_state(clustered):
    folder = clustered.root / TIMELINE
    for name in (
        "20260401000000000.commit.requested",
        "20260401000000000.inflight",
        "20260401000000001.clustering.requested",
        "20260401000000002.replacecommit.requested",
        "junk.txt",
    ):
        (folder / name).write_bytes(b"")
    timeline = read_timeline(clustered.store, clustered.config)
    assert [(each.requested[-3:], each.action, each.state) for each in timeline.pending] == [
        ("000", "commit", "inflight"),
        ("001", "clustering", "requested"),
        ("002", "replacecommit", "requested"),
    ]
    assert timeline.latest_time == "20260401000000002"


def test_files_of_a_pending_instant_are_not_in_the_snapshot(clustered):
    before = build(
        list_data_files(clustered.store), read_timeline(clustered.store, clustered.config).view(), clustered.config
    )
    (clustered.root / TIMELINE / "20260401000000000.commit.requested").write_bytes(b"")
    (clustered.root / "region=us" / "new-0_0-0-0_20260401000000000.parquet").write_bytes(b"x")
    after = build(
        list_data_files(clustered.store), read_timeline(clustered.store, clustered.config).view(), clustered.config
    )
    assert after == before


def test_commits_are_chosen_by_either_time(clustered):
    timeline = read_timeline(clustered.store, clustered.config)
    third = timeline.commits[2]
    assert timeline.completed_by(requested=third.requested) == timeline.commits[:3]
    assert timeline.completed_by(completed=third.completed) == timeline.commits[:3]
    assert timeline.completed_by() == timeline.commits


def test_a_partition_without_its_metadata_file_is_named(clustered):
    (clustered.root / "region=us" / ".hoodie_partition_metadata").unlink()
    (clustered.root / "region=us" / "part-0.snappy.parquet").write_bytes(b"")
    listing = list_data_files(clustered.store)
    assert listing.unmarked == ("region=us",)
    assert [entry.path for entry in listing.others] == ["region=us/part-0.snappy.parquet"]


def test_log_files_are_attached_until_they_are_compacted(merge_on_read):
    timeline = read_timeline(merge_on_read.store, merge_on_read.config)
    listing, view = list_data_files(merge_on_read.store), timeline.view()
    assert len(listing.logs) == 5
    logs_as_of = [
        sum(
            len(each.logs) for each in build(listing, view, merge_on_read.config, as_of=instant.requested).file_slices()
        )
        for instant in timeline.commits
    ]
    assert max(logs_as_of) > 0
    assert min(logs_as_of) == 0


def test_a_long_history_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(archived, "_FILES_KEPT", 3)
    history = archived.History(LocalStore(tmp_path), TIMELINE)
    times = [f"2026010100000000{number}" for number in range(7)]
    for each in times:
        history.add([archived.Archived(Instant(each, "clean", "completed", each), b"")])
    assert sorted(each.requested for each in history.instants().values()) == times
    assert history.completion_of(times[0]) == times[0]
    assert len(history._read) <= 3
