"""A table in Glue's Data Catalog is what Hudi's own sync tool would make of it, and the second sync changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from pyspark.sql.types import StructType

import lakelatch
from lakelatch import glue
from lakelatch.hudi.table import META_COLUMNS

from .command_line import Runner
from .glue_rows import row, table_in
from .servers import KEY
from .servers.moto_server import moto

HIVE = [
    *((name, "string") for name in META_COLUMNS),
    ("id", "string"), ("flag", "boolean"), ("n", "int"), ("big", "bigint"), ("f", "float"), ("d", "double"), ("raw", "binary"),
    ("at", "timestamp"), ("price", "decimal(12,2)"), ("tags", "array<string>"), ("odds", "map<string,array<bigint>>"),
    ("stop", "struct<city:string,legs:array<struct<km:double>>>"),
]  # fmt: skip


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def client(port: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {
        "AWS_ENDPOINT_URL_GLUE": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("glue")
    for each in client.get_databases()["DatabaseList"]:
        client.delete_database(Name=each["Name"])
    client.create_database(DatabaseInput={"Name": "analytics"})
    return client


def partitions(client: Any, name: str) -> dict[tuple[str, ...], Any]:
    found = client.get_partitions(DatabaseName="analytics", TableName=name)["Partitions"]
    return {tuple(each["Values"]): each["StorageDescriptor"] for each in found}


def the_table(client: Any, name: str) -> Any:
    return client.get_table(DatabaseName="analytics", Name=name)["Table"]


def test_a_table_is_registered_as_hudis_tool_does_it_and_only_once(client, tmp_path):
    with table_in(tmp_path / "t") as table:
        table.upsert([row(0), row(1, "A B/é😀"), row(2, None)], missing="null")
        told = glue.sync(table, "analytics", dry_run=True)
        assert [(each.name, each.change, len(each.added)) for each in told] == [("analytics.flights", "created", 3)]
        assert not client.get_tables(DatabaseName="analytics")["TableList"]
        assert glue.sync(table, "Analytics") == told
        found = the_table(client, "flights")
        stored, place = found["StorageDescriptor"], table.url
        assert [(each["Name"], each["Type"]) for each in stored["Columns"]] == HIVE
        assert [(each["Name"], each["Type"]) for each in found["PartitionKeys"]] == [
            ("origin", "string"),
            ("day", "date"),
        ]
        assert (found["TableType"], stored["Location"]) == ("EXTERNAL_TABLE", place)
        assert stored["InputFormat"] == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
        assert stored["SerdeInfo"]["Parameters"] == {
            "serialization.format": "1", "path": place, "hoodie.query.as.ro.table": "false",
        }  # fmt: skip
        parameters = found["Parameters"]
        assert parameters["spark.sql.sources.provider"] == "hudi"
        assert parameters["hudi.metadata-listing-enabled"] == "FALSE"
        count = int(parameters["spark.sql.sources.schema.numParts"])
        spark = json.loads("".join(parameters[f"spark.sql.sources.schema.part.{n}"] for n in range(count)))
        assert [(each.name, each.dataType.simpleString()) for each in StructType.fromJson(spark)] == [
            *HIVE, ("origin", "string"), ("day", "date"),
        ]  # fmt: skip
        assert [parameters[f"spark.sql.sources.schema.partCol.{n}"] for n in range(2)] == ["origin", "day"]
        there = partitions(client, "flights")
        assert sorted(there) == [
            ("A B/é😀", "2026-01-02"), ("JFK", "2026-01-01"), ("__HIVE_DEFAULT_PARTITION__", "2026-01-03"),
        ]  # fmt: skip
        assert there["JFK", "2026-01-01"]["Location"] == f"{place}/origin=JFK/day=2026-01-01"
        (again,) = glue.sync(table, "analytics")
        assert again == glue.Synced("analytics.flights", "none", (), (), ())


def test_columns_and_partitions_follow_the_table_and_what_others_noted_stays(client, tmp_path):
    with table_in(tmp_path / "t", partition_by="origin") as table:
        table.upsert([row(0, "JFK"), row(1, "LGA")], missing="null")
        glue.sync(table, "analytics")
        old = the_table(client, "flights")
        noted = {key: old[key] for key in ("Name", "PartitionKeys", "StorageDescriptor", "Parameters")}
        noted["StorageDescriptor"]["Columns"][5]["Comment"] = "the key"
        noted |= {"Owner": "ann", "Description": "all flights", "Parameters": noted["Parameters"] | {"team": "air"}}
        client.update_table(DatabaseName="analytics", TableInput=noted)
        table.add_column("delay", "bigint")
        table.delete_where("origin = 'LGA'")
        table.overwrite([], partitions=["origin=LGA"])
        table.upsert([row(3, "EWR")], missing="null")
        (told,) = glue.sync(table, "analytics")
        assert (told.change, told.added, told.changed) == ("changed", (("EWR",),), (("JFK",),))
        assert told.dropped == (() if "origin=LGA" in table.snapshot().partitions() else (("LGA",),))
        now = the_table(client, "flights")
        assert (now["Owner"], now["Description"], now["Parameters"]["team"]) == ("ann", "all flights", "air")
        columns = now["StorageDescriptor"]["Columns"]
        assert columns[5] == {"Name": "id", "Type": "string", "Comment": "the key"}
        assert {each["Columns"][-1]["Name"] for each in partitions(client, "flights").values()} == {"delay"}
        table.delete_all()
        assert glue.sync(table, "analytics")[0].change == "none"


def test_a_merge_on_read_table_has_three_names(client, tmp_path):
    with table_in(tmp_path / "t", partition_by=(), type="merge_on_read") as table:
        table.upsert([row(0)], missing="null")
        names = [each.name.partition(".")[2] for each in glue.sync(table, "analytics", name="f_ro")]
        assert names == ["f_ro", "f_ro_rt", "f_ro_ro"]
        realtime = ["Realtime" in the_table(client, each)["StorageDescriptor"]["InputFormat"] for each in names]
        assert realtime == [True, True, False]
        optimized = [
            the_table(client, each)["StorageDescriptor"]["SerdeInfo"]["Parameters"]["hoodie.query.as.ro.table"]
            for each in names
        ]
        assert optimized == ["false", "false", "true"]


def test_more_partitions_than_a_request_takes(client, tmp_path):
    with table_in(tmp_path / "t", partition_by="n") as table:
        table.upsert([row(0) | {"n": n, "id": f"k{n}"} for n in range(120)], missing="null")
        assert len(glue.sync(table, "analytics")[0].added) == 120
        assert len(partitions(client, "flights")) == 120
        table.overwrite_table([row(0) | {"n": 7}], missing="null")
        assert len(glue.sync(table, "analytics")[0].dropped) == 119
        assert list(partitions(client, "flights")) == [("7",)]


def test_what_is_no_table_is_refused_by_name(client):
    with pytest.raises(lakelatch.InputError, match="table='trips'"):
        glue.sync("trips", "analytics", client=client)


def test_another_table_of_the_name_is_refused_and_stays(client, tmp_path):
    with table_in(tmp_path / "one") as one, table_in(tmp_path / "other") as other:
        glue.sync(one, "analytics")
        before = the_table(client, "flights")
        with pytest.raises(lakelatch.InputError, match="nothing was changed"):
            glue.sync(other, "analytics")
        assert the_table(client, "flights") == before
        with pytest.raises(lakelatch.InputError, match="aws glue create-database"):
            glue.sync(one, "nowhere")


def test_a_request_that_fails_is_an_error_of_ours_and_the_next_sync_does_the_rest(client, tmp_path, monkeypatch):
    with table_in(tmp_path / "t") as table:
        table.upsert([row(0), row(1)], missing="null")
        call = client._make_api_call

        def cut(name: str, arguments: Any) -> Any:
            if name == "BatchCreatePartition":
                raise EndpointConnectionError(endpoint_url="there")
            return call(name, arguments)

        monkeypatch.setattr(client, "_make_api_call", cut)
        with pytest.raises(lakelatch.StorageError, match="the next sync makes the rest"):
            glue.sync(table, "analytics", client=client)
        monkeypatch.undo()
        (told,) = glue.sync(table, "analytics", client=client)
        assert (told.change, len(told.added)) == ("none", 2)


def test_the_command_says_what_it_did(client, tmp_path):
    from lakelatch.cli.app import app

    table_in(tmp_path / "t").close()
    said = [
        Runner().invoke(app, ["sync", "glue", str(tmp_path / "t"), "analytics", *more]).stdout.strip()
        for more in (["--dry-run"], [], ["--json"])
    ]
    assert said[:2] == ["analytics.flights: would be created", "analytics.flights: created"]
    assert json.loads(said[2])["tables"] == [
        {"name": "analytics.flights", "change": "none", "added": [], "changed": [], "dropped": []}
    ]
