"""Every write against a dictionary that does the same, read back by hudi-rs and by ourselves."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, InputError
from lakelatch.hudi.timeline import NO_PREVIOUS_COMMIT
from lakelatch.spark import JobSizes
from lakelatch.spark.reading.columns import arrow_schema
from lakelatch.spark.tasks import InsertTask
from lakelatch.spark.versions import IS_4, to_arrow
from lakelatch.spark.writing import incoming, jobs
from lakelatch.spark.writing.incoming import Source, estimated_bytes, narrow_rows, small_rows
from lakelatch.spark.writing.rebase import stats_of

from ..thorough import crossed
from .driver import ROUTES

SCHEMA = "id string, city string, ts long, n long"
CITIES = ("sf", "la", "ny")


def rows_of(spark: Any, model: dict[str, tuple[str, int, int]]) -> Any:
    return spark.createDataFrame([(k, *v) for k, v in model.items()], SCHEMA)


def as_model(rows: list[dict[str, Any]]) -> dict[str, tuple[str, int, int]]:
    assert len({r["id"] for r in rows}) == len(rows), "a key is there twice"
    return {r["id"]: (r["city"], r["ts"], r["n"]) for r in rows}


def by_hudi_rs(table: Any) -> dict[str, tuple[str, int, int]]:
    import hudi

    batches = hudi.HudiTableBuilder.from_base_uri(table.table.url).build().read()
    return as_model(pa.Table.from_batches(batches).to_pylist()) if batches else {}


def assert_holds(table: Any, model: dict[str, tuple[str, int, int]]) -> None:
    assert as_model([r.asDict() for r in table.read().collect()]) == model
    assert by_hudi_rs(table) == model


def generated(count: int, *, first: int = 0, ts: int = 0, seed: int = 0) -> dict[str, tuple[str, int, int]]:
    draw = random.Random(seed)
    return {f"k{i}": (CITIES[i % 3], ts, draw.randrange(1000)) for i in range(first, first + count)}


@pytest.fixture(params=[None, 2], ids=["simple", "bucket"])
def bucket_count(request: pytest.FixtureRequest) -> int | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=ROUTES.values(), ids=ROUTES)
def sizes(request: pytest.FixtureRequest) -> JobSizes:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(("bucket_count", "route"), crossed([2, None], ROUTES))
def test_all_writes_one_after_another(
    make: Callable[..., Any], spark: Any, bucket_count: int | None, route: str
) -> None:
    table = make(bucket_count=bucket_count, ordering_field="ts", sizes=ROUTES[route])
    model = generated(30)
    assert table.insert(rows_of(spark, model)).inserted == 30
    assert_holds(table, model)

    changes = generated(12, first=24, ts=1, seed=1)
    result = table.upsert(rows_of(spark, changes))
    assert (result.inserted, result.updated, result.attempts) == (6, 6, 1)
    model |= changes
    assert_holds(table, model)

    older = {"k25": ("la", 0, -1), "k26": ("ny", 1, -2), "new": ("sf", 0, -3)}  # a tie is taken, an older row is not
    table.upsert(rows_of(spark, older))
    model |= {"k26": older["k26"], "new": older["new"]}
    assert_holds(table, model)

    gone = ["k0", "k1", "k29", "never there"]
    assert table.delete(spark.createDataFrame([(k,) for k in gone], "id string")).deleted == 3
    model = {k: v for k, v in model.items() if k not in gone}
    located = {k: v for k, v in model.items() if k in ("k2", "k3")}
    assert table.delete(rows_of(spark, located)).deleted == 2
    model = {k: v for k, v in model.items() if k not in located}
    assert_holds(table, model)

    assert table.delete_where("city = 'la' and n % 2 = 0").deleted > 0
    model = {k: v for k, v in model.items() if not (v[0] == "la" and v[2] % 2 == 0)}
    assert_holds(table, model)

    fresh = {"o1": ("sf", 0, 1), "o2": ("rome", 0, 2)}
    table.overwrite(rows_of(spark, fresh))
    model = {k: v for k, v in model.items() if v[0] not in ("sf", "rome")} | fresh
    assert_holds(table, model)
    table.upsert(rows_of(spark, {"o1": ("sf", 1, 5), "o3": ("sf", 0, 3)}))
    model |= {"o1": ("sf", 1, 5), "o3": ("sf", 0, 3)}
    assert_holds(table, model)

    table.overwrite(rows_of(spark, fresh).where("city = 'sf'"), partitions=["city=sf", "city=ny"])
    model = {k: v for k, v in model.items() if v[0] not in ("sf", "ny")} | {"o1": fresh["o1"]}
    assert_holds(table, model)

    table.overwrite_table(rows_of(spark, generated(9, ts=5)))
    assert_holds(table, generated(9, ts=5))
    table.bulk_insert(rows_of(spark, generated(9, first=9)))
    assert_holds(table, generated(9, ts=5) | generated(9, first=9, seed=0))


LAYOUTS = [
    ((), True, "id"),
    ("city", False, "id"),
    (("city", "n"), True, "id"),
    ("city", True, ("id", "n")),
    ((), False, ("id", "n")),
]


@pytest.mark.parametrize(("layout", "bucket_count"), crossed(LAYOUTS, [None, 2]))
def test_layouts(make: Callable[..., Any], spark: Any, layout: tuple[Any, bool, Any], bucket_count: int | None) -> None:
    partition_by, hive_style, record_key = layout
    table = make(partition_by=partition_by, hive_style=hive_style, record_key=record_key, bucket_count=bucket_count)
    model = {f"k{i}": (CITIES[i % 3], 0, i % 2) for i in range(12)}
    table.insert(rows_of(spark, model))
    for ts, sizes in enumerate(ROUTES.values(), 1):
        changes = {f"k{i}": (CITIES[i % 3], ts, i % 2) for i in range(6, 14)}
        table = lakelatch.spark.open(spark, table.table, sizes=sizes)
        table.upsert(rows_of(spark, changes))
        model |= changes
    keys = spark.createDataFrame([("k0", 0), ("k13", 1), ("k13", 0)], "id string, n long")
    assert table.delete(keys).deleted == 2
    model = {k: v for k, v in model.items() if k not in ("k0", "k13")}
    assert_holds(table, model)


def test_the_join_index_finds_keys_like_the_others(make: Callable[..., Any], spark: Any) -> None:
    sizes = JobSizes(small_rows=0, lookup_bytes=0)  # as if the table were large
    for number, partition_by in enumerate(((), "city")):
        table = make(f"t{number}", partition_by=partition_by, ordering_field="ts", sizes=sizes)
        model = generated(40)
        for first in (0, 20):
            table.insert(rows_of(spark, {k: v for k, v in model.items() if first <= int(k[1:]) < first + 20}))
        changes = generated(20, first=30, ts=1, seed=3) | {"nowhere": (None, 1, 1), "empty": ("", 1, 1)}  # type: ignore[dict-item]
        result = table.upsert(rows_of(spark, changes))
        assert (result.inserted, result.updated) == (12, 10)
        begun = {each.partition for each in result.stats if each.prev_commit == NO_PREVIOUS_COMMIT}
        assert begun == ({"city=__HIVE_DEFAULT_PARTITION__"} if partition_by else set()), "small files take new keys"
        again = table.upsert(rows_of(spark, changes))
        assert (again.inserted, again.updated) == (0, 22)
        model |= changes
        assert_holds(table, model)
        assert table.delete(spark.createDataFrame([("k1",), ("nowhere",)], "id string")).deleted == 2


@pytest.mark.skipif(not IS_4, reason="Spark 3.5 has no collations")
def test_texts_with_a_collation_are_keys_and_partitions_by_their_bytes(make: Callable[..., Any], spark: Any) -> None:
    """In a column that ignores case, too; Spark would not join such a partition with that of the files."""
    table = make(sizes=JobSizes(small_rows=0, lookup_bytes=0))
    places = [(key, city) for key in ("a", "A") for city in ("sf", "SF")]
    for n in (1, 2):
        rows = spark.createDataFrame([(key, city, n) for key, city in places], "id string, city string, n long")
        rows = rows.selectExpr("id collate UTF8_LCASE id", "city collate UTF8_LCASE city", "n")
        table.upsert(rows)
    found = [(row["id"], row["city"], row["n"]) for row in table.table.read().to_pylist()]
    assert sorted(found) == sorted((*place, 2) for place in places)


def test_rows_with_null_or_empty_partition_are_one_partition(
    make: Callable[..., Any], spark: Any, sizes: JobSizes
) -> None:
    table = make(ordering_field="ts", sizes=sizes)
    table.upsert(rows_of(spark, {"a": (None, 0, 1), "b": ("", 0, 2), "c": ("sf", 0, 3)}))  # type: ignore[dict-item]
    result = table.upsert(rows_of(spark, {"a": ("", 1, 4), "b": (None, 1, 5)}))  # type: ignore[dict-item]
    assert (result.inserted, result.updated) == (0, 2)


def test_columns_are_added_and_old_rows_have_null(make: Callable[..., Any], spark: Any, sizes: JobSizes) -> None:
    table = make(sizes=sizes)
    table.insert(rows_of(spark, generated(6)))
    wide = spark.createDataFrame([("k0", "sf", 1, 1, 2.5), ("x", "sf", 1, 1, None)], SCHEMA + ", more double")
    with pytest.raises(InputError, match="no column 'more'"):
        table.upsert(wide)
    table.upsert(wide, new_columns="add")
    found = {r["id"]: r["more"] for r in table.read().collect()}
    assert found == {**dict.fromkeys(generated(6)), "k0": 2.5, "x": None}
    with pytest.raises(InputError, match="lack more"):
        table.upsert(rows_of(spark, generated(1)))
    with pytest.raises(InputError, match=r"column .more. is string in the rows and double in the table"):
        table.upsert(wide.withColumn("more", wide["more"].cast("string")))


@pytest.mark.parametrize(("operation", "route"), crossed(["insert", "upsert", "overwrite"], ROUTES))
def test_repeated_keys_are_named_or_resolved(make: Callable[..., Any], spark: Any, operation: str, route: str) -> None:
    sizes = ROUTES[route]
    twice = spark.createDataFrame([("a", "sf", 1, 1), ("b", "sf", 1, 1), ("a", "sf", 2, 2)], SCHEMA).repartition(3)
    table = make("plain", sizes=sizes)
    before = table.table.timeline().commits
    with pytest.raises(InputError, match="'a'"):
        getattr(table, operation)(twice)
    assert table.table.timeline().commits == before
    ordered = make("ordered", ordering_field="ts", sizes=sizes)
    getattr(ordered, operation)(twice)
    assert_holds(ordered, {"a": ("sf", 2, 2), "b": ("sf", 1, 1)})


NOT_NULL = "'a' id, 'sf' city, 1L ts, 1L n"
BAD_ROWS = [
    ([("sf", 1, 1)], "city string, ts long, n long", "no column 'id'"),
    ([(None, "sf", 1, 1)], SCHEMA, "no record key"),
    ([("a", "sf", 1)], "id string, city string, n long", "'ts'"),
    ([("a", "../up", 1, 1)], SCHEMA, "\\.\\."),
    ([("a", "x" * 300, 1, 1)], SCHEMA, "bytes"),
    ([("a", ".hidden", 1, 1)], SCHEMA, "dot"),
    ([(1.5, "sf", 1, 1)], "id double, city string, ts long, n long", "cannot be a record key"),
]


@pytest.mark.parametrize(("bad", "route"), crossed(BAD_ROWS, ROUTES))
def test_bad_rows_are_refused_and_nothing_lands(
    make: Callable[..., Any], spark: Any, bad: tuple[Any, str, str], route: str
) -> None:
    rows, schema, message = bad
    table = make(ordering_field="ts", hive_style=False, sizes=ROUTES[route])
    before = table.table.timeline().commits
    for operation in ("upsert", "insert"):
        with pytest.raises(InputError, match=message):
            getattr(table, operation)(spark.createDataFrame(rows, schema))
    assert not table.table.snapshot().file_slices()
    assert table.table.timeline().commits == before


@pytest.mark.parametrize(("bucket_count", "route"), crossed([2, None], ROUTES))
def test_values_that_the_columns_hold_are_written_whatever_their_type(
    make: Callable[..., Any], spark: Any, bucket_count: int | None, route: str
) -> None:
    """As in plain Python; a key is the same key in every type, and in the same bucket and partition."""
    kinds = {"id": pa.int32(), "city": pa.int64(), "ts": pa.int64(), "n": pa.float64(), "d": pa.decimal128(9, 2)}
    schema = pa.schema([*kinds.items(), ("s", pa.struct([("x", pa.int64())]))])
    table = make(schema=schema, bucket_count=bucket_count, sizes=ROUTES[route])
    table.upsert(spark.sql("select 1 id, 5L city, 1L ts, 1.5D n, cast(2 as decimal(9, 2)) d, named_struct('x', 1L) s"))
    held = "cast({id} as {kind}) id, cast(5 as {kind}) city, cast(2 as {kind}) ts, 7L n, 3 d"
    held += ", named_struct('x', cast(2 as {kind})) s"
    for kind in ("double", "decimal(20,2)"):
        one, two = (spark.sql("select " + held.format(id=key, kind=kind)) for key in (1, 2))
        table.upsert(one)
        table.insert(two)
        rows = table.table.read().to_pylist()
        values = {"city": 5, "ts": 2, "n": 7.0, "d": Decimal("3.00"), "s": {"x": 2}}
        assert sorted(rows, key=lambda row: row["id"]) == [{"id": key} | values for key in (1, 2)]
        table.merge(two).when_matched(update={"n": lakelatch.sql("s.n + 1")}).when_not_matched(insert="all").run()
        assert sorted(row["n"] for row in table.table.read().to_pylist()) == [7.0, 8.0]
        assert table.delete(two.select("id", "city")).deleted == 1
    assert table.table.schema() == schema


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("shiftleft(1L, 53) + 1", "int64 in the rows and double in the table, which does not hold every value exactly"),
        ("'7'", "string in the rows and double in the table"),
        ("cast(0.1 as decimal(3, 1))", "decimal128.* in the rows and double"),
    ],
)
def test_values_that_a_column_does_not_hold_are_refused_by_its_name(
    make: Callable[..., Any], spark: Any, sizes: JobSizes, column: str, why: str
) -> None:
    table = make(sizes=sizes)
    table.upsert(spark.sql("select 'a' id, 'sf' city, 1.5D n"))
    bad = spark.sql(f"select 'a' id, 'sf' city, {column} n")
    for write in (table.upsert, table.insert):
        with pytest.raises(InputError, match=f"column 'n' is {why}.*nothing was written"):
            write(bad)
    table.upsert(spark.sql("select 'a' id, 'sf' city, null n"))
    assert [row.n for row in table.read().collect()] == [None]


def test_no_write_leaves_a_null_in_a_column_declared_not_null(
    make: Callable[..., Any], spark: Any, sizes: JobSizes
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    schema = pa.schema(
        [each.with_nullable(each.name != "n") for each in arrow_schema(spark.sql(f"select {NOT_NULL}").schema)]
    )
    table = make(schema=schema, sizes=sizes)
    table.insert(spark.sql(f"select {NOT_NULL}"))
    held, null = (
        table.read().collect(),
        spark.sql(f"select {NOT_NULL}").selectExpr("id", "city", "ts", "nullif(n, n) n"),
    )
    for write in (
        lambda: table.upsert(null),
        lambda: table.insert(null),
        lambda: table.overwrite(null),
        lambda: table.overwrite_table(null),
        lambda: table.update_where("true", {"n": None}),
        lambda: table.update_where("true", {"n": F.expr("nullif(n, n)")}),
        lambda: table.merge(null).when_matched(update="all").run(),
    ):
        with pytest.raises(InputError, match=r"'n' .*declared not null"):
            write()
    assert table.read().collect() == held


def test_times_without_zone_are_refused_with_the_way_out(make: Callable[..., Any], spark: Any) -> None:
    rows = spark.sql("select 'a' id, 'sf' city, timestamp_ntz'2024-01-01' at")
    with pytest.raises(InputError, match=r"cast\('timestamp'\)"):
        make().upsert(rows)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("named_struct('name', 'l', 'name', 'r')", r"'x.name' and 'x.name' have the same name"),
        ("array(named_struct('A', 1, 'a', 2))", r"'x.element.A' and 'x.element.a' .*ignores case"),
        ("map('k', named_struct('b c', 1))", r"'x.value.b c' .*Rename"),
        *((column, r"'x' is or holds VARIANT") for column in ("parse_json('1')", "array(parse_json('1'))") if IS_4),
    ],
)
def test_columns_that_no_reader_holds_are_refused_before_any_job(
    make: Callable[..., Any], spark: Any, column: str, message: str
) -> None:
    table = make()
    rows = spark.sql(f"select 'a' id, 'sf' city, {column} x")
    for operation in ("upsert", "insert", "overwrite_table"):
        with pytest.raises(InputError, match=message):
            getattr(table, operation)(rows)
    with pytest.raises(InputError, match=message):
        table.merge(rows).when_not_matched(insert="all").run()
    assert table.table.schema() is None


def test_all_types_come_back(make: Callable[..., Any], spark: Any, sizes: JobSizes) -> None:
    table = make(record_key="d", partition_by="day", sizes=sizes)
    rows = spark.sql(
        """select date'2024-02-03' d, 7 day, cast(1 as tinyint) a, cast(2.5 as float) b, cast(1.25 as decimal(10,2)) c,
        timestamp'2024-01-01 10:00:00.123456' e, X'01ff' f, array(1, null) g, map('k', 1.5D) h,
        named_struct('x', 'y', 'z', array(1L)) i, true j, cast(null as string) k"""
    )
    table.upsert(rows)
    table.upsert(rows)
    assert [r.asDict() for r in table.read().collect()] == [r.asDict() for r in rows.collect()]


def test_a_large_partition_becomes_several_file_groups(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    rows = spark.range(40_000, numPartitions=1).selectExpr("cast(id as string) id", "'sf' city", "rand(1) x")
    with table.table.transaction("insert") as txn:
        spec = replace(txn.file_spec(arrow_schema(rows.schema)), target_file_bytes=20_000, row_group_rows=2000)
        txn.add(stats_of(jobs.collect(spark, table.table.store, txn, rows, InsertTask(spec), text="")))
    groups = table.table.snapshot().file_slices()
    assert len(groups) > 3
    assert all(g.size < 80_000 for g in groups)
    assert table.read().select("id").distinct().count() == 40_000


def test_an_empty_batch_changes_nothing(make: Callable[..., Any], spark: Any, sizes: JobSizes) -> None:
    table = make(sizes=sizes)
    none = rows_of(spark, generated(1)).where("n < 0")
    assert table.upsert(none).instant is None
    assert table.insert(none).instant is None
    assert table.delete(none).instant is None
    assert table.delete_where("n = 1").instant is None
    table.insert(rows_of(spark, generated(3)))
    assert table.delete_where("n < 0").instant is None
    assert_holds(table, generated(3))


def test_a_group_whose_rows_are_all_deleted_is_readable(
    make: Callable[..., Any], spark: Any, bucket_count: int | None
) -> None:
    table = make(bucket_count=bucket_count)
    table.insert(rows_of(spark, generated(6)))
    assert table.delete_where("true").deleted == 6
    assert_holds(table, {})
    table.upsert(rows_of(spark, generated(2)))
    assert_holds(table, generated(2))


def test_spark_and_plain_python_share_a_table(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    table.insert(rows_of(spark, generated(6)))
    with lakelatch.open(table.table.url) as plain, plain.transaction("upsert") as txn:
        for group in txn.snapshot.file_slices("city=sf"):
            rows = txn.read_slice(group)
            doubled = rows.set_column(
                rows.column_names.index("n"), "n", pa.array([2 * n for n in rows["n"].to_pylist()])
            )
            txn.rewrite(group).write(doubled)
    model = {k: (c, ts, 2 * n if c == "sf" else n) for k, (c, ts, n) in generated(6).items()}
    assert_holds(table, model)


def tasks_of(result: Any) -> set[str]:
    """The numbers of Spark's tasks that wrote the files."""
    return {stat.path.rpartition("/")[2].split("_")[1].split("-")[0] for stat in result.stats}


