"""Tables of every kind that this library writes; each function tells one story in an empty folder."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..thorough import THOROUGH, some
from .story import Landed, Row, Step, Story

CASES: dict[str, Callable[[Path], Story]] = {}

PLAIN = pa.schema([("id", pa.string()), ("place", pa.string()), ("seen", pa.int64()), ("amount", pa.float64())])


def case(
    *versions: int, about_commits: bool = True
) -> Callable[[Callable[[Path, int], Story]], Callable[[Path, int], Story]]:
    """Add a kind of table in these versions; `make test` takes one of them: the first where commits are what it is about,
    since of others, and of two in three of these, the JVM is asked for the rows alone, and the last where it is how the rows lie.
    """
    if not THOROUGH:
        versions = versions[:1] if about_commits else versions[-1:]

    def add(tell: Callable[[Path, int], Story]) -> Callable[[Path, int], Story]:
        number = len(CASES)

        def told(folder: Path, version: int) -> Story:
            story = tell(folder, version)
            story.about_commits = about_commits and (THOROUGH or number % 3 == 0)
            return story

        for version in versions:
            CASES[f"{tell.__name__}-v{version}"] = functools.partial(told, version=version)
        return tell

    return add


def rows(place: str | None, ids: range, *, seen: int = 1, **more: Any) -> list[Row]:
    return [{"id": f"{place}-{n}", "place": place, "seen": seen, "amount": n + seen / 100, **more} for n in ids]


@case(8, 9)
def just_created(folder: Path, version: int) -> Story:
    return Story(folder, PLAIN, partition_by=("place",), table_version=version)


@case(8, 9)
def unpartitioned(folder: Path, version: int) -> Story:
    story = Story(folder, PLAIN, table_version=version)
    story.insert(rows("JFK", range(6)))
    story.insert(rows("LGA", range(4)))
    story.upsert(rows("JFK", range(4, 8), seen=2) + rows("LGA", range(1), seen=2))
    story.delete(rows("JFK", range(2)))
    return story


@case(8, 9)
def one_partition_hive(folder: Path, version: int) -> Story:
    """With an ordering field: the third change brings older events, which change nothing."""
    story = Story(folder, PLAIN, partition_by=("place",), ordering="seen", table_version=version)
    story.insert(rows("JFK", range(5), seen=5) + rows("LGA", range(5), seen=5))
    story.upsert(rows("JFK", range(3), seen=7) + rows("EWR", range(2), seen=7))
    story.upsert(rows("JFK", range(4), seen=6))
    story.delete(rows("LGA", range(1, 3)))
    return story


@case(8, 9)
def declared_not_null(folder: Path, version: int) -> Story:
    """The table's schema says it, and none of its files."""
    schema = pa.schema([each.with_nullable(each.name == "place") for each in PLAIN])
    story = Story(folder, schema, partition_by=("place",), ordering="seen", table_version=version)
    story.insert(rows("JFK", range(5), seen=5) + rows("LGA", range(5), seen=5))
    story.upsert(rows("JFK", range(3), seen=7) + rows("EWR", range(2), seen=7))
    story.delete(rows("LGA", range(1, 3)))
    return story


@case(8, 9, about_commits=False)
def one_partition_plain(folder: Path, version: int) -> Story:
    story = Story(folder, PLAIN, partition_by=("place",), hive_style=False, table_version=version)
    story.insert(rows("JFK", range(5)) + rows("LGA", range(5)))
    story.upsert(rows("JFK", range(3, 7), seen=2))
    return story


@case(8, about_commits=False)
def partitioned_by_date_number_and_flag(folder: Path, version: int) -> Story:
    return _by_date_number_and_flag(folder, version, hive_style=True)


@case(8, about_commits=False)
def partitioned_by_date_number_and_flag_plain(folder: Path, version: int) -> Story:
    return _by_date_number_and_flag(folder, version, hive_style=False)


