"""Commit metadata: equal input gives equal bytes, and no torn file is taken for a commit."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTableError
from lakelatch.hudi.timeline.avro_schemas import schema_of
from lakelatch.hudi.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit,
    decode_container,
    encode_commit,
    encode_container,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNTS = st.integers(0, 2**63 - 1)
STATS = st.builds(
    WriteStat,
    file_id=TEXT,
    path=TEXT,
    partition=TEXT,
    prev_commit=TEXT,
    num_writes=COUNTS,
    num_inserts=COUNTS,
    num_updates=COUNTS,
    num_deletes=COUNTS,
    total_write_bytes=COUNTS,
    file_size=COUNTS,
    errors=COUNTS,
    base_file=st.none() | TEXT,
    log_files=st.none() | st.lists(TEXT, max_size=2).map(tuple),
    log_version=st.none() | st.integers(0, 100),
)
COMMITS = st.builds(
    CommitMetadata,
    operation=st.none() | TEXT,
    schema=st.none() | TEXT.filter(bool),
    extra=st.dictionaries(TEXT.filter(lambda key: key != "schema"), TEXT, max_size=3),
    stats=st.lists(STATS, max_size=4).map(
        lambda stats: tuple(sorted(stats, key=lambda each: (each.partition, each.path)))
    ),
    replaced=st.dictionaries(
        TEXT, st.lists(TEXT, min_size=1, max_size=3).map(lambda ids: tuple(sorted(ids))), max_size=3
    ),
    compacted=st.booleans(),
)
SMALL = CommitMetadata(
    "UPSERT", "{}", {"k": "v"}, (WriteStat("f-0", "p/f-0_0-0-0_1.parquet", "p", num_writes=1),), {"p": ("g-0",)}
)
NAME = "20240101000000000_20240101000001000.replacecommit"


@given(COMMITS)
def test_commits_survive_avro_and_json(metadata):
    body = encode_commit(metadata, replace=True)
    assert decode_commit(body, name=NAME, layout=2) == metadata
    assert encode_commit(metadata, replace=True) == body
    assert CommitMetadata.from_json(json.loads(json.dumps(metadata.to_json()))) == metadata


def test_a_commit_without_replacements_is_of_the_smaller_type():
    body = encode_commit(SMALL, replace=False)
    assert decode_commit(body, name=NAME, layout=2).replaced == {}
    reader = fastavro.reader(io.BytesIO(body))
    assert reader.writer_schema["name"] == "org.apache.hudi.avro.model.HoodieCommitMetadata"
    assert reader.codec == "null"


def test_the_order_of_statistics_does_not_change_the_bytes():
    stats = tuple(WriteStat(f"{each}", f"p/{each}", "p") for each in range(3))
    one, other = CommitMetadata(stats=stats), CommitMetadata(stats=stats[::-1])
    assert encode_commit(one, replace=False) == encode_commit(other, replace=False)


@pytest.mark.parametrize("replace", [False, True])
def test_a_commit_cut_at_any_byte_is_damage(replace):
    body = encode_commit(SMALL, replace=replace)
    for length in range(len(body)):
        with pytest.raises(CorruptTableError, match=NAME):
            decode_commit(body[:length], name=NAME, layout=2)


def test_a_json_commit_cut_at_any_byte_is_damage():
    body = json.dumps({"partitionToWriteStats": {}, "extraMetadata": {"schema": "{}"}}).encode()
    assert decode_commit(body, name="1.commit", layout=1).schema == "{}"
    for length in range(len(body)):
        with pytest.raises(CorruptTableError, match=r"1\.commit"):
            decode_commit(body[:length], name="1.commit", layout=1)


@pytest.mark.parametrize("body", [b"{}", b"junk", b"Obj\x01", b'{"partitionToWriteStats": {}}'])
def test_something_else_is_damage(body):
    with pytest.raises(CorruptTableError, match="not an Avro file"):
        decode_commit(body, name=NAME, layout=2)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b'{"partitionToWriteStats": 7}', b'{"partitionToWriteStats": {"p": [1]}}']
)
def test_other_json_is_damage(body):
    with pytest.raises(CorruptTableError):
        decode_commit(body, name="1.commit", layout=1)


def test_two_records_are_damage():
    out = io.BytesIO()
    fastavro.writer(out, schema_of("HoodieCommitMetadata"), [{}, {}])
    with pytest.raises(CorruptTableError, match="2 records"):
        decode_commit(out.getvalue(), name=NAME, layout=2)


def test_fields_of_later_versions_are_ignored():
    assert CommitMetadata.from_json(
        {"operation": "X", "stats": [{"file_id": "f", "path": "p", "partition": "", "new": 1}]}
    )


def test_a_container_of_any_record():
    schema = schema_of("HoodieRequestedReplaceMetadata")
    plan = {"inputGroups": [], "strategy": {"strategyClassName": "x"}}
    record = decode_container(encode_container(schema, {"clusteringPlan": plan}), name="x")
    assert record["clusteringPlan"]["strategy"]["strategyClassName"] == "x"
