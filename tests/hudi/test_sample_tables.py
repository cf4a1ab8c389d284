"""What an independent reader says of tables that JVM Hudi wrote must be what we say."""

from __future__ import annotations

import io

import fastavro
import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import lakelatch
from lakelatch.errors import UnsupportedTableError
from lakelatch.hudi.files.listing import list_data_files
from lakelatch.hudi.table.avro_schema import from_avro, to_avro
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.partition_path import parse_partition_path, partition_path
from lakelatch.hudi.timeline.avro_schemas import schema_of
from lakelatch.hudi.timeline.commit_metadata import (
    CommitMetadata,
    decode_commit,
    decode_container,
    encode_commit,
    encode_container,
)
from lakelatch.hudi.timeline.instant import COMMIT_ACTIONS
from lakelatch.hudi.timeline.snapshot import Snapshot, build
from lakelatch.hudi.timeline.timeline import read_timeline


def reader(table):
    return HudiTableBuilder.from_base_uri(str(table.root)).build()


def slices_of(snapshot: Snapshot):
    return {
        (
            each.partition,
            each.file_id,
            each.base.path.rpartition("/")[2] if each.base else "",
            tuple(sorted(log.path.rpartition("/")[2] for log in each.logs)),
        )
        for each in snapshot.file_slices()
    }


def slices_by_reader(table, options=None):
    return {
        (each.partition_path, each.file_id, each.base_file_name or "", tuple(sorted(each.log_file_names)))
        for each in reader(table).get_file_slices(options)
    }


def snapshot_of(table, **as_of) -> Snapshot:
    view = read_timeline(table.store, table.config).view()
    return build(list_data_files(table.store), view, table.config, **as_of)