def _by_date_number_and_flag(folder: Path, version: int, *, hive_style: bool) -> Story:
    """Partition values that are no text, each of them null in some rows."""
    partitions = [("day", pa.date32()), ("hour", pa.int32()), ("late", pa.bool_())]
    schema = pa.schema([("id", pa.int64()), *partitions, ("note", pa.string())])
    days, hours, flags = [dt.date(2013, 1, 1), dt.date(1969, 12, 31), None], [0, -7, None], [True, False, None]
    names = [name for name, _ in partitions]
    story = Story(folder, schema, partition_by=names, hive_style=hive_style, table_version=version)

    def some(ids: range, note: str) -> list[Row]:
        return [
            {"id": n, "day": days[n % 3], "hour": hours[n // 3 % 3], "late": flags[n // 9 % 3], "note": note}
            for n in ids
        ]

    story.insert(some(range(27), "first"))
    story.upsert(some(range(25, 30), "second"))
    return story


@case(8, 9, about_commits=False)
def partitioned_by_days_of_a_time(folder: Path, version: int) -> Story:
    """The day's text is a column, which is computed; null times have a partition of their own."""
    columns = [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string()), ("at_day", pa.string())]
    story = Story(folder, pa.schema(columns), partition_by=("days(at)",), table_version=version)
    days = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), None, dt.datetime(2024, 2, 29, tzinfo=dt.UTC)]

    def some(ids: range, note: str) -> list[Row]:
        times = [days[n % 3] for n in ids]
        return [
            {"id": n, "at": at, "note": note, "at_day": None if at is None else f"{at:%Y-%m-%d}"}
            for n, at in zip(ids, times, strict=True)
        ]

    story.insert(some(range(7), "first"))
    story.upsert(some(range(5, 9), "second"))
    return story


def _two_fields(folder: Path, version: int, *, hive_style: bool) -> Story:
    """A key of two fields; the partition ("JFK", 2) is overwritten, and one that was never there."""
    schema = pa.schema(
        [("carrier", pa.string()), ("flight", pa.int32()), ("origin", pa.string()), ("month", pa.int32())]
    )
    schema = schema.append(pa.field("delay", pa.float64()))

    def some(origin: str, month: int, flights: range, delay: float) -> list[Row]:
        common = {"origin": origin, "month": month, "delay": delay}
        return [{"carrier": c, "flight": n, **common} for n in flights for c in ("AA", "UA")]

    story = Story(
        folder,
        schema,
        record_key=("carrier", "flight"),
        partition_by=("origin", "month"),
        hive_style=hive_style,
        table_version=version,
    )
    story.insert([r for o in ("JFK", "LGA") for m in (1, 2) for r in some(o, m, range(4), 1.5)])
    story.upsert(some("JFK", 1, range(3, 6), 2.5))
    story.overwrite(("JFK", 2), some("JFK", 2, range(100, 102), 3.5))
    story.overwrite(("EWR", 12), some("EWR", 12, range(3), 4.5))
    story.upsert(some("JFK", 2, range(101, 104), 5.5))
    return story


@case(8, 9)
def two_partitions_composite_key(folder: Path, version: int) -> Story:
    return _two_fields(folder, version, hive_style=True)


@case(8, about_commits=False)
def two_partitions_composite_key_plain(folder: Path, version: int) -> Story:
    return _two_fields(folder, version, hive_style=False)


@case(8, 9)
def overwritten(folder: Path, version: int) -> Story:
    """A partition and then the whole table are overwritten, and a partition is dropped."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)))
    story.overwrite(("JFK",), rows("JFK", range(2, 6), seen=2))
    story.overwrite(None, rows("EWR", range(3), seen=3) + rows("LGA", range(2), seen=3))
    story.begin("delete_partition").empty(("LGA",)).commit()
    story.upsert(rows("EWR", range(1, 2), seen=4))
    return story


@case(8, 9)
def widened(folder: Path, version: int) -> Story:
    """Columns are added; groups of before are read with nulls, rewritten or left alone."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)) + rows("EWR", range(2)))
    story.widen(pa.field("note", pa.string()))
    story.upsert(rows("JFK", range(2), seen=2, note="late"))
    story.widen(pa.field("weight", pa.decimal128(10, 2)))
    story.upsert(rows("EWR", range(1), seen=3) + rows("JFK", range(1, 3), seen=3, weight=Decimal("1.50")))
    story.delete(rows("LGA", range(1)))
    return story


