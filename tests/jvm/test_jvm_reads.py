"""Tables of every kind, read by four parties: the notes of what was written, we, hudi-rs, and Hudi on the JVM."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import lakelatch
from lakelatch.hudi.files.file_names import bucket_of
from lakelatch.hudi.table.partition_path import escape

from .cases import BY_SPARK, CASES, WRITES, WRITTEN_BY_JVM
from .conftest import Library, by_spark, carried, jvm_moments, jvm_spans, moments, spans, written
from .readers import Row, by_hudi_rs, by_us, in_order, plain_rows, rs_as_of, rs_between, rs_read_optimized
from .story import Story

pytestmark = pytest.mark.jvm


@pytest.fixture(params=[*CASES, *map(by_spark, BY_SPARK)])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def story(library: Library, name: str) -> Story:
    return library.stories[name]


def expected(story: Story, **moment: str | None) -> list[str]:
    return in_order(expected_rows(story, **moment))


def expected_rows(story: Story, **moment: str | None) -> list[Row]:
    return plain_rows(_arrow(story, story.rows(**moment)))


def _arrow(story: Story, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=story.schema)


def as_the_jvm_tells(story: Story, rows: list[Row]) -> list[Row]:
    """In incremental reads Hudi 1.2.0 takes partition values from the folder's name and leaves them URL-encoded: "a/b"
    is told as "a%2Fb". It does so with tables that it wrote itself, and in no other kind of read.
    """

    def told(name: str, value: object) -> object:
        return escape(value) if name in story.partition and isinstance(value, str) else value

    return [{name: told(name, value) for name, value in row.items()} for row in rows]


def test_every_reader_sees_the_rows_of_a_serial_replay(library, name, story):
    wanted = expected(story)
    assert in_order(by_us(story.path)) == wanted
    assert in_order(by_hudi_rs(story.path, HudiReadOptions())) == wanted
    if not story.table.config.merge_on_read:
        assert in_order(by_hudi_rs(story.path, rs_read_optimized())) == wanted
    assert in_order(library.jvm(name, "snapshot")) == wanted


def test_every_reader_sees_the_columns_of_the_last_commit(library, name, story):
    wanted = story.schema.names
    with lakelatch.open(str(story.path)) as table:
        assert table.schema() == story.schema
        rows = table.read().to_arrow().schema
    # A scan's columns may be null: only the table's schema says what was declared.
    assert (rows.names, rows.types) == (wanted, story.schema.types)
    assert HudiTableBuilder.from_base_uri(str(story.path)).build().get_schema().names == wanted
    for row in library.jvm(name, "snapshot"):
        assert [column for column in row if not column.startswith("_hoodie_")] == wanted


def test_incremental_reads_by_completion_time_skip_nothing_and_repeat_nothing(library, name, story):
    for begin, end in spans(story):
        wanted = expected(story, begin=begin, end=end)
        assert in_order(by_hudi_rs(story.path, rs_between(begin, end))) == wanted, (begin, end)
    for begin, end in jvm_spans(story):
        told = as_the_jvm_tells(story, expected_rows(story, begin=begin, end=end))
        assert in_order(library.jvm(name, "incremental", begin, end)) == in_order(told), (begin, end)


def test_time_travel_by_requested_time(library, name, story):
    for instant in moments(story):
        wanted = expected(story, as_of=instant)
        assert in_order(by_us(story.path, as_of=instant)) == wanted, instant
        assert in_order(by_hudi_rs(story.path, rs_as_of(instant))) == wanted, instant
    for instant in jvm_moments(story):
        wanted = expected(story, as_of=instant)
        assert in_order(library.jvm(name, "as_of", instant)) == wanted, instant


def test_what_a_rebase_to_a_new_file_group_costs_who_looks_back(library):
    """Both of Hudi's readers take a file group for gone from T of the commit that replaced it, whenever that completed.

    So who replays the span of the winner alone misses its rows there (anyone who read on at that time has seen them, and
    every longer span has them), and time travel to T, smaller than the winner's, shows the winner's rows of that group.
    """
    story = library.stories["rebased-v8"]
    (begin, end, instant), _ = carried(story)
    winner = next(change for change in story.landed if change.completion == end)
    in_group = {row["id"] for row in winner.steps[0].rows if row["place"] == "JFK"}
    missed = in_order(row for row in expected_rows(story, begin=begin, end=end) if row["id"] not in in_group)
    assert in_order(by_hudi_rs(story.path, rs_between(begin, end))) == missed
    assert in_order(library.jvm("rebased-v8", "incremental", begin, end)) == missed
    mixed = {row["id"]: row for row in expected_rows(story, as_of=instant)}
    mixed |= {row["id"]: row for row in plain_rows(_arrow(story, winner.steps[0].rows)) if row["id"] in in_group}
    for told in (
        by_us(story.path, as_of=instant),
        by_hudi_rs(story.path, rs_as_of(instant)),
        library.jvm("rebased-v8", "as_of", instant),
    ):
        assert in_order(told) == in_order(mixed.values())


@pytest.mark.parametrize("index", WRITES)
def test_the_jvm_upserts_into_our_file_groups(library, index):
    """Rows that we wrote are found and replaced, not written a second time; then all read the same."""
    story = library.stories[written(index)]
    state = {row["id"]: row for row in story.rows()} | {row["id"]: row for row in WRITTEN_BY_JVM}
    wanted = in_order(state.values())
    assert in_order(library.jvm(written(index), "upsert")) == wanted
    assert in_order(by_hudi_rs(story.path)) == wanted
    assert in_order(by_us(story.path)) == wanted
    with lakelatch.open(str(story.path)) as table:
        assert len(table.session.log.look(now=True)) == 1, (
            "its commit is not in our log, so we would not write over it unseen"
        )
        groups = table.snapshot().file_slices()
        assert table.config.version == 8
        assert not table.config.metadata_partitions
    if index.startswith("bucket"):
        bucket_count = [(group.partition, bucket_of(group.file_id)) for group in groups]
        assert len(bucket_count) == len(set(bucket_count)), "the JVM opened a second file group for a bucket of ours"
