"""A file some of whose row groups were taken over as bytes is read by Spark's Parquet readers, by hudi-rs and by ourselves."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.occ.check import check

ROWS = 220_000  # three row groups and a small one


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_every_reader_finds_the_rows_of_copied_row_groups(spark: Any, tmp_path: Path, vectorized: str) -> None:
    at = pa.array(range(ROWS))
    rows = pa.table({"id": at.cast(pa.string()), "v": at, "half": at.cast(pa.float64()), "name": pa.repeat("é", ROWS)})
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        table.insert(rows)
        before = table.session.snapshot().file_slices()[0]
        table.upsert(
            [{"id": "70000", "v": -1, "half": 0.5, "name": None}, {"id": "new", "v": -2, "half": None, "name": ""}]
        )
        table.delete([{"id": "5"}])
        now = table.session.snapshot().file_slices()[0]
        assert check(table.session.store, deep=True).sound()
        mine = table.read().to_arrow().sort_by("v")
    assert now.file_id == before.file_id
    meta = pq.read_metadata(tmp_path / "t" / now.path)
    assert meta.num_rows == ROWS
    assert meta.num_row_groups >= 4
    by_rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(tmp_path / "t")).build().read())
    assert by_rust.select(mine.column_names).cast(mine.schema).sort_by("v").equals(mine)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        frame = spark.read.parquet(str(tmp_path / "t" / now.path))
        found = frame.selectExpr(
            "count(*)", "sum(v)", "sum(half)", "count(name)", "count(distinct _hoodie_commit_seqno)"
        )
        assert found.first() == (
            ROWS,
            sum(range(ROWS)) - 5 - 70_000 - 3,
            float(sum(range(ROWS)) - 5 - 70_000) + 0.5,
            ROWS - 1,
            ROWS,
        )
        names = [row[0] for row in frame.select("_hoodie_file_name").distinct().collect()]
        assert names == [now.path.rpartition("/")[2]]
        assert [row.v for row in frame.where("id = '219999' or id = '70000'").orderBy("v").collect()] == [-1, 219_999]
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