@case(8, 9)
def altered(folder: Path, version: int) -> Story:
    """Columns are added and widened by commits without rows; groups of before are read as they are, or rewritten."""
    stop = pa.struct([("at", pa.int32())])
    inside = [("stops", pa.list_(pa.field("element", stop))), ("last", stop), ("price", pa.int32())]
    story = Story(
        folder, pa.schema([*PLAIN, ("count", pa.int32()), *inside]), partition_by=("place",), table_version=version
    )
    before = {"stops": [{"at": 5}, None], "last": {"at": None}, "price": -5}
    story.insert(rows("JFK", range(4), count=7, **before) + rows("LGA", range(2), count=-(2**31)))
    story.alter("note", pa.string())
    story.alter("count", pa.int64())
    story.alter("stops.element.by", stop)
    story.alter("stops.element.by.train", pa.string())
    story.alter("last.by", pa.string())
    story.alter("price", pa.float64())
    wide = {"at": 2**30, "by": {"at": None, "train": "ü"}}
    after = {"stops": [wide], "last": {"at": 1, "by": "x"}, "price": 0.5}
    story.upsert(rows("JFK", range(1), seen=2, count=2**40, note="late", **after))
    story.insert(rows("EWR", range(2), count=-(2**40), **after))
    return story


@case(8, 9)
def dropped(folder: Path, version: int) -> Story:
    """Columns, and fields inside them, are dropped: groups of before still have them, others were written since."""
    stop = pa.struct([("at", pa.int32()), ("by", pa.string())])
    inside = [("stops", pa.list_(pa.field("element", stop))), ("last", stop), ("marks", pa.map_(pa.string(), stop))]
    story = Story(
        folder, pa.schema([*PLAIN, ("count", pa.int32()), *inside]), partition_by=("place",), table_version=version
    )
    before = {
        "stops": [{"at": 5, "by": "x"}, None],
        "last": {"at": 1, "by": None},
        "marks": [("k", {"at": 1, "by": "y"})],
    }
    story.insert(rows("JFK", range(4), count=7, **before) + rows("LGA", range(2), count=8, **before))
    for name in ("count", "stops.element.by", "last.at", "marks.value.by", "amount"):
        story.drop(name)
    after = [
        {"id": row["id"], "place": row["place"], "seen": 2} for row in rows("JFK", range(1)) + rows("EWR", range(2))
    ]
    story.upsert(after)
    return story


@case(8, 9)
def dropped_merge_on_read(folder: Path, version: int) -> Story:
    """A column is dropped between log files of one group."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version, ordering="seen", type="merge_on_read")
    story.insert(rows("JFK", range(6), seen=2) + rows("LGA", range(2)))
    story.upsert(rows("JFK", range(2), seen=3))
    story.drop("amount")
    for seen in (4, 5):
        story.upsert([{"id": row["id"], "place": "JFK", "seen": seen} for row in rows("JFK", range(seen - 3, 5))])
    story.delete(rows("JFK", range(5, 6)))
    return story


@case(8, 9)
def completed_out_of_order(folder: Path, version: int) -> Story:
    """T1 < T2 but C1 > C2, on disjoint groups: a reader that checkpoints on C must see T1 after T2."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)))
    early = story.begin().put(rows("JFK", range(2), seen=2))
    late = story.begin().put(rows("LGA", range(2), seen=3))
    second, third = late.commit(), early.commit()
    assert third.instant < second.instant
    assert third.completion > second.completion
    story.upsert(rows("LGA", range(1, 3), seen=4))
    return story


