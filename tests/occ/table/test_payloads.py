"""Tables that JVM Hudi wrote with each of its payload classes: honoured as docs/merging.md says, or refused before a write."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import UnsupportedTableError
from lakelatch.hudi.table.config import PROPERTIES_PATH

from ...jvm.payloads import ARCHIVE, NAMES, PAYLOADS, Row, data, rows_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "merging.md"
COLUMNS = {("COW", "6"): 0, ("COW", "8"): 1, ("COW", "9"): 1, ("MOR", "6"): 2, ("MOR", "8"): 3, ("MOR", "9"): 3}
HONOURED, READ_ONLY, BASE_FILES = "honoured", "read only", "base files only"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("payloads")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def answers(tables: Path) -> dict[str, list[list[Row]]]:
    """What the JVM read after each step."""
    return json.loads((tables / "answers.json").read_text(encoding="utf-8"))


def documented() -> dict[str, list[str]]:
    """The cells of the document's table by payload, setting or column."""
    found = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5:
            found |= dict.fromkeys(re.findall("`(.*?)`", cells[0]), cells[1:])
    return found


def promised(name: str) -> str:
    payload, version, kind = name.split("-")
    return documented()[payload][COLUMNS[kind, version]]


def as_arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def read(folder: Path, **how: bool) -> list[Row]:
    with lakelatch.open(str(folder)) as table:
        return data(table.read(**how).to_arrow().to_pylist())


def files(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_the_document_has_every_payload() -> None:
    assert documented().keys() == PAYLOADS.keys()
    assert {cell for cells in documented().values() for cell in cells} == {HONOURED, READ_ONLY, BASE_FILES}


@pytest.mark.parametrize("name", NAMES)
def test_each_payload_of_hudi_is_honoured_or_refused(
    tables: Path, answers: dict[str, list[list[Row]]], name: str, tmp_path: Path
) -> None:
    first, last = (shutil.copytree(tables / name / step, tmp_path / step) for step in ("1", "3"))
    assert read(first) == answers[name][0]
    # What is there may be read as it is.
    if promised(name) == BASE_FILES:
        with pytest.raises(UnsupportedTableError, match="how to merge them is not known here") as refused:
            read(last)
        assert refused.value.details["feature"] == "merge_rules"
        assert {row["id"] for row in read(last, read_optimized=True)} >= {"k1", "k2"}
    else:
        assert read(last) == answers[name][2]
    # A write of ours does as one of the JVM, or is refused, whichever of both has made it last.
    if promised(name) == HONOURED:
        with lakelatch.adopt(str(first)) as table:
            for step in (1, 2):
                table.upsert(as_arrow(rows_of(name, step)))
                assert read(first) == answers[name][step], step
        with lakelatch.adopt(str(last)) as table:
            again = rows_of(name, 1)
            table.upsert(as_arrow(again))
            assert {row["id"] for row in read(last)} >= {row["id"] for row in again}
        return
    for folder in (first, last):
        before = files(folder)
        with pytest.raises(UnsupportedTableError, match=r"Write it with Hudi|Write the table with Hudi|Upgrade it"):
            lakelatch.adopt(str(folder))
        assert files(folder) == before


REFUSED = [name for name in NAMES if promised(name) == BASE_FILES and "-6-" not in name]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_table_that_was_adopted_before_is_refused_at_the_next_write(
    tables: Path, name: str, kind: str, tmp_path: Path
) -> None:
    """The properties that the JVM wrote, on a table of ours."""
    theirs = (tables / name / "1" / PROPERTIES_PATH).read_text(encoding="utf-8").splitlines()
    wanted = [
        line for line in theirs if re.match(r"hoodie\.(record\.merge|table\.legacy|compaction|table\.partial)", line)
    ]
    folder = tmp_path / "t"
    row = {"id": "k1", "ts": 9, "a": "gone", "Op": "D"}
    with lakelatch.create(
        str(folder), record_key="id", ordering_field="ts", type=kind, table_version=int(name.split("-")[1])
    ) as table:
        table.upsert([row | {"Op": "I"}])
        with (folder / PROPERTIES_PATH).open("a", encoding="utf-8") as properties:
            properties.write("\n".join(wanted) + "\n")
        before = files(folder)
        for write in (
            lambda: table.upsert([row]),
            lambda: table.insert([row | {"id": "k2"}]),
            lambda: table.delete([row]),
            lambda: table.merge([row]).when_matched(update="all").run(),
            table.compact if kind == "merge_on_read" else table.cluster,
        ):
            with pytest.raises(UnsupportedTableError, match="how to merge its rows is not known here"):
                write()
        assert files(folder) == before