@pytest.mark.thorough
@pytest.mark.parametrize("partition_by", [(), "city"], ids=["unpartitioned", "one partition"])
def test_the_first_upsert_and_large_ones_later_are_spread_over_the_cores(
    make: Callable[..., Any], spark: Any, partition_by: Any
) -> None:
    table = make(partition_by=partition_by)
    rows = spark.range(300_000, numPartitions=2).selectExpr("cast(id % 250000 as string) id", "'sf' city", "id ts")
    first = rows.where("ts < 250000")
    result = table.upsert(first)
    assert len(tasks_of(result)) == spark.sparkContext.defaultParallelism
    assert table.read().count() == table.read().select("id").distinct().count() == 250_000
    if not partition_by:
        # A file group is of one task, by a hash of its random id: of as many as here, all are not of the same one.
        for number in range(250_000, 250_008):
            table.table.insert(pa.table({"id": [f"{number}"], "city": ["sf"], "ts": [0]}))
        assert len(table.table.snapshot().file_slices()) >= 10
        changes = spark.range(250_008, numPartitions=2).selectExpr("cast(id as string) id", "'sf' city", "-1L ts")
        assert len(tasks_of(table.upsert(changes))) > 1
        assert table.read().select("id").distinct().count() == table.read().where("ts = -1").count() == 250_008