@case(8, 9)
def widened_under_a_smaller_t(folder: Path, version: int) -> Story:
    """Columns come with transactions that land after one with a larger T, whose schema readers would go by."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)) + rows("EWR", range(2)))
    for column, operation in (("note", "upsert"), ("remark", "delete_partition")):
        early, late = story.begin(), story.begin(operation)
        if operation == "upsert":
            late.put(rows("LGA", range(2), seen=2)).commit()
        else:
            late.empty(("EWR",)).commit()
        story.widen(pa.field(column, pa.string()))
        early.put(rows("JFK", range(2), seen=3, **{column: "new"})).commit()
    story.upsert(rows("LGA", range(1), seen=4))
    story.widen(pa.field("last", pa.int64()))
    early, late = story.begin(), story.begin().put(rows("LGA", range(3, 4), seen=5))
    early.put(rows("JFK", range(1), seen=6, last=1))
    late.commit()
    early.commit()
    # Back at the T of one that had overtaken, Hudi's readers show its columns, and the rows of both.
    story.as_of_works = False
    return story


@case(8, 9)
def failed_in_between(folder: Path, version: int) -> Story:
    """One transaction gives up and one is rolled back between those that land; both had written files."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)))
    story.begin().put(rows("JFK", range(4), seen=666)).abort()
    story.upsert(rows("JFK", range(2), seen=2))
    dead = story.begin().put(rows("LGA", range(4), seen=666) + rows("EWR", range(4), seen=666))
    story.roll_back(dead)
    story.upsert(rows("LGA", range(2), seen=3))
    return story


