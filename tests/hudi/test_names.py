"""Names of instants and data files are read as they are written, and nothing else is taken for one."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.hudi.files.file_names import (
    BaseName,
    LogName,
    base_file_name,
    bucket_of,
    log_file_name,
    new_file_id,
    parse_base_name,
    parse_log_name,
    partition_metadata,
    write_token,
)
from lakelatch.hudi.timeline.instant import (
    ACTIONS,
    COMPLETED_AS,
    Instant,
    file_name,
    from_epoch_ms,
    is_time,
    parse,
    to_epoch_ms,
)

EPOCH_MS = st.integers(-62135596800000, 253402300799999)  # years 1 to 9999
TIMES = EPOCH_MS.map(from_epoch_ms) | EPOCH_MS.map(lambda ms: from_epoch_ms(ms)[:14])
PARTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,40}", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        ("20240101000000000.commit.requested", Instant("20240101000000000", "commit", "requested")),
        ("20240101000000000.inflight", Instant("20240101000000000", "commit", "inflight")),
        (
            "20240101000000000_20240101000001000.commit",
            Instant("20240101000000000", "commit", "completed", "20240101000001000"),
        ),
        ("20240101000000.deltacommit.inflight", Instant("20240101000000", "deltacommit", "inflight")),
        ("20240101000000000.compaction.requested", Instant("20240101000000000", "compaction", "requested")),
        ("20240101000000000.replacecommit.inflight", Instant("20240101000000000", "replacecommit", "inflight")),
        ("20240101000000000.savepoint.inflight", Instant("20240101000000000", "savepoint", "inflight")),
        (
            "20240101000000000_20240101000001000.rollback",
            Instant("20240101000000000", "rollback", "completed", "20240101000001000"),
        ),
    ],
)
def test_names_of_layout_2(name, instant):
    assert parse(name, layout=2) == instant
    assert file_name(instant) == name


@pytest.mark.parametrize(
    "name",
    [
        "20240101000000000.commit",  # no completion time
        "20240101000000000_20240101000001000.compaction",  # completes as a commit
        "20240101000000000.requested",
        "20240101000000000.commit.inflight",
        "2024010100000000.inflight",
        "20240101000000000.party.requested",
        "20240101000000000_20240101000001000.commit.tmp",
        "20240101000000000_2024.commit",
        "history",
        "hoodie.properties",
        "",
    ],
)
def test_other_names_are_no_instants_of_layout_2(name):
    assert parse(name, layout=2) is None


def test_names_of_layout_1():
    assert parse("20240101000000000.commit", layout=1) == Instant("20240101000000000", "commit", "completed")
    assert parse("20240101000000000_20240101000001000.commit", layout=1) is None
    assert file_name(Instant("20240101000000000", "clustering", "requested"), layout=1).endswith(
        ".replacecommit.requested"
    )


@pytest.mark.parametrize(("plan", "commit"), COMPLETED_AS.items())
def test_plans_complete_under_the_name_of_their_commit(plan, commit):
    completed = Instant("20240101000000000", plan, "completed", "20240101000001000")
    assert parse(file_name(completed), layout=2) == Instant(
        "20240101000000000", commit, "completed", "20240101000001000"
    )


@given(TIMES, TIMES, st.sampled_from(sorted(ACTIONS)), st.sampled_from(["requested", "inflight", "completed"]))
def test_instants_are_read_as_they_are_written(requested, completed, action, state):
    done = state == "completed"
    instant = Instant(
        requested, COMPLETED_AS.get(action, action) if done else action, state, completed if done else None
    )
    assert parse(file_name(instant), layout=2) == instant
    older = Instant(instant.requested, "replacecommit" if action == "clustering" else instant.action, state)
    assert parse(file_name(older, layout=1), layout=1) == older


@given(EPOCH_MS)
def test_times_are_utc_milliseconds(epoch_ms):
    text = from_epoch_ms(epoch_ms)
    assert len(text) == 17
    assert is_time(text)
    assert to_epoch_ms(text) == epoch_ms
    assert to_epoch_ms(text[:14]) == epoch_ms - epoch_ms % 1000


@given(EPOCH_MS, EPOCH_MS)
def test_times_sort_as_text(one, other):
    assert (from_epoch_ms(one) < from_epoch_ms(other)) == (one < other)


def test_a_known_time():
    moment = dt.datetime(2026, 3, 7, 13, 56, 57, 661000, tzinfo=dt.UTC)
    assert from_epoch_ms(1772891817661) == "20260307135657661"
    assert to_epoch_ms("20260307135657661") == int(moment.timestamp() * 1000) == 1772891817661


@pytest.mark.parametrize("text", ["", "2024", "20241301000000000", "2024010100000000x", "20240101000000000 "])
def test_other_text_is_no_time(text):
    assert not is_time(text)
    with pytest.raises(ValueError):
        to_epoch_ms(text)


@given(PARTS, PARTS, TIMES, st.sampled_from(["parquet", "lance", "orc"]))
def test_base_files_are_read_as_they_are_written(file_id, token, instant, extension):
    name = BaseName(file_id, token, instant, extension)
    assert parse_base_name(base_file_name(name)) == name
    assert parse_log_name(base_file_name(name)) is None


@given(PARTS, TIMES, st.integers(0, 10**6), st.from_regex(r"[0-9]+-[0-9]+-[0-9]+|", fullmatch=True), st.booleans())
def test_log_files_are_read_as_they_are_written(file_id, instant, version, token, cdc):
    name = LogName(file_id, instant, version, token, cdc)
    assert parse_log_name(log_file_name(name)) == name
    assert parse_base_name(log_file_name(name)) is None


@pytest.mark.parametrize(
    "name",
    [
        "part-00000.snappy.parquet",
        "_a_b_20240101000000000.parquet",
        ".a_b_20240101000000000.parquet",
        ".a_b_20240101000000000.parquet.crc",
        "a_b_20240101000000000.parquet.tmp",
        "a_b_c_20240101000000000.parquet",
        "a_b_time.parquet",
        ".hoodie_partition_metadata",
        "_SUCCESS",
    ],
)
def test_stray_files_are_no_data_files(name):
    assert parse_base_name(name) is parse_log_name(name) is None


def test_file_ids_of_buckets():
    uuid = "501c09bc-09b2-4abe-81ee-31bd9cea901b"
    assert new_file_id(uuid) == f"{uuid}-0"
    assert new_file_id(uuid, bucket=42) == "00000042-09b2-4abe-81ee-31bd9cea901b-0"
    assert bucket_of(new_file_id(uuid, bucket=42)) == 42
    assert bucket_of(new_file_id(uuid)) is None
    assert write_token(3, 1, 0) == "3-1-0"


def test_partition_metadata_counts_the_levels():
    assert partition_metadata("20240101000000000", "a=1/b=2").endswith(
        b"commitTime=20240101000000000\npartitionDepth=2\n"
    )
    assert b"partitionDepth=0" in partition_metadata("20240101000000000", "")
