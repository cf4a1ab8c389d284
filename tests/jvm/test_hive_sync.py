"""What we register in a catalog is what Hudi's own sync tool makes of the same table; and that tool takes our tables."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

import lakelatch

from ..glue_rows import row, table_in
from .readers import BUNDLE, PROGRAM_S_MAX, PYTHON, alone, require_jvm

KINDS: dict[str, dict[str, Any]] = {
    "hive_style": {"partition_by": ["origin", "day"]},
    "plain": {"partition_by": "origin", "hive_style": False},
    "logs": {"partition_by": (), "type": "merge_on_read"},
}
# Notes of the tool about itself, and of the metastore; without a metadata table the tool for Hive says nothing about one.
NOTES = {"hudi_writer_version", "last_commit_time_sync", "last_commit_completion_time_sync", "transient_lastDdlTime",
         "numFiles", "totalSize", "hudi.metadata-listing-enabled"}  # fmt: skip


class Catalog:
    """Takes what a client of Glue is asked to make."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.partitions: dict[str, list[list[str]]] = {}

    def get_database(self, **_: Any) -> dict[str, Any]:
        return {}

    def get_table(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "EntityNotFoundException"}}, "GetTable")

    def create_table(self, TableInput: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803 - boto3's
        self.made[TableInput["Name"]] = TableInput
        return {}

    def batch_create_partition(self, TableName: str, PartitionInputList: list[Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        self.partitions.setdefault(TableName, []).extend(each["Values"] for each in PartitionInputList)
        return {}


def plain(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition without places, which they spell in another way, and the schema of Spark as a value."""
    stored = {key: value for key, value in definition["StorageDescriptor"].items() if key != "Location"}
    told = {key: value for key, value in definition["Parameters"].items() if key not in NOTES}
    told["spark.sql.sources.schema.part.0"] = json.loads(told["spark.sql.sources.schema.part.0"])
    kept = {key: definition[key] for key in ("Name", "TableType", "PartitionKeys")}
    return kept | {"StorageDescriptor": stored, "Parameters": told}


@pytest.mark.jvm
@pytest.mark.thorough
def test_a_catalog_has_of_us_what_it_has_of_hudis_own_tool(tmp_path: Path) -> None:
    require_jvm()
    ours, asked = Catalog(), {}
    for name, more in KINDS.items():
        with table_in(tmp_path / name, name=name, **more) as table:
            table.upsert([row(0), row(1, "A B"), row(2, "LGA")], missing="null")
            lakelatch.glue.sync(table, "analytics", client=ours)
            asked[name] = {"path": table.url, "keys": list(table.config.partition_fields)}
    (tmp_path / "request.json").write_text(json.dumps(asked))
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("hive_sync.py")), str(BUNDLE), "request.json", "answer.json"],
        cwd=tmp_path, env=alone(PYTHON), capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    theirs = json.loads((tmp_path / "answer.json").read_text())
    for name, told in theirs.items():
        assert told["rows"] == [["k0", "JFK"], ["k1", "A B"], ["k2", "LGA"]]
        assert [each["Name"] for each in told["made"]] == sorted(each for each in ours.made if each.startswith(name))
        for each in told["made"]:
            assert plain(each) == plain(ours.made[each["Name"]])
            assert each["partitions"] == sorted(ours.partitions.get(each["Name"], []))