@case(8, 9)
def pending_beside(folder: Path, version: int) -> Story:
    """A transaction is open while the readers read; its files are there and must not be seen."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(4)) + rows("LGA", range(4)))
    story.begin().put(rows("JFK", range(4), seen=666) + rows("EWR", range(4), seen=666))
    story.upsert(rows("LGA", range(2), seen=3))
    story.as_of_works = False
    return story


@case(8, 9, about_commits=False)
def bucket_count(folder: Path, version: int) -> Story:
    story = Story(folder, PLAIN, partition_by=("place",), ordering="seen", bucket_count=4, table_version=version)
    story.insert(rows("JFK", range(12)) + rows("Zürich", range(5)))
    story.upsert(rows("JFK", range(8, 16), seen=2))
    story.delete(rows("JFK", range(3)))
    return story


STRANGE_PLACES = ["a b", "x=y", "a/b", "50%", "q?&#+;:'\"", "Zürich", "東京", "a%2Fb", "{x}[y]^~", "-", None]


@case(8, 9, about_commits=False)
def strange_partitions_hive(folder: Path, version: int) -> Story:
    return _strange(folder, version, hive_style=True)


@case(8, about_commits=False)
def strange_partitions_plain(folder: Path, version: int) -> Story:
    return _strange(folder, version, hive_style=False)


def _strange(folder: Path, version: int, *, hive_style: bool) -> Story:
    story = Story(folder, PLAIN, partition_by=("place",), hive_style=hive_style, table_version=version)
    story.insert([r for place in STRANGE_PLACES for r in rows(place, range(2))])
    story.upsert([r for place in STRANGE_PLACES for r in rows(place, range(1, 3), seen=2)])
    return story


@case(8, 9, about_commits=False)
def every_type(folder: Path, version: int) -> Story:
    return _every_type(folder, version)


def _every_type(folder: Path, version: int, **options: Any) -> Story:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("flag", pa.bool_()),
            ("small", pa.int32()),
            ("single", pa.float32()),
            ("double", pa.float64()),
            ("text", pa.string()),
            ("octets", pa.binary()),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(12, 3)),
            ("large", pa.decimal128(38, 10)),
            ("point", pa.struct([("x", pa.float64()), ("label", pa.string())])),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )

    def row(n: int, text: str) -> Row:
        return {
            "id": n,
            "flag": n % 2 == 0,
            "small": -n,
            "single": n / 4,
            "double": n / 3,
            "text": text,
            "octets": bytes([n, 255, 0]),
            "day": dt.date(1969, 12, 30) + dt.timedelta(days=n),
            "moment": dt.datetime(2013, 1, 1, 5, 6, 7, 123456, tzinfo=dt.UTC) - dt.timedelta(days=20_000 * (n % 2)),
            "price": Decimal(n) / 8,
            "large": Decimal("1234567890123456789012345678.0000000001") * (-1) ** n,
            "point": {"x": n / 2, "label": None if n % 2 else "b"},
            "tags": [text, None] if n % 3 else [],
            "counts": [("a", n), ("b", None)],
        }

    story = Story(folder, schema, table_version=version, **options)
    story.insert([row(n, "naïve 🙂") for n in range(6)] + [{"id": 99}])
    story.upsert([row(n, "") for n in range(4, 8)])
    return story


@case(8, 9)
def emptied_group(folder: Path, version: int) -> Story:
    """All rows of a file group are deleted: its newest base file has no rows."""
    story = Story(folder, PLAIN, partition_by=("place",), table_version=version)
    story.insert(rows("JFK", range(3)) + rows("LGA", range(3)))
    story.delete(rows("JFK", range(3)))
    story.insert(rows("JFK", range(1, 2), seen=2))
    return story


def _merge_on_read(folder: Path, version: int, *, schema: pa.Schema = PLAIN, **options: Any) -> Story:
    """Log files onto base files: of updates, older events, deletes, rows that come back, and of one that is rolled back."""
    story = Story(folder, schema, partition_by=("place",), table_version=version, type="merge_on_read", **options)
    story.insert(rows("JFK", range(12), seen=5) + rows("Zürich", range(5), seen=5))
    story.upsert(rows("JFK", range(8, 16), seen=7) + rows("a/b", range(2), seen=7))
    story.upsert(rows("JFK", range(4), seen=6) + rows("Zürich", range(2), seen=6))
    story.delete(rows("JFK", range(2, 4)) + rows("Zürich", range(4)))
    story.begin().put(rows("JFK", range(16), seen=666)).abort()
    story.roll_back(story.begin().put(rows("JFK", range(16), seen=666) + rows("EWR", range(4), seen=666)))
    story.upsert(rows("JFK", range(3, 5), seen=3 if options.get("ordering") is None else 9))
    both = story.begin().delete(rows("JFK", range(5, 6)))
    both.put(rows("JFK", range(6, 8), seen=9)).commit()
    return story


@case(8, 9)
def declared_not_null_merge_on_read(folder: Path, version: int) -> Story:
    schema = pa.schema([each.with_nullable(each.name == "place") for each in PLAIN])
    return _merge_on_read(folder, version, ordering="seen", schema=schema)


@case(8, 9)
def merge_on_read(folder: Path, version: int) -> Story:
    return _merge_on_read(folder, version, ordering="seen")


@case(8, 9, about_commits=False)
def merge_on_read_by_commit_time(folder: Path, version: int) -> Story:
    return _merge_on_read(folder, version)


@case(8, about_commits=False)
def merge_on_read_buckets(folder: Path, version: int) -> Story:
    """The last upsert's log files have rolled: several of one commit on each file group."""
    story = _merge_on_read(folder, version, ordering="seen", bucket_count=4)
    story.table.change_settings(target_file_bytes=1024)
    story.upsert(rows("JFK", range(2, 150), seen=12))
    rolled = [each for each in story.table.snapshot().file_slices() if any(log.version == 2 for log in each.logs)]
    assert len(rolled) == 2, "they have not"
    return story


@case(8)
def merge_on_read_compacted(folder: Path, version: int) -> Story:
    """By us, with a log file after it; the rows come back that log files had deleted."""
    story = _merge_on_read(folder, version, ordering="seen")
    assert story.table.compact()
    story.upsert(rows("JFK", range(2, 6), seen=11))
    return story


@case(8, about_commits=False)
def merge_on_read_of_every_type(folder: Path, version: int) -> Story:
    return _every_type(folder, version, type="merge_on_read")


