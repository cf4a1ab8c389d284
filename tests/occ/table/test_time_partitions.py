"""Partitions by a unit of time: what is written where, what a condition reads, and what both readers show."""

from __future__ import annotations

import datetime as dt
import random
import shutil

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, InputError, UnsupportedTableError
from lakelatch.occ.check.check import check

from ...thorough import some
from ..world import check_sound

UTC = dt.UTC
AT, DAY = pa.timestamp("us", "UTC"), pa.date32()
TIMES = [
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(1582, 10, 4, 23, 59, 59, 999999, UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(2024, 2, 28, 23, tzinfo=UTC),
    dt.datetime(2024, 2, 29, 0, 30, 1, 5, UTC),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
    dt.datetime(2024, 12, 31, 12, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    None,
]
GIVEN = {kind: pa.schema([("id", pa.int64()), ("at", kind), ("n", pa.int64())]) for kind in (AT, DAY)}
PATHS = {"hours": "%04d-%02d-%02d-%02d", "days": "%04d-%02d-%02d", "months": "%04d-%02d", "years": "%04d"}


def text_of(at: dt.date | None, unit: str) -> str | None:
    form = PATHS[unit]
    return None if at is None else form % (at.year, at.month, at.day, getattr(at, "hour", 0))[: form.count("%")]


def path_of(at: dt.date | None, unit: str) -> str:
    return f"at_{unit[:-1]}={text_of(at, unit) or '__HIVE_DEFAULT_PARTITION__'}"


def made(folder, unit: str, kind: pa.DataType = AT, **more):
    return lakelatch.create(str(folder / "t"), record_key="id", partition_by=f"{unit}(at)", schema=GIVEN[kind], **more)


def by_hudi_rs(table, *conditions: tuple[str, str, str]) -> list[tuple]:
    reader = HudiTableBuilder.from_base_uri(table.url).build()
    batches = reader.read(HudiReadOptions().with_filters(list(conditions)))
    return listed([row for batch in batches for row in pa.record_batch(batch).select(["id", "at", "n"]).to_pylist()])


def listed(rows: list[dict]) -> list[tuple]:
    return sorted(((row["id"], row["at"], row["n"]) for row in rows), key=repr)


UNITS = [(unit, kind) for unit in PATHS for kind in (AT, DAY) if (unit, kind) != ("hours", DAY)]


@pytest.mark.parametrize(
    ("type_", "unit", "kind"),
    [(each, *unit) for each in ("copy_on_write", "merge_on_read") for unit in some(UNITS, 2)],
)
def test_random_writes_and_conditions_agree_with_a_dict_and_hudi_rs(folder, type_, unit, kind):
    draw = random.Random(f"{unit} {kind} {type_}")
    model: dict[tuple[str, int], dict] = {}
    times = [at if kind == AT or at is None else at.date() for at in TIMES]

    def rows() -> list[dict]:
        found = {}
        for _ in range(draw.randrange(1, 5)):
            row = {"id": draw.randrange(4), "at": draw.choice(times), "n": draw.randrange(9)}
            found[path_of(row["at"], unit), row["id"]] = row
        return [*found.values()]

    def meets(row: dict, op: str, value) -> bool:
        at = row["at"]
        if op in ("is null", "is not null"):
            return (at is None) == (op == "is null")
        return at is not None and {"<": at < value, ">=": at >= value, "=": at == value, "!=": at != value}[op]

    with made(folder, unit, kind, type=type_) as table:
        for _ in range(14):
            match draw.randrange(6):
                case 0 if model:
                    gone = draw.choice(list(model.values()))
                    table.delete([{"id": gone["id"], "at": gone["at"]}])
                    del model[path_of(gone["at"], unit), gone["id"]]
                case 1:
                    given = rows()
                    table.overwrite(pa.Table.from_pylist(given, GIVEN[kind]))
                    named = {path_of(row["at"], unit) for row in given}
                    model = {place: row for place, row in model.items() if place[0] not in named}
                    model.update({(path_of(row["at"], unit), row["id"]): row for row in given})
                case 2:
                    op, value = draw.choice(["<", ">=", "="]), draw.choice(times[:-1])
                    table.delete_where([("at", op, value)])
                    model = {place: row for place, row in model.items() if not meets(row, op, value)}
                case 3:
                    given = rows()
                    merge = table.merge(pa.Table.from_pylist(given, GIVEN[kind]))
                    merge.when_matched("s.n > t.n", update="all").when_not_matched(insert="all").run()
                    for row in given:
                        place = path_of(row["at"], unit), row["id"]
                        if place not in model or row["n"] > model[place]["n"]:
                            model[place] = row
                case _:
                    given = rows()
                    table.upsert(pa.Table.from_pylist(given, GIVEN[kind]))
                    model.update({(path_of(row["at"], unit), row["id"]): row for row in given})
        wanted = listed([*model.values()])
        assert listed(table.read().to_pylist()) == wanted
        assert by_hudi_rs(table) == wanted
        assert all(row[f"at_{unit[:-1]}"] == text_of(row["at"], unit) for row in table.read().to_pylist())
        assert {place for place, _ in model} <= set(table.snapshot().partitions())
        for op in ("<", ">=", "=", "!=", "is null", "is not null"):
            for value in times[:-1] if op[:2] != "is" else [None]:
                where = [("at", op)] if value is None else [("at", op, value)]
                told = listed([row for row in model.values() if meets(row, op, value)])
                assert listed(table.read(where=where).to_pylist()) == told, where
        check_sound(table)
        assert check(table.store, deep=True).sound(strict=True)


@pytest.mark.parametrize(
    ("unit", "where", "read"),
    some(
        [
            ("days", "at >= '2024-02-29 12:00:00'", ["2024-02-29", "2024-12-31", "9999-12-31"]),
            ("days", "at > '2024-02-29 23:59:59.999999'", ["2024-12-31", "9999-12-31"]),
            ("days", "at < '1970-01-01' and n = 1", ["0001-01-01", "1582-10-04", "1969-12-31"]),
            ("days", "at = '2024-02-29 00:30:01.000005'", ["2024-02-29"]),
            ("days", "at in ('1970-01-01', '2024-12-31 12:00:00')", ["1970-01-01", "2024-12-31"]),
            ("days", "at is null", ["__HIVE_DEFAULT_PARTITION__"]),
            ("hours", "at between '2024-02-28 23:30:00' and '2024-02-29 00:00:00'", ["2024-02-28-23", "2024-02-29-00"]),
            ("months", "at >= '2024-02-29' and at < '2024-12-01'", ["2024-02"]),
            ("years", "at >= '1970-01-01' and at < '2025-01-01'", ["1970", "2024"]),
        ],
        9,
    ),
)
def test_only_the_partitions_that_a_condition_can_mean_are_read(folder, unit, where, read):
    with made(folder, unit) as table:
        table.insert([{"id": n, "at": at, "n": 1} for n, at in enumerate(TIMES)])
        scan = table.read(where=where)
        told = {
            each.path.split("/")[0]
            for each in scan.explain().files
            if each.why != "the condition excludes its partition"
        }
        assert told == {f"at_{unit[:-1]}={each}" for each in read}


def test_hudi_rs_takes_conditions_on_the_column(folder):
    with made(folder, "days") as table:
        table.insert([{"id": n, "at": at, "n": n} for n, at in enumerate(TIMES)])
        for op in (">=", ">", "<", "<=", "="):
            text = "2024-02-29 00:30:01.000005"
            assert by_hudi_rs(table, ("at", op, text)) == listed(table.read(where=f"at {op} '{text}'").to_pylist()), op


def test_a_row_moves_to_the_day_of_its_new_time_where_keys_are_unique_in_the_table(folder):
    with made(folder, "days", unique_keys="table") as table:
        table.upsert([{"id": n, "at": TIMES[4], "n": n} for n in range(3)])
        table.upsert(
            [{"id": 0, "at": TIMES[5], "n": 10}, {"id": 1, "at": None, "n": 11}, {"id": 2, "at": TIMES[4], "n": 12}]
        )
        assert by_hudi_rs(table) == [(0, TIMES[5], 10), (1, None, 11), (2, TIMES[4], 12)]
        check_sound(table)


def test_rows_that_were_read_are_written_again_and_others_with_a_wrong_text_are_refused(folder):
    with made(folder, "days") as table:
        table.insert([{"id": n, "at": at, "n": n} for n, at in enumerate(TIMES)])
        table.upsert(table.read().to_arrow())
        assert table.read().count() == len(TIMES)
        for wrong in ("2024-02-28", None, "x"):
            rows = [{"id": 1, "at": TIMES[5], "n": 1, "at_day": wrong}]
            with pytest.raises(
                InputError, match=r"'at_day' is .* at is of '2024-02-29': it is computed \(days of at\)"
            ):
                table.upsert(pa.Table.from_pylist(rows, table.schema()))
        with pytest.raises(InputError, match="tells where a row"):
            table.update_where("id = 1", set={"at": TIMES[5]})
        with pytest.raises(InputError, match="rows lack at, which"):
            table.upsert([{"id": 1, "n": 1}], missing="null")
        wrong = pa.table({"id": [1], "at": pa.array([TIMES[5]], AT), "n": [1], "at_day": ["2024-02-28"]})
        txn = table.transaction()
        with pytest.raises(InputError, match="it is computed"), txn.new_file("at_day=2024-02-28") as file:
            file.write(wrong)
        txn.abort()
        assert check(table.store, deep=True).sound(strict=True)


def test_a_time_beside_another_column(folder):
    schema = pa.schema([("id", pa.int64()), ("at", AT), ("city", pa.string())])
    with lakelatch.create(
        str(folder / "t"), record_key="id", partition_by=["city", "days(at)"], schema=schema
    ) as table:
        table.insert([{"id": n, "at": at, "city": "x/ü"[n % 3 :]} for n, at in enumerate(TIMES)])
        assert table.read(where=f"at = '{TIMES[5]:%F %T.%f}'").count() == 1
        read = table.read(where="at >= '2024-12-01' and city = 'ü'").explain().read
        assert [each.path.split("/")[:2] for each in read] == [["city=ü", "at_day=9999-12-31"]]
        assert len(table.read(where="at < '1970-01-01' and city in ('x/ü', '/ü')").explain().read) == 2
        table.delete([{"id": 5, "at": TIMES[5], "city": "ü"}])
        table.delete([{"id": 6}])
        assert table.read().count() == len(TIMES) - 2
        assert table.config.partitioned_by == ("city", "days(at)")


def test_a_merged_column_keeps_the_newest_time(folder):
    """The time is no key: rows of one key in one day differ in it."""
    with made(folder, "days", merge={"n": "sum"}) as table:
        for at in (TIMES[6], TIMES[5]):
            table.upsert([{"id": 1, "at": at, "n": 2}])
        assert listed(table.read().to_pylist()) == [(1, TIMES[5], 4)]


def test_two_writers_of_one_key_and_day_conflict_also_where_its_columns_add_up(folder):
    """Which of the times stays depends on their order."""
    with made(folder, "days", merge={"n": "sum"}) as table:
        table.upsert([{"id": 1, "at": TIMES[4], "n": 1}])
        slow = table.transaction()
        slow.upsert([{"id": 1, "at": TIMES[4].replace(minute=1), "n": 10}])
        table.upsert([{"id": 1, "at": TIMES[4].replace(minute=2), "n": 100}])
        with pytest.raises(ConflictError, match="the same rows"):
            slow.commit()


def test_partitions_are_named_by_their_paths_and_texts(folder):
    with made(folder, "months") as table:
        table.insert([{"id": n, "at": at, "n": n} for n, at in enumerate(TIMES)])
        for named in ("at_month=2024-02", {"at_month": "2024-02"}):
            assert table.read(partitions=[named]).count() == 3
        with pytest.raises(InputError, match="no partition"):
            table.read(partitions=["at_month=2024-03"])
        table.overwrite([], partitions=["at_month=2024-02"])
        assert table.read(where="at >= '2024-02-01' and at < '2024-03-01'").count() == 0


def test_a_time_without_year_of_four_digits_is_no_partition(folder):
    with made(folder, "days") as table:
        for value in (253402300800000000, -62135596800000001):
            rows = pa.table({"id": [1], "at": pa.array([value], AT), "n": [1]})
            with pytest.raises(InputError, match="outside of the years 1 to 9999"):
                table.upsert(rows)
        assert table.read().count() == 0


def test_a_table_without_columns_yet_refuses_rows_without_such_times(folder):
    with lakelatch.create(str(folder / "t"), record_key="id", partition_by="hours(at)") as table:
        with pytest.raises(InputError, match="rows lack at, which"):
            table.upsert([{"id": 1, "n": 1}])
        for value in (dt.date(2024, 1, 1), "2024-01-01", 5):
            with pytest.raises(InputError, match=r"'at' of type .* has no hours"):
                table.upsert([{"id": 1, "at": value}])
        table.upsert([{"id": 1, "at": TIMES[5]}])
        assert table.snapshot().partitions() == ["at_hour=2024-02-29-00"]
        assert table.schema().names == ["id", "at", "at_hour"]


def test_what_a_table_is_partitioned_by_is_compared_and_told(folder):
    with made(folder, "days") as table:
        assert table.config.to_json()["partition_by"] == ["days(at)"]
        assert "days(at)" in table._repr_html_()
        url = table.url
    lakelatch.create(url, record_key="id", partition_by="days(at)", exist_ok=True).close()
    lakelatch.create(url, record_key="id", partition_by="days(at)", schema=GIVEN[AT], exist_ok=True).close()
    for other in ("months(at)", "at", "at_day"):
        with pytest.raises(ConfigError, match=r"days\(at\)"):
            lakelatch.create(url, record_key="id", partition_by=other, exist_ok=True)


@pytest.mark.parametrize(
    ("by", "match"),
    [
        ("weeks(at)", "no partitions by 'weeks'; .*hours, days, months, years"),
        ("bucket(at)", "bucket_count"),
        ("Days(at)", "no partitions by 'Days'"),
        (["days(at)", "years(at)"], "partitioned by one time"),
        (["at_day", "days(at)"], "makes the column 'at_day'; name it once"),
        ("years(day)", "'day_year' of type int32"),
        ("days(n)", "Column 'n' of type int64 has no days"),
        ("hours(day)", "Column 'day' of type date32"),
        ("days(nowhere)", "lacks nowhere"),
        ("days()", "Avro cannot hold"),
        ("days(at.x)", "Avro cannot hold"),
        ("days(days(at))", "Avro cannot hold"),
        ("days(id", "Avro cannot hold"),
    ],
)
def test_other_partitions_are_refused_before_anything_is_written(folder, by, match):
    schema = pa.schema([("id", pa.int64()), ("at", AT), ("n", pa.int64()), ("day", DAY), ("day_year", pa.int32())])
    with pytest.raises(InputError, match=match):
        lakelatch.create(str(folder / "t"), record_key="id", partition_by=by, schema=schema)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("wrong", [None, "2024-02-28"])
def test_a_table_whose_column_another_writer_has_not_computed_is_not_adopted(folder, wrong):
    """Here one of this library that does not know that the column is computed."""
    url, schema = str(folder / "t"), pa.schema([*GIVEN[AT], ("at_day", pa.string())])
    with lakelatch.create(url, record_key="id", partition_by="at_day", schema=schema) as table:
        table.insert([{"id": n, "at": TIMES[5], "n": n, "at_day": "2024-02-29"} for n in range(3)])
        table.insert([{"id": 3, "at": TIMES[6], "n": 3, "at_day": wrong}])
        table.insert([{"id": 4, "at": TIMES[5], "n": 4, "at_day": "2024-02-29"}])
    properties = folder / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "lakelatch.partition.time=days(at)\n")
    shutil.rmtree(folder / "t/.hoodie/.lakelatch")
    with pytest.raises(
        UnsupportedTableError, match=r"days\(at\), and another writer has not computed that in file group"
    ):
        lakelatch.adopt(url)
    with lakelatch.open(url) as table:
        assert not table.writable


def test_no_neighbours_and_no_streams(folder):
    lock = f"file://{folder}/locks?jvm=lock"
    with pytest.raises(ConfigError, match=r"days\(at\), and neighbours=hudi would not compute at_day"):
        made(folder, "days", lock=lock, neighbours="hudi")
    with pytest.raises(ConfigError, match="and not by a time"):
        made(folder, "days", streams={"s": {"columns": ["n"], "ordering": "n"}})
    with made(folder, "days", lock=lock) as table, pytest.raises(ConfigError, match="would not compute"):
        table.change_settings(neighbours="hudi")