def test_rows_that_repeat_a_key_meet_also_where_the_first_upsert_is_spread(
    make: Callable[..., Any], spark: Any
) -> None:
    table = make(partition_by=(), ordering_field="ts", sizes=JobSizes(slot_bytes=1))
    rows = spark.range(50_000, numPartitions=4).selectExpr("cast(id % 25000 as string) id", "'sf' city", "id ts")
    result = table.upsert(rows)
    assert (result.inserted, len(tasks_of(result)) > 1) == (25_000, True)
    assert table.read().where("ts >= 25000").count() == table.read().count() == 25_000


@pytest.mark.parametrize(
    "plan",
    ["id, repeat('x', 30000000) s", "id, explode(sequence(1, 2000000)) n", "id, repeat(cast(id as string), 3) s"],
)
def test_what_comes_to_the_driver_is_bounded_by_its_size_and_not_by_the_estimate(spark: Any, plan: str) -> None:
    rows = spark.range(3, numPartitions=2).selectExpr(*(plan.split(", ", 1)))
    assert estimated_bytes(rows) is not None
    assert estimated_bytes(rows) < 1000
    # Of more rows than ever come here none is left out, however many the driver may write.
    found = small_rows(rows, 1 << 30 if "explode" in plan else JobSizes().small_rows)
    if "cast" in plan:
        assert found is not None
        assert found.sort_by("id").to_pylist() == [{"id": n, "s": str(n) * 3} for n in range(3)]
    else:
        assert found is None


