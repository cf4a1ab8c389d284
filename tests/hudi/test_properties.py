"""`hoodie.properties` as Java reads it, and what a damaged or foreign one is answered with."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTableError, UnsupportedTableError
from lakelatch.hudi.merge.rows import ordering_of
from lakelatch.hudi.table.config import TableConfig, checksum
from lakelatch.hudi.table.java_properties import parse, render

CONFIG = TableConfig(
    name="flights",
    table_type="COPY_ON_WRITE",
    version=8,
    layout=2,
    database="default",
    record_key_fields=("id",),
    partition_fields=("origin", "month"),
    keygen="COMPLEX",
    ordering_fields=("ts",),
    merge_mode="EVENT_TIME_ORDERING",
    hive_style=True,
    create_schema='{"type":"record","name":"é"}',
    timeline_timezone="UTC",
)
MINIMAL = (
    b"hoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=8\nhoodie.timeline.layout.version=2\n"
)


@given(st.dictionaries(st.text(), st.text()))
def test_any_keys_and_values_are_read_as_they_are_written(properties):
    assert parse(render(properties)) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1 \n", {"a": "1 "}),
        ("  a\\ b = x\n", {"a b": "x"}),
        ("# c\n! d\n\na=b=c:d\n", {"a": "b=c:d"}),
        ("a=one \\\n   two\n", {"a": "one two"}),
        ("a=x\\\\\nb=y\n", {"a": "x\\", "b": "y"}),
        ("a=\\u00e9\\t\\q\n", {"a": "é\tq"}),
        ("a=\\uD83D\\uDE00\n", {"a": "😀"}),
        ("a\nb=\n", {"a": "", "b": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=x\\\n#y\n", {"a": "x#y"}),
        ("a\xa0b\x0b=1\n", {"a\xa0b\x0b": "1"}),
    ],
)
def test_java_text(text, properties):
    assert parse(text.encode("latin-1")) == properties


def test_broken_unicode_escapes_are_errors_as_in_java():
    with pytest.raises(ValueError, match="unicode escape"):
        parse(b"a=\\u12\n")


@pytest.mark.parametrize("version", [8, 9])
def test_a_table_of_ours_is_read_as_it_was_written(version):
    body = dataclasses.replace(CONFIG, version=version, initial_version=version).to_bytes()
    config = TableConfig.from_bytes(body)
    assert config.ordered_by == ("ts",)
    assert config.partition_fields == ("origin", "month")
    assert config.create_schema == CONFIG.create_schema
    assert config.timeline_folder == ".hoodie/timeline"
    assert config.to_bytes() == body
    config.refuse_writing()
    assert ("hoodie.table.precombine.field" in config.raw) == (version == 8)
    assert ("hoodie.table.ordering.fields" in config.raw) == (version == 9)
    assert ("hoodie.record.merge.strategy.id" in config.raw) == (version == 8)
    assert body.splitlines()[-1] == b"hoodie.table.checksum=%d" % checksum("default", "flights")


def test_unknown_keys_are_kept():
    config = TableConfig.from_bytes(CONFIG.to_bytes() + b"hoodie.some.new.key=x y\n")
    assert b"hoodie.some.new.key=x y\n" in config.to_bytes()


def test_a_checksum_of_a_real_table():
    assert checksum("default", "v9_txns_cow_simple_nometa") == 2616127535


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (CONFIG.to_bytes()[:-4], "ends in the middle of a line"),
        (b"".join(MINIMAL.splitlines(keepends=True)[1:]), "lacks hoodie.table.name"),
        (b"hoodie.table.name=t\n", "lacks hoodie.table.type, hoodie.table.version, hoodie.timeline.layout.version"),
        (MINIMAL + b"hoodie.table.checksum=1\n", "has checksum 1"),
        (MINIMAL.replace(b"version=8", b"version=eight"), "says hoodie.table.version=eight"),
        (MINIMAL + b"a=\\u1\n", "cannot be parsed"),
        *(
            (MINIMAL + b"hoodie.timeline.path=" + path + b"\n", "which is no folder below .hoodie")
            for path in (b"", b"/", b"..", b"../x", b"a//b")
        ),
    ],
)
def test_a_damaged_file_says_what_is_wrong(body, message):
    with pytest.raises(CorruptTableError, match=message) as damaged:
        TableConfig.from_bytes(body, table="file:///lake/t")
    assert "file:///lake/t" in str(damaged.value)


def test_a_missing_checksum_is_accepted():
    assert TableConfig.from_bytes(MINIMAL).name == "t"


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"version": 6, "layout": 1}, "version"),
        ({"metadata_partitions": ("files",)}, "metadata_table"),
        ({"populate_meta_fields": False}, "no_meta_fields"),
        ({"record_key_fields": ()}, "no_record_key"),
        ({"keygen": "TIMESTAMP"}, "keygen"),
        ({"merge_mode": "CUSTOM"}, "merge_mode"),
        ({"cdc": True}, "cdc"),
        ({"base_file_format": "ORC"}, "base_file_format"),
        ({"drop_partition_columns": True}, "drop_partition_columns"),
        ({"bootstrap_path": "s3://old"}, "bootstrap"),
        ({"version": 10}, "version"),
        ({"version": 5}, "version"),
        ({"layout": 1}, "layout"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(change, feature):
    config = dataclasses.replace(CONFIG, **change)
    with pytest.raises(UnsupportedTableError) as refused:
        config.refuse_writing()
    assert refused.value.feature == feature
    assert "flights" in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 6, "layout": 1},
        {"metadata_partitions": ("files",)},
        {"populate_meta_fields": False},
        {"keygen": "TIMESTAMP"},
    ],
)
def test_what_cannot_be_written_may_still_be_read(change):
    dataclasses.replace(CONFIG, **change).refuse_reading()


def test_an_empty_list_of_metadata_partitions_is_no_metadata_table():
    config = TableConfig.from_bytes(CONFIG.to_bytes() + b"hoodie.table.metadata.partitions=\n")
    assert config.metadata_partitions == ()
    config.refuse_writing()


@pytest.mark.parametrize(
    ("change", "raw", "said"),
    [
        ({"populate_meta_fields": False}, {}, "no meta columns"),
        ({"merge_mode": "CUSTOM"}, {}, "merge mode is CUSTOM"),
        ({"merge_mode": None}, {"hoodie.compaction.payload.class": "a.PartialUpdateAvroPayload"}, "payload class"),
        ({"merge_mode": None}, {"hoodie.record.merge.strategy.id": "0-0"}, "merge strategy is 0-0"),
        ({"merge_mode": None}, {"hoodie.compaction.record.merger.strategy": "0-0"}, "merge strategy is 0-0"),
        ({}, {"hoodie.compaction.payload.type": "AWS_DMS_AVRO"}, "payload class is AWS_DMS_AVRO"),
        ({}, {"hoodie.datasource.write.payload.class": "a.B"}, "payload class is a.B"),
        ({"partial_update_mode": "IGNORE_DEFAULTS"}, {}, "partial updates"),
        ({}, {"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}, "marks its deletes"),
    ],
)
def test_rules_of_merging_that_are_not_known_are_refused(change, raw, said):
    with pytest.raises(UnsupportedTableError, match=said):
        ordering_of(dataclasses.replace(CONFIG, raw=raw, **change))


@pytest.mark.parametrize(
    ("mode", "payload", "ordering"),
    [
        ("EVENT_TIME_ORDERING", "", True),
        ("COMMIT_TIME_ORDERING", "", False),
        (None, "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload", False),
        (None, "org.apache.hudi.common.model.DefaultHoodieRecordPayload", True),
        (None, "", True),
    ],
)
def test_what_orders_versions_of_a_row(mode, payload, ordering):
    raw = {"hoodie.compaction.payload.class": payload}
    for names in ({"precombine_fields": ("ts",)}, {"ordering_fields": ("day", "ts")}):
        config = dataclasses.replace(CONFIG, ordering_fields=(), merge_mode=mode, raw=raw)
        config = dataclasses.replace(config, **names)
        assert ordering_of(config) == (config.ordered_by if ordering else ())


def test_the_strategy_orders_versions_where_nothing_else_does():
    for strategy, ordering in (
        ("ce9acb64-bde0-424c-9b91-f6ebba25356d", ()),
        ("eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", ("ts",)),
    ):
        raw = {"hoodie.record.merge.strategy.id": strategy}
        config = dataclasses.replace(CONFIG, ordering_fields=("ts",), merge_mode=None, raw=raw)
        assert ordering_of(config) == ordering


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("key", ["hoodie.table.ordering.fields", "hoodie.table.precombine.field"])
def test_several_ordering_fields_in_the_order_in_which_they_are_named(version, key):
    """JVM Hudi 1.2.0 takes either name in either version."""
    body = dataclasses.replace(CONFIG, ordering_fields=("ts",), version=version, initial_version=version).to_bytes()
    text = re.sub(r"hoodie\.table\.(ordering\.fields|precombine\.field)=ts", f"{key}=b, a", body.decode())
    config = TableConfig.from_bytes(text.encode())
    assert config.ordered_by == config.newer_by == ("b", "a")
    assert config.to_json()["ordering_field"] == ["b", "a"]
    config.refuse_writing()
    assert TableConfig.from_bytes(config.to_bytes()).ordered_by == ("b", "a")
