"""`hoodie.properties` that are torn, or say what nobody can mean: every door names file and property, and writes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakelatch
from lakelatch.cli.app import app
from lakelatch.errors import CorruptTableError
from lakelatch.hudi.table.config import PROPERTIES_PATH

from ...thorough import crossed

FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.populate.meta.fields",
    "hoodie.table.multiple.base.file.formats.enable",
    "hoodie.table.cdc.enabled",
    "hoodie.partition.metafile.use.base.format",
    "hoodie.bootstrap.index.enable",
    "lakelatch.streams",
)
# What is appended to the file, and what is said of it; the last line of one key counts.
WRONG = {f"{key}={value}": key for key in FLAGS for value in ("yes", "")} | {
    "hoodie.datasource.write.hive_style_partitioning=1": "neither true nor false",
    "hoodie.datasource.write.hive_style_partitioning=true ": "'true ', which is neither true nor false",
    "hoodie.table.version=8.0": "hoodie.table.version=8.0, which is no number",
    "hoodie.table.version=٨": "which is no number",
    "hoodie.table.initial.version=eight": "hoodie.table.initial.version",
    "hoodie.timeline.layout.version=-2": "hoodie.timeline.layout.version",
    "hoodie.table.type=merge_on_read": "hoodie.table.type=merge_on_read",
    "hoodie.table.timeline.timezone=utc": "hoodie.table.timeline.timezone=utc",
    "hoodie.table.precombine.field=tss": "hoodie.table.precombine.field=tss, but the table has no column tss",
    "hoodie.table.ordering.fields=ts,tss": "hoodie.table.ordering.fields=ts,tss, but the table has no column tss",
    "hoodie.table.recordkey.fields=ID": "hoodie.table.recordkey.fields=ID, but the table has no column ID; it has id, city, ts",
    "hoodie.table.partition.fields=town": "hoodie.table.partition.fields=town, but the table has no column town",
}
# What only a writer needs to know.
UNWRITABLE = {
    "hoodie.table.keygenerator.type=NON_PARTITION": "key generator is NON_PARTITION, but the table is partitioned by city",
    "hoodie.table.partition.fields=city,ts": "key generator is SIMPLE, but there are 2 partition fields",
}
ROW = {"id": "1", "city": "b", "ts": 9}
CLOSED: dict[str, Callable[[str], Any]] = {
    "open": lambda url: lakelatch.open(url).close(),
    "create": lambda url: lakelatch.create(url, record_key="id", exist_ok=True).close(),
    "adopt": lambda url: lakelatch.adopt(url).close(),
}
WRITES: dict[str, Callable[[lakelatch.Table], Any]] = {
    "upsert": lambda t: t.upsert([ROW]),
    "delete": lambda t: t.delete([{"id": "1"}]),
    "delete_where": lambda t: t.delete_where("ts = 1"),
    "update_where": lambda t: t.update_where("ts = 1", set={"ts": 2}),
    "overwrite": lambda t: t.overwrite([ROW]),
    "transaction": lambda t: t.transaction("insert"),
    "cluster": lambda t: t.cluster(),
    "compact": lambda t: t.compact(),
    "add_column": lambda t: t.add_column("x", "int64"),
}
TYPES = ("copy_on_write", "merge_on_read")
COMMANDS = ("read", "describe", "doctor", "adopt", "timeline")


@pytest.fixture(scope="module", params=TYPES)
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with an update, in a log file where there are some."""
    folder = tmp_path_factory.mktemp("sound") / "t"
    with lakelatch.create(
        str(folder), record_key="id", partition_by="city", ordering_field="ts", type=request.param
    ) as table:
        table.insert(pa.table({"id": ["1", "2"], "city": ["a", "a"], "ts": [1, 1]}))
        table.upsert([{"id": "1", "city": "a", "ts": 2}])
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "t")


def append(folder: Path, line: str) -> None:
    with (folder / PROPERTIES_PATH).open("a", encoding="utf-8") as file:
        # As Java writes a character that is not Latin-1.
        file.write(line.encode("ascii", "backslashreplace").decode() + "\n")