def test_small_rows_are_brought_as_arrow_makes_them(spark: Any) -> None:
    rows = spark.sql(
        """select 1 i, 'a' s, date'0099-01-02' d, timestamp'2024-01-02 03:04:05.678901' t, 1.50BD x, array(1, null) l,
        map('k', 1D) m, named_struct('a', binary('b'), 'b', null) n from range(3)"""
    )
    assert small_rows(rows, 20) == to_arrow(rows)
    assert small_rows(rows.where("i > 5"), 20) == to_arrow(rows.where("i > 5"))


def test_small_rows_without_nested_columns_need_no_worker(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = (
        "id string, `a b` binary, `Ü 𝒳` boolean, y tinyint, s smallint, i int, l bigint, f float, d double, "
        "x decimal(38, 9), o date, t timestamp"
    )
    full = ("𝒳", b"\0", True, -128, -32768, -(2**31), -(2**63), math.nan, -0.0, Decimal("-1e28"), date(1, 1, 1), None)
    rows = spark.createDataFrame([full, (None,) * len(full), ("", b"", *full[2:])], schema)
    workers = small_rows(rows.selectExpr("*", "array(1) nested"), 20)
    monkeypatch.setattr(incoming, "Packed", None)
    found = small_rows(rows, 20)
    assert found.schema == workers.drop("nested").schema == to_arrow(rows).schema
    assert str(found.to_pylist()) == str(workers.drop("nested").to_pylist()) == str(to_arrow(rows).to_pylist())  # NaN
    assert small_rows(rows.where("id = 'x'"), 20) == to_arrow(rows).slice(0, 0)
    assert small_rows(rows, 2) is None
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        small_rows(rows.selectExpr("1 / y - y / 0 q"), 20)


def test_a_row_with_long_texts_is_left_to_a_worker(spark: Any) -> None:
    """The driver's own process holds no more of the others than a bound for each row."""
    texts = ["x" * 40, "é" * 20, None, ""]
    rows = spark.createDataFrame([(text, b"") for text in texts], "s string, b binary")
    assert narrow_rows(rows, 72).column("s").to_pylist() == texts
    assert narrow_rows(rows, 71) is None
    assert narrow_rows(rows.selectExpr("s", "cast('z' as binary) b"), 72) is None
    assert narrow_rows(spark.range(3), 15) is None
    wide = spark.createDataFrame([("x" * 100_000, n) for n in range(3)], "s string, n int")
    assert small_rows(wide, 20_000) == to_arrow(wide)


@pytest.mark.parametrize("cached", [True, False])
def test_what_the_user_has_cached_stays_cached_and_what_we_keep_goes(spark: Any, cached: bool) -> None:
    rows = spark.range(40).selectExpr("cast(id as string) id", "'sf' city", "rand() r")
    kept = spark.sparkContext._jsc.sc().getPersistentRDDs
    before = kept().size()
    if cached:
        rows.cache()
        values = sorted(row["r"] for row in rows.collect())
    with Source(rows, None).until_done() as source:
        source.use()
        again = source.use()  # a second attempt: kept by us from now on
        assert again.columns == rows.columns
        found = sorted(row["r"] for row in again.collect())
        assert sorted(row["r"] for row in again.collect()) == found
    try:
        assert rows.is_cached is cached
        assert kept().size() == before + cached
        if cached:
            assert found == values == sorted(row["r"] for row in rows.collect())
    finally:
        rows.unpersist()


KEPT_NAMES = ["_lakelatch_partition", "_Lakelatch_Group", "_metadata", "_METADATA", "_tmp_metadata_row_index"]


@pytest.mark.parametrize(("name", "route"), crossed(KEPT_NAMES, ROUTES))
def test_a_column_with_a_name_that_scans_and_writes_use_is_refused(
    make: Callable[..., Any], spark: Any, name: str, route: str
) -> None:
    table = make(sizes=ROUTES[route])
    before = table.table.timeline().commits
    rows = spark.createDataFrame([("a", "sf", 1)], ["id", "city", name])
    for write in (table.insert, table.upsert, table.overwrite):
        with pytest.raises(InputError, match=f"'{name}' has a name that (Spark|this library) keeps for itself"):
            write(rows)
    with pytest.raises(InputError, match="keeps for itself"), table.table.transaction("upsert") as txn:
        txn.upsert(to_arrow(rows))
    assert table.table.timeline().commits == before


@pytest.mark.parametrize("route", ROUTES)
def test_a_widened_column_is_read_and_written_beside_files_of_before(
    make: Callable[..., Any], spark: Any, route: str
) -> None:
    table = make(sizes=ROUTES[route])
    narrow = "id string, city string, n int, s struct<x: int>"
    table.upsert(spark.createDataFrame([("a", "sf", 1, (5,)), ("b", "la", -7, None)], narrow))
    table.table.widen_column("n", "int64")
    table.table.add_column("w", "string")
    table.table.add_column("s.y", "string")
    assert table.read().where("n < 0").select("id", "n", "w").collect() == [("b", -7, None)]
    assert table.read().where("s is not null").select("s.y", "id").collect() == [(None, "a")]
    wide = "id string, city string, n long, s struct<x: int, y: string>, w string"
    table.upsert(spark.createDataFrame([("c", "ny", 2**40, (3, "y"), "x")], wide))
    table.upsert(spark.createDataFrame([("d", "sf", 2, (1, None), None)], wide.replace("long", "int")))  # beside a
    fields = {"a": (5, None), "b": None, "c": (3, "y"), "d": (1, None)}
    assert {r["id"]: r["s"] for r in table.read().collect()} == fields
    with pytest.raises(InputError, match=r"column 's' is struct.*and no others"):
        table.upsert(
            spark.createDataFrame([("e", "sf", ("!",))], "id string, city string, s struct<z: string>"), missing="null"
        )
    table.upsert(
        spark.createDataFrame([("e", "sf", ("!",))], "id string, city string, s struct<z: string>"),
        missing="null", new_columns="add",
    )  # fmt: skip
    assert table.read().where("s.z = '!'").select("s").collect() == [((None, None, "!"),)]
    table.delete_where("id = 'e'")
    assert [r[0] for r in table.read().where(f"n > {2**33} or n = 1").select("id").sort("id").collect()] == ["a", "c"]
    assert {r["id"]: r["n"] for r in table.read().collect()} == {"a": 1, "b": -7, "c": 2**40, "d": 2}
    assert {r["id"]: r["n"] for r in table.table.read().to_pylist()} == {"a": 1, "b": -7, "c": 2**40, "d": 2}
    table.delete_where(f"n > {2**33}")
    assert table.read().count() == 3
    assert table.table.schema().field("n").type == pa.int64()
    for name in ("n", "s.y"):
        table.table.drop_column(name)
    assert {r["id"]: r["s"] for r in table.read().where("w is null").collect()} == {
        "a": (5, None),
        "b": None,
        "d": (1, None),
    }
    fewer = "id string, city string, s struct<x: int, z: string>, w string"
    table.upsert(spark.createDataFrame([("d", "sf", (2, "z"), "w")], fewer))  # beside a
    table.update_where("w is null", {"w": "v"})
    shown = [("a", "sf", (5, None), "v"), ("b", "la", None, "v"), ("d", "sf", (2, "z"), "w")]
    assert table.read().select("id", "city", "s", "w").sort("id").collect() == shown
    assert table.read().columns[-4:] == table.table.schema().names[-4:] == ["id", "city", "s", "w"]
    for rows in (("n long", 5), ("s struct<y: string>", ("!",))):
        with pytest.raises(InputError, match="was dropped from the table"):
            table.upsert(
                spark.createDataFrame([("d", "sf", rows[1])], f"id string, city string, {rows[0]}"),
                missing="null",
                new_columns="add",
            )


@pytest.mark.parametrize("route", ROUTES)
def test_partitions_by_time_are_those_of_utc_and_pruned(spark: Any, tmp_path: Path, route: str) -> None:
    """Whatever time zone the session has."""
    from pyspark.sql.functions import lit, unix_micros

    url, unit = str(tmp_path / "t"), {name: ("days", "months", "years")[n % 3] for n, name in enumerate(ROUTES)}[route]
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    lakelatch.create(url, record_key="id", partition_by=f"{unit}(at)", schema=schema).close()
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with lakelatch.spark.open(spark, url, sizes=ROUTES[route]) as table:
            times = (
                "2023-12-31 23:59:59.999999",
                "2024-01-01 00:00:00",
                "1969-12-31 23:59:59.999999",
                "1970-01-01 00:00:00",
            )
            for n in range(2):
                of = [f"select '{each[:4]}' id, timestamp'{each} UTC' at, {n} n" for each in times]
                table.upsert(spark.sql(" union all ".join([*of, "select 'none', null, 1"])))
            length = {"days": 10, "months": 7, "years": 4}[unit]
            named = f"at_{unit[:-1]}="
            paths = sorted({named + each[:length] for each in times} | {f"{named}__HIVE_DEFAULT_PARTITION__"})
            assert table.table.snapshot().partitions() == paths
            where = "at >= '2023-12-31 19:00:00'"  # of New York
            assert [row["id"] for row in table.read(where=where).collect()] == ["2024"]
            assert len(table.explain(where=where).read) == 1
            assert table.read().where("n = 1").count() == table.table.read().count() == 5
            column = table.read().where("id = '1969'").select(f"at_{unit[:-1]}").collect()
            assert column == [("1969-12-31"[:length],)]
            source = spark.sql("select '2024' id, timestamp'2024-01-01 00:00:00.000001 UTC' at, 7 n")
            table.merge(source).when_matched("s.n > t.n", update="all").run()
            assert table.read(where="n = 7").select(unix_micros("at") % 1000).collect() == [(1,)]
            with pytest.raises(InputError, match=r"'at_.*' is 'x' in a row whose at"):
                table.upsert(source.withColumn(f"at_{unit[:-1]}", lit("x")))
            table.delete(spark.sql("select '1970' id, timestamp'1970-01-01 00:00:00 UTC' at"))
            table.delete_where("at < '1970-01-01'")
            assert sorted(row["id"] for row in table.read().collect()) == ["2023", "2024", "none"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("route", ROUTES)
def test_a_delete_takes_every_row_with_the_key_though_an_insert_made_it_twice(
    make: Callable[..., Any], spark: Any, route: str
) -> None:
    table = make(sizes=ROUTES[route])
    for number in range(3):
        table.insert(spark.createDataFrame([("a", "sf", number), ("b", "la", number)], "id string, city string, n int"))
    table.delete(spark.createDataFrame([("a", "sf")], "id string, city string"))
    assert [row["id"] for row in table.read().collect()] == ["b"] * 3
    table.delete(spark.createDataFrame([("b",)], "id string"))
    assert table.read().count() == 0


def test_a_bulk_insert_sorts_its_rows(make: Callable[..., Any], spark: Any) -> None:
    """Globally: a partition's files have ranges of their own; in partitions: each file is in order."""
    rows = spark.range(4000).selectExpr(
        "cast(id as string) as id", "if(id % 2 = 0, 'x', null) as city", "pmod(hash(id), 1000) as n"
    )
    for sort in ("global", "partition"):
        table = make(sort, sizes=JobSizes(small_rows=0, slot_bytes=1))
        table.bulk_insert(rows.repartition(4), sort=sort, sort_by="n")
        spans = []
        for each in table.table.snapshot().file_slices():
            values = table.table.read_slice(each)["n"].to_pylist()
            assert values == sorted(values), sort
            spans.append((each.partition, values[0], values[-1]))
        spans.sort()
        apart = [a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(spans)]
        assert all(apart) == (sort == "global"), spans
        assert table.read().count() == 4000


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"sort": "z"}, {}),
        ({"sort": None}, {}),
        ({"sort_by": "n"}, {}),
        ({"sort": "global", "sort_by": ["nope"]}, {}),
        ({"sort": "global", "sort_by": [5]}, {}),
        ({"sort": "global"}, {"bucket_count": 2}),
    ],
)
def test_a_bulk_insert_that_cannot_be_sorted_writes_nothing(
    make: Callable[..., Any], spark: Any, options: Any, settings: Any
) -> None:
    table = make(**settings)
    before = table.table.commits()
    with pytest.raises(InputError, match=r"nothing was written|sort_by"):
        table.bulk_insert(rows_of(spark, {"a": ("sf", 1, 1)}), **options)
    assert table.table.commits() == before


