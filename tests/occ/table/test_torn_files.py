"""A base file that is torn is told by its name, by whoever needs it, and nothing lands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import CorruptTableError

CALLS: dict[str, Callable[[lakelatch.Table], Any]] = {
    "read": lambda t: t.read().to_arrow(),
    "read where": lambda t: t.read(where="v = 1").to_arrow(),
    "count": lambda t: t.read().count(),
    "changes": lambda t: t.changes(after=None).to_arrow(),
    "upsert": lambda t: t.upsert([{"id": "k1", "v": 2}]),
    "delete": lambda t: t.delete([{"id": "k1"}]),
    "delete_where": lambda t: t.delete_where("v = 1"),
    "update_where": lambda t: t.update_where("v = 1", set={"v": 2}),
    "cluster": lambda t: t.cluster(),
    "compact": lambda t: t.compact(),
}


def torn(folder: Path, size: int, **settings: Any) -> str:
    """A table of two base files, the first of which lacks its end; the file's name."""
    with lakelatch.create(str(folder), record_key="id", **settings) as table:
        for first in (0, 10):
            table.insert(pa.table({"id": [f"k{n}" for n in range(first, first + 10)], "v": list(range(10))}))
        if settings:
            table.upsert([{"id": f"k{n}", "v": 1} for n in range(20)])
    file = min(each for each in folder.glob("*.parquet") if each.stat().st_size)
    file.write_bytes(file.read_bytes()[:size])
    return file.name


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("size", [0, -20])
def test_a_torn_file_is_named_and_nothing_lands(tmp_path: Path, kind: str, size: int) -> None:
    name = torn(tmp_path / "t", size, **({"type": kind} if kind == "merge_on_read" else {}))
    for what, call in CALLS.items():
        if what == ("cluster" if kind == "merge_on_read" else "compact"):
            continue
        with lakelatch.open(str(tmp_path / "t")) as table:
            commits = len(table.commits())
            with pytest.raises(CorruptTableError, match="is no whole Parquet file") as told:
                call(table)
            assert name in str(told.value), what
            assert told.value.details["table"] == table.url
            assert len(table.commits()) == commits, what
            assert table.plans() == [], what
