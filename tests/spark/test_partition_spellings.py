"""Every spelling of a partition is read once: by Spark, by plain Python, with and without a filter."""

import string
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelatch
import lakelatch.spark
from lakelatch.errors import InputError
from lakelatch.hudi.table.partition_path import partition_path
from lakelatch.spark.reading.slice_rows import rows_of

from ..thorough import some
from .frames import keys_of, session_settings

# Alone, between letters and at the end; Hadoop's paths and globs have a meaning for many of these.
ASCII = [text for c in string.printable for text in (c, f"a{c}b", f"ab{c}")]
AWKWARD = [
    "%",
    "%2",
    "%41",
    "%7B",
    "a%2Fb",
    "{y}",
    "{a,b}",
    "}{",
    "[a-c]",
    "a\\b",
    "\\u0041",
    "$1",
    "~",
    "#",
    "a  b",
    " ",
]
AWKWARD += [
    "_hidden",
    "_spark_metadata",
    "a=b",
    "p=a",
    "Zürich",
    "e\u0301",
    "東京",
    "😀",
    "a😀}",
    "\x7f",
    "null",
    "NULL",
]
VALUES = [*dict.fromkeys([*ASCII, *AWKWARD]), "", None]


def table_of(folder: Path, *, hive: bool, encode: bool) -> lakelatch.Table:
    made = lakelatch.create(str(folder), record_key="id", partition_by="p", hive_style=hive)
    if encode:
        return made
    made.close()  # as an engine has made it: we always encode
    file = folder / ".hoodie" / "hoodie.properties"
    encoded = file.read_bytes()
    file.write_bytes(encoded.replace(b"partitionpath.urlencode=true", b"partitionpath.urlencode=false"))
    assert file.read_bytes() != encoded
    return lakelatch.open(str(folder))


def storable(values: Sequence[str | None], table: lakelatch.Table) -> list[str | None]:
    """Those that the table takes: without encoding some are no folder."""

    def taken(value: str | None) -> bool:
        try:
            return bool(partition_path([value], table.config))
        except InputError:
            return False

    return [value for value in values if taken(value)]


def filled(table: lakelatch.Table, values: Sequence[str | None]) -> list[tuple[str, str | None]]:
    rows = [(str(number), value) for number, value in enumerate(values)]
    keys, places = zip(*rows, strict=True)
    with table.transaction("insert") as txn:
        txn.upsert(pa.table({"id": pa.array(keys), "p": pa.array(places, pa.string())}))
    return rows


def held(rows: Any) -> list[tuple[str, str | None]]:
    found = rows.to_pylist() if isinstance(rows, pa.Table) else [row.asDict() for row in rows.collect()]
    return sorted(((row["id"], row["p"]) for row in found), key=lambda row: int(row[0]))


@pytest.mark.thorough
@pytest.mark.parametrize(("hive", "encode"), some(product([True, False], repeat=2), 2))
def test_every_spelling_is_read_once(spark: Any, tmp_path: Path, hive: bool, encode: bool) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    with table_of(tmp_path / "t", hive=hive, encode=encode) as table:
        values = storable(VALUES, table)
        assert len(values) > 0.9 * len(VALUES) if encode else len(values) > 0.6 * len(VALUES)
        rows = filled(table, values)
        assert held(table.read().to_arrow()) == rows
        ours = lakelatch.spark.open(spark, table)
        assert held(ours.read()) == rows
        asked = [row for row in rows if row[1] in (*AWKWARD, "", None)]
        found = [ours.read(filter=F.col("p").isNull() if p is None else F.col("p") == p) for _, p in asked]
        assert keys_of(found) == [[key] for key, _ in asked]
        # A null and an empty text share a folder, and with it a file.
        assert {len(each.inputFiles()) for each in found} == {1}
        gone = [row for row in rows if row[1] in AWKWARD]
        ours.delete_where(F.col("p").isin([row[1] for row in gone]))
        assert held(ours.read()) == [row for row in rows if row not in gone]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    root = tmp_path_factory.mktemp("spellings")
    numbers = iter(range(10_000))
    return lambda: root / str(next(numbers))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.none() | st.text(st.sampled_from("a}{[]*?\\%# é😀=,"), max_size=4), min_size=1, max_size=4, unique=True
    ),
    st.booleans(),
    st.booleans(),
)
def test_spellings_do_not_disturb_each_other(
    spark: Any, folder: Callable[[], Path], values: list[str | None], hive: bool, encode: bool
) -> None:
    with table_of(folder(), hive=hive, encode=encode) as table:
        values = storable(values, table)
        if values:
            rows = filled(table, values)
            assert held(lakelatch.spark.open(spark, table).read()) == rows == held(table.read().to_arrow())


def test_a_file_that_goes_before_it_is_scanned_is_named(make: Callable[..., Any], spark: Any, tmp_path: Path) -> None:
    table = make()
    table.insert(spark.createDataFrame([("1", "a"), ("2", "b")], "id string, city string"))
    view = table.table.view()
    slices = view.snapshot.file_slices()
    (tmp_path / "t" / slices[1].path).unlink()
    with pytest.raises(lakelatch.errors.CorruptTableError, match=slices[1].path):
        rows_of(spark, table.table, slices, view.arrow_schema())


def test_a_file_that_is_gone_or_damaged_is_none_without_rows(
    make: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    """Whatever the session does with such files of others."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    table = make()
    table.insert(spark.createDataFrame([("1", "a"), ("2", "b")], "id string, city string"))
    rows = table.read()
    file = tmp_path / "t" / table.table.snapshot().file_slices()[1].path
    with session_settings(spark, **{"files.ignoreCorruptFiles": "true", "files.ignoreMissingFiles": "true"}):
        for spoil in (lambda: file.write_bytes(b"no such format"), file.unlink):
            spoil()
            with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
                rows.collect()
            with pytest.raises(
                (PySparkException, Py4JJavaError, lakelatch.errors.StorageError, lakelatch.CorruptTableError)
            ):
                table.delete_where("id > ''")


def test_a_folder_that_spark_never_reads_is_refused(tmp_path: Path) -> None:
    with (
        table_of(tmp_path / "t", hive=False, encode=True) as table,
        pytest.raises(InputError, match="Spark keeps for itself"),
    ):
        filled(table, ["_spark_metadata"])


def test_the_sessions_settings_stay_as_they_are(make: Callable[..., Any], spark: Any) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = {row["key"]: row["value"] for row in spark.sql("set").collect()}
    table = make()
    table.upsert(spark.createDataFrame([(str(n), str(n)) for n in range(40)], "id string, city string"))
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    rows = table.read()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs, "a job only to look for files"
    assert rows.count() == 40
    assert {row["key"]: row["value"] for row in spark.sql("set").collect()} == before
    assert spark.conf.get(name) == "32"