def _rebased(story: Story) -> Story:
    """Two that change other rows of the same file groups at once: the one that lands later is merged with the first.

    Its T is the smaller one in JFK, where its rows move to a new file group and the old one is replaced, and the larger
    one in LGA, where the file group has its next file.
    """
    story.insert(rows("JFK", range(6)) + rows("LGA", range(6)))
    early = story.begin().put(rows("JFK", range(2), seen=2))
    winner = story.begin().put(rows("JFK", range(4, 6), seen=3) + rows("LGA", range(1), seen=3))
    late = story.begin("delete").delete(rows("LGA", range(4, 6)))
    winner.commit()
    late.commit()
    early.commit(carries=story.landed[-2])
    last = story.begin().put(rows("JFK", range(1), seen=4))
    story.upsert(rows("JFK", range(5, 7), seen=5))
    last.commit(carries=story.landed[-1])
    return story


@case(8, 9)
def rebased(folder: Path, version: int) -> Story:
    return _rebased(Story(folder, PLAIN, partition_by=("place",), table_version=version))


@case(8, 9, about_commits=False)
def rebased_buckets(folder: Path, version: int) -> Story:
    return _rebased(Story(folder, PLAIN, partition_by=("place",), bucket_count=2, table_version=version))


BY_SPARK: dict[str, int | None] = (
    {"simple": None, "bucket": 4} if THOROUGH else {}
)  # a session of Spark beside the JVM's


def for_our_spark(folder: Path, index: str) -> tuple[Story, list[tuple[str, list[Row]]]]:
    """A table for lakelatch.spark, and what it shall write (spark_writer.py)."""
    story = Story(folder, PLAIN, partition_by=("place",), ordering="seen", bucket_count=BY_SPARK[index])
    story.about_commits = index == "simple"
    writes = [
        ("insert", rows("JFK", range(12), seen=2) + rows("Zürich", range(5), seen=2)),
        ("upsert", rows("JFK", range(8, 16), seen=3) + rows("JFK", range(2), seen=1) + rows("a/b", range(2), seen=3)),
        ("delete", rows("JFK", range(4, 6), seen=3)),
        ("overwrite", rows("Zürich", range(4, 9), seen=4)),
        ("upsert", rows("Zürich", range(3, 5), seen=5)),
    ]
    return story, writes


def written_by_spark(story: Story, writes: list[tuple[str, list[Row]]], times: list[tuple[str, str]]) -> None:
    """Note in the story what landed at which T and C."""
    for (method, batch), (instant, completion) in zip(writes, times, strict=True):
        steps = [Step("delete" if method == "delete" else "put", batch)]
        if method == "overwrite":
            steps = [*(Step("empty", partition=place) for place in {story.partition_of(r) for r in batch}), *steps]
        story.landed.append(Landed(instant, completion, steps))


WRITE_OPTIONS = {
    # A JVM writer beside ours: the table keeps its version and gets no metadata table.
    "hoodie.write.table.version": "8",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "place",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
}
_BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
_WRITES = {
    "simple": {"hoodie.index.type": "SIMPLE"},
    "bucket": _BUCKETS,
    "simple-rebased": {"hoodie.index.type": "SIMPLE"},
    "bucket-rebased": _BUCKETS,
}
WRITES = dict(some(_WRITES.items(), 2))
WRITTEN_BY_JVM = rows("JFK", range(6, 14), seen=9) + rows("Zürich", range(2), seen=9) + rows("EWR", range(2), seen=9)


def for_jvm_writer(folder: Path, index: str) -> Story:
    """A quiet table of ours, which the JVM will upsert `WRITTEN_BY_JVM` into."""
    story = Story(folder, PLAIN, partition_by=("place",), bucket_count=4 if index.startswith("bucket") else None)
    story.insert(rows("JFK", range(12)) + rows("Zürich", range(5)))
    story.upsert(rows("JFK", range(8, 10), seen=2))
    if index.endswith("rebased"):
        early = story.begin().put(rows("JFK", range(8), seen=3))
        story.upsert(rows("JFK", range(8, 14), seen=4))
        early.commit(carries=story.landed[-1])
    story.as_of_works = False
    return story


@case(8, 9, about_commits=False)
def never_written(folder: Path, version: int) -> Story:
    return Story(folder, PLAIN, partition_by=("place",), table_version=version)