AWKWARD = {
    "twice": ("v", "v"),
    "by case": ("v", "V"),
    "key twice": ("id", "v"),
    "key by case": ("ID", "v"),
    "dot": ("a.b", "v"),
    "backtick": ("a`b", "v"),
    "backticks": ("`v`", "w"),
    "empty": ("", "v"),
    "blank": (" ", "v"),
    "Hudi's": ("_hoodie_x", "v"),
    "Hudi's, by case": ("_Hoodie_commit_time", "v"),
    "Spark's": ("_metadata", "v"),
    "ours": ("_lakelatch_x", "v"),
}
WRITERS: dict[str, Callable[[Any, Any], object]] = {
    "insert": lambda t, rows: t.insert(rows),
    "bulk_insert": lambda t, rows: t.bulk_insert(rows, sort="partition"),
    "upsert": lambda t, rows: t.upsert(rows, missing="null"),
    "overwrite": lambda t, rows: t.overwrite(rows),
    "overwrite_table": lambda t, rows: t.overwrite_table(rows),
    "merge": lambda t, rows: t.merge(rows).when_not_matched(insert="all").run(),
}


@pytest.mark.parametrize(("writer", "route"), crossed(WRITERS, ROUTES))
def test_names_that_cannot_be_are_refused_in_a_sentence(
    make: Callable[..., Any], spark: Any, writer: str, route: str
) -> None:
    """Before any job, and before anything is written; the session's own errors would name other columns."""
    table = make(sizes=ROUTES[route])
    before = len(list(table.table.session.log.entries()))
    for names in AWKWARD.values():
        rows = spark.range(3).selectExpr("cast(id as string)", "'x'", "id", "id + 10").toDF("id", "city", *names)
        with pytest.raises(InputError, match=r"Rename (it|one).*; nothing was written") as refused:
            WRITERS[writer](table, rows)
        assert table.table.url in str(refused.value)
    assert len(list(table.table.session.log.entries())) == before


