"""Tasks announce all of their files in one request to a server; what opens it stands in no property of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.occ.liveness import MARKERS, list_markers
from lakelatch.server import Embedded
from lakelatch.spark import JobSizes
from lakelatch.spark.tasks import JOB_TASK
from lakelatch.testing.faults import On, Pause

from .driver import DriverStore

CITIES = [f"c{n:02}" for n in range(12)]


def frame(spark: Any, v: int) -> Any:
    return spark.createDataFrame(pd.DataFrame({"id": [f"{c}-{n}" for c in CITIES for n in range(3)],
                                               "city": [c for c in CITIES for _ in range(3)], "v": v}))  # fmt: skip


@pytest.mark.parametrize("verb", ["insert", "upsert", "delete_where", "update_where"])
def test_tasks_announce_their_files_to_the_server_in_one_request_each(spark, tmp_path: Path, verb: str):
    url = str(tmp_path / "t")
    sizes = JobSizes(small_rows=0, tasks_per_core=1)
    with lakelatch.create(url, record_key="id", partition_by="city") as made:
        lakelatch.spark.open(spark, made, sizes=sizes).upsert(frame(spark, 1))
    served, seen, told = Embedded(), [], []
    with lakelatch.open(url, markers=served) as table:
        store = DriverStore(table.store)
        handle = lakelatch.occ.table.Table(store)
        handle.session.markers = served
        with handle:

            def look() -> None:
                """At the commit: what the tasks have left."""
                for instant in table.store.folders(MARKERS):
                    seen.extend(list_markers(table.store, instant))

            store.add(Pause(On("list", MARKERS), look, forever=True))
            spark_table = lakelatch.spark.open(spark, handle, sizes=sizes)
            property_of = spark.sparkContext.setLocalProperty

            def kept(name: str, value: Any) -> None:
                told.append((name, value))
                property_of(name, value)

            spark.sparkContext.setLocalProperty = kept
            try:
                if verb in ("insert", "upsert"):
                    getattr(spark_table, verb)(frame(spark, 2))
                elif verb == "delete_where":
                    spark_table.delete_where("v = 1")
                else:
                    spark_table.update_where("v = 1", {"v": 5})
            finally:
                del spark.sparkContext.setLocalProperty
            assert {each.path.partition("/")[0] for each in seen} == {f"city={c}" for c in CITIES}
            assert all(each.list for each in seen), "none was put directly"
            assert len({each.list for each in seen}) <= 4, "a list for each request, at most"
            marker_client = handle.session.marker_client
            assert marker_client is not None
            assert not any(marker_client.ticket in str(value) for _, value in told)
            if verb in ("insert", "upsert"):
                assert JOB_TASK in {name for name, _ in told} or verb == "insert"
        assert not table.store.folders(MARKERS)
