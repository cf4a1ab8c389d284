"""A handle that was closed refuses in Spark as it does in plain Python, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch.spark
from lakelatch.errors import LakeLatchError, TableError

ROWS = [("a", "x", 1)], "id string, city string, seen long"
CALLS = {
    "run": lambda _rows: (lambda _txn: None,),
    "read": lambda _rows: (),
    "read_incremental": lambda _rows: ("0",),
    "delete_where": lambda _rows: ("seen = 1",),
    "change_feed": lambda _rows: (),
    "delete_all": lambda _rows: (),
    "sink": lambda _rows: (),
    "update_where": lambda _rows: ("true", {"seen": 2}),
    "execute": lambda _rows: ("20260101000000000",),
    **dict.fromkeys(("cluster", "compact", "compact_logs", "clean", "run_services", "explain"), lambda _rows: ()),
}
METHODS = [name for name in dir(lakelatch.spark.SparkTable) if not name.startswith("_") and name != "close"]
TXN_METHODS = ("insert", "upsert", "delete", "delete_where", "delete_all", "update_where", "merge", "read")


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def test_a_closed_table_refuses(spark, make, tmp_path):
    table = make()
    table.insert(spark.createDataFrame(*ROWS))
    table.table.close()
    before = files(tmp_path)
    rows = spark.createDataFrame(*ROWS)
    for method in METHODS:
        with pytest.raises(TableError, match="was closed; open"):
            getattr(table, method)(*CALLS.get(method, lambda rows: (rows,))(rows))
        assert files(tmp_path) == before, method


def test_a_block_closes_what_open_has_opened_and_no_table_that_it_was_given(spark, make):
    url = make().table.url
    with lakelatch.spark.open(spark, url) as table:
        table.insert(spark.createDataFrame(*ROWS))
    for _ in range(2):
        with pytest.raises(TableError, match="was closed; open"):
            table.read()
        table.close()
    with lakelatch.open(url) as given:
        with lakelatch.spark.open(spark, given) as table:
            assert table.read().count() == 1
        assert given.read().count() == 1
        table.close()
        assert table.read().count() == 1


def test_a_transaction_of_a_job_that_is_over_refuses(spark, make, tmp_path):
    table, kept = make(), []
    rows = spark.createDataFrame(*ROWS)
    table.run(lambda txn: (txn.upsert(rows), kept.append(txn)))
    before = files(tmp_path)
    for method in TXN_METHODS:
        with pytest.raises(LakeLatchError, match="is over"):
            getattr(kept[0], method)(*CALLS.get(method, lambda rows: (rows,))(rows))
        assert files(tmp_path) == before, method