@pytest.mark.parametrize("writer", [*WRITERS, "delete"])
def test_what_is_no_dataframe_with_rows_is_refused_in_a_sentence(
    make: Callable[..., Any], spark: Any, writer: str
) -> None:
    table = make()
    write = WRITERS.get(writer) or (lambda t, rows: t.delete(rows))
    with pytest.raises(InputError, match=r"is no DataFrame of .* spark.createDataFrame.* nothing was written"):
        write(table, spark.range(1).rdd)
    with pytest.raises(InputError, match=r"(?i)nothing was written"):
        write(table, None)
    endless = spark.readStream.format("rate").load().selectExpr("cast(value as string) id", "'x' city")
    with pytest.raises(InputError, match=r"foreachBatch\(table.sink\(\"upsert\"\)\); nothing was written"):
        write(table, endless)


def test_sizes_that_are_none_are_refused() -> None:
    for name, value in (("small_rows", -1), ("tasks_per_core", 0), ("task_bytes", 0), ("driver_bytes", None)):
        with pytest.raises(ConfigError, match=f"{name}={value}"):
            JobSizes(**{name: value})  # type: ignore[arg-type]


def test_keys_to_delete_are_taken_from_one_column_of_each_name(
    make: Callable[..., Any], spark: Any, sizes: JobSizes
) -> None:
    table = make(sizes=sizes)
    table.insert(spark.range(3).selectExpr("cast(id as string) id", "'x' city", "id v"))
    keys = spark.range(2).selectExpr("cast(id as string)", "'x'", "'a'")
    for name in ("id", "ID", "City"):
        with pytest.raises(InputError, match=r"more than one column .* nothing was written"):
            table.delete(keys.toDF("id", "city", name))
    assert table.read().count() == 3
    table.delete(keys.toDF("id", "city", "a.`b"))  # of which nobody asks
    assert [row["id"] for row in table.read().collect()] == ["2"]


def test_rows_of_a_read_with_meta_columns_are_written_back_without_them(
    make: Callable[..., Any], spark: Any, sizes: JobSizes
) -> None:
    table = make(sizes=sizes)
    table.insert(spark.range(3).selectExpr("cast(id as string) id", "'x' city", "id v"))
    table.upsert(table.read(meta=True).selectExpr("* except (v)", "v + 1 v"))
    table.insert(table.read(meta=True).selectExpr("* except (id)", "concat('new', id) id"))
    assert sorted((row["id"], row["v"]) for row in table.read().collect()) == [
        *((str(n), n + 1) for n in range(3)),
        *((f"new{n}", n + 1) for n in range(3)),
    ]