def files(folder: Path) -> dict[str, bytes]:
    there = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    return {name: body for name, body in there.items() if ".hoodie/.lakelatch/beats" not in name}


def every_door_says(folder: Path, said: str) -> None:
    before = files(folder)
    for name, door in CLOSED.items():
        with pytest.raises(CorruptTableError) as error:
            door(str(folder))
        assert said in str(error.value), name
        assert PROPERTIES_PATH in str(error.value), name
        assert "hoodie.properties.backup" in str(error.value), name
    for command in COMMANDS:
        result = CliRunner().invoke(app, [command, str(folder)])
        assert result.exit_code not in (0, 3), (command, result.output)
        assert said in " ".join(result.output.split()), command
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert result.exit_code == 1, result.output
    assert "properties" in result.output
    assert files(folder) == before


@pytest.mark.parametrize(("line", "sound"), crossed(WRONG, TYPES), indirect=["sound"])
def test_a_value_that_nobody_can_mean_is_named_at_every_door(folder: Path, line: str) -> None:
    append(folder, line)
    every_door_says(folder, WRONG[line])


@pytest.mark.parametrize(("body", "said"), [(b"", "is empty"), (b"\n", "is empty"), (None, "middle of a line")])
def test_a_torn_file_is_named_at_every_door(folder: Path, body: bytes | None, said: str) -> None:
    path = folder / PROPERTIES_PATH
    path.write_bytes(path.read_bytes()[:-5] if body is None else body)
    every_door_says(folder, said)


@pytest.mark.parametrize(("line", "sound"), crossed([*WRONG, *UNWRITABLE], TYPES), indirect=["sound"])
def test_an_open_handle_refuses_before_it_writes(folder: Path, line: str) -> None:
    with lakelatch.open(str(folder)) as table:
        append(folder, line)
        before = files(folder)
        for name, write in WRITES.items():
            if name == ("cluster" if table.config.merge_on_read else "compact"):
                continue
            with pytest.raises(CorruptTableError) as error:
                write(table)
            assert (WRONG | UNWRITABLE)[line] in str(error.value), name
        assert files(folder) == before


@pytest.mark.parametrize("line", list(UNWRITABLE))
def test_a_table_whose_keys_contradict_each_other_is_not_adopted(folder: Path, line: str) -> None:
    shutil.rmtree(folder / ".hoodie/.lakelatch")
    append(folder, line)
    with pytest.raises(CorruptTableError) as error:
        lakelatch.adopt(str(folder))
    assert UNWRITABLE[line] in str(error.value)
    with lakelatch.open(str(folder)) as table:
        assert table.read().count() == 2


def test_a_table_of_others_with_an_ordering_field_that_it_lacks(folder: Path) -> None:
    """Hudi before 1.0 writes `ts` where nobody names a field, so only what has to be ordered is refused."""
    shutil.rmtree(folder / ".hoodie/.lakelatch")
    append(folder, "hoodie.table.precombine.field=tss")
    with pytest.raises(CorruptTableError, match="no column tss"):
        lakelatch.adopt(str(folder))
    with lakelatch.open(str(folder)) as table:
        assert table.read(read_optimized=True).count() == 2
        if not table.config.merge_on_read:
            assert table.read().count() == 2
            return
        for read in (table.read().to_arrow, table.read().count, table.read(columns=["id"]).to_arrow):
            with pytest.raises(CorruptTableError, match=r"precombine\.field=tss, but the table has no column tss"):
                read()


@pytest.mark.parametrize("text", ["TRUE", "True", "true"])
def test_true_in_any_case_is_true(folder: Path, text: str) -> None:
    append(folder, f"hoodie.datasource.write.hive_style_partitioning={text}")
    with lakelatch.open(str(folder)) as table:
        table.upsert([{"id": "1", "city": "a", "ts": 9}])
        assert sorted(table.read(columns=["id", "ts"]).to_arrow()["ts"].to_pylist()) == [1, 9]