def in_order(rows: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


def test_the_same_instants_are_completed(table):
    theirs = reader(table).get_timeline()
    listed = [
        *theirs.get_completed_commits(),
        *theirs.get_completed_deltacommits(),
        *theirs.get_completed_replacecommits(),
    ]
    ours = read_timeline(table.store, table.config).commits
    assert {(each.requested, each.action) for each in ours} == {(each.timestamp, each.action) for each in listed}
    assert [each.order for each in ours] == sorted(each.order for each in ours)


def test_the_same_file_slices_are_current(table):
    assert slices_of(snapshot_of(table)) == slices_by_reader(table)


def test_the_same_file_slices_are_current_as_of_each_commit(table):
    for instant in read_timeline(table.store, table.config).commits:
        theirs = slices_by_reader(table, HudiReadOptions().with_as_of_timestamp(instant.requested))
        ours = slices_of(snapshot_of(table, as_of=instant.requested))
        assert {each[:3] for each in ours} == {each[:3] for each in theirs}
        # The reader keeps later log files in its list and skips their blocks while it reads.
        logs = {each[:3]: set(each[3]) for each in theirs}
        assert all(set(each[3]) <= logs[each[:3]] for each in ours)


def test_the_same_rows_now_and_as_of_each_commit(table):
    """Of merge-on-read tables too, whose log files are merged."""
    with lakelatch.open(str(table.root)) as opened:
        if table.lance:
            with pytest.raises(UnsupportedTableError, match="only Parquet base files can be read"):
                opened.read().to_arrow()
            return
        # A commit has changed the type of this one; the reader shows it as of now.
        odd = table.config.partition_fields if table.config.keygen == "TIMESTAMP" else ()
        for as_of in (None, *(each.requested for each in opened.timeline().commits)):
            options = HudiReadOptions().with_as_of_timestamp(as_of) if as_of else None
            batches, read = reader(table).read(options), opened.read(as_of=as_of).to_arrow()
            ours = read.drop_columns([name for name in odd if name in read.column_names])
            theirs = pa.Table.from_batches(batches).select(ours.column_names) if batches else ours.slice(0, 0)
            assert in_order(ours) == in_order(theirs), as_of


def test_a_snapshot_that_follows_the_commits_one_by_one_is_the_one_built_at_the_end(table):
    timeline = read_timeline(table.store, table.config)
    if table.config.layout == 1 and table.config.merge_on_read:
        pytest.skip("in version 6 the name of a log file does not say which commit wrote it")
    followed = Snapshot()
    for instant in timeline.commits:
        followed = followed.after(timeline.metadata(instant), instant.requested, instant.completed or instant.requested)
    assert slices_of(followed) == slices_of(snapshot_of(table))
    if not table.config.merge_on_read:
        assert followed == snapshot_of(table)


def test_statistics_name_files_that_exist_with_their_sizes(table):
    timeline = read_timeline(table.store, table.config)
    for instant in timeline.commits:
        for stat in timeline.metadata(instant).stats:
            entry = table.store.head(stat.path)
            assert entry is not None
            # A log file of version 6 grows with later commits.
            assert entry.size == stat.file_size or table.config.layout == 1


def test_every_partition_is_marked_and_read_back_as_its_values(table):
    listing = list_data_files(table.store)
    assert listing.unmarked == ()
    assert {entry.name for entry in listing.others} <= {".DS_Store"}
    for partition in listing.partitions:
        values = parse_partition_path(partition, table.config)
        assert list(values) == list(table.config.partition_fields)
        if table.config.keygen in ("SIMPLE", "COMPLEX", "NON_PARTITION"):
            assert partition_path(list(values.values()), table.config) == partition


def test_listing_some_partitions_gives_the_files_of_these(table):
    whole = list_data_files(table.store)
    for partition in whole.partitions:
        part = list_data_files(table.store, [partition])
        assert part.bases == tuple(base for base in whole.bases if base.partition == partition)
        assert part.logs == tuple(log for log in whole.logs if log.partition == partition)


def _containers(table):
    """Completed and requested Avro instants: (instant, raw record, writer schema, bytes of the record)."""
    if table.config.layout == 1:
        return  # JSON
    timeline = read_timeline(table.store, table.config)
    for instant in timeline.commits:
        body = table.store.get(timeline.path(instant)).body
        (block,) = list(fastavro.block_reader(io.BytesIO(body)))
        yield instant, decode_container(body, name=""), block.writer_schema, block.bytes_.getvalue()


def _plain(schema):
    """A schema without what only Java looks at, names spelled one way."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        kept = {key: _plain(value) for key, value in schema.items() if key not in ("avro.java.string", "namespace")}
        kept = {key: value for key, value in kept.items() if not key.startswith("__")}
        if kept.get("type") in ("array", "map"):
            kept.pop("default", None)  # means nothing there, but some are written
        if kept.get("type") == "record":
            kept["name"] = kept["name"].rpartition(".")[2]
        return kept["type"] if set(kept) == {"type"} else kept
    return schema


def test_our_schemas_are_those_of_real_commits(table):
    for instant, _, writer_schema, _ in _containers(table):
        replace = instant.action == "replacecommit"
        name = "HoodieReplaceCommitMetadata" if replace else "HoodieCommitMetadata"
        assert _plain(schema_of(name)) == _plain(writer_schema)


def test_real_commits_are_encoded_again_byte_for_byte(table):
    for instant, record, _, raw in _containers(table):
        replace = instant.action == "replacecommit"
        schema = schema_of("HoodieReplaceCommitMetadata" if replace else "HoodieCommitMetadata")
        (block,) = list(fastavro.block_reader(io.BytesIO(encode_container(schema, record))))
        assert block.bytes_.getvalue() == raw


def test_commit_metadata_survives_the_way_through_our_own_forms(table):
    timeline = read_timeline(table.store, table.config)
    for instant in timeline.commits:
        metadata = timeline.metadata(instant)
        assert metadata.schema
        assert CommitMetadata.from_json(metadata.to_json()) == metadata
        again = decode_commit(encode_commit(metadata, replace=True), name=instant.requested, layout=2)
        assert set(again.stats) == set(metadata.stats)
        assert (again.operation, again.schema, again.extra) == (metadata.operation, metadata.schema, metadata.extra)


def test_schemas_are_written_as_the_jvm_writes_them(table):
    timeline = read_timeline(table.store, table.config)
    for instant in timeline.commits:
        text = timeline.metadata(instant).schema
        schema = from_avro(text)
        assert schema.names == reader(table).get_schema().names
        assert from_avro(to_avro(schema, table.config.name)) == schema
        # A fresh table's name is in its records' names; version 6 samples were renamed after they were written.
        if f'"hoodie.{table.config.name}"' in text and table.config.version > 6:
            assert to_avro(schema, table.config.name) == text


def test_properties_survive_a_rewrite(table):
    if table.config.version == 6 or table.config.keygen == "TIMESTAMP":
        with pytest.raises(UnsupportedTableError):
            table.config.to_bytes()
        return
    before, after = table.config.raw, TableConfig.from_bytes(table.config.to_bytes()).raw
    changed = {key for key, value in before.items() if after.get(key) != value}
    assert changed <= {"hoodie.table.metadata.partitions"}  # empty, which says the same as its absence
    assert TableConfig.from_bytes(table.config.to_bytes()) == table.config


def test_what_cannot_be_written_is_refused_with_a_way_out(table):
    config = table.config
    writable = (
        config.version > 6
        and not config.metadata_partitions
        and config.populate_meta_fields
        and config.keygen != "TIMESTAMP"
    )
    if writable:
        config.refuse_writing()
        return
    with pytest.raises(UnsupportedTableError) as refused:
        config.refuse_writing()
    if config.version > 6 and config.metadata_partitions:
        assert "hoodie.metadata.enable=false" in str(refused.value)


def test_the_plan_of_every_action_completes_as_a_known_action(table):
    timeline = read_timeline(table.store, table.config)
    assert timeline.pending == ()
    assert {each.action for each in timeline.commits} <= COMMIT_ACTIONS
