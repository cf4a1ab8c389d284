"""What a commit and a read ask of the store is the table in docs/protocol.md, call by call."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import lakelatch
from lakelatch.occ.table.table import Table
from lakelatch.storage import open_store
from lakelatch.testing.faults import Call, FaultStore

PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"
ROW = re.compile(r"^\| `(\w+)` \| (\S.*?) \| (\d+) \| (\d+) \|", re.MULTILINE)


def told(column: int) -> Counter[tuple[str, str]]:
    """The calls that the document tells: of a commit (0) or a read (1)."""
    rows = ROW.findall(PROTOCOL.read_text(encoding="utf-8"))
    return +Counter({(op, what.strip("`")): int(counts[column]) for op, what, *counts in rows})


def made(calls: list[Call]) -> Counter[tuple[str, str]]:
    return Counter((call.op, _plain(call.path)) for call in calls)


def _plain(path: str) -> str:
    """As the document names it."""
    path = re.sub(r"^\.hoodie/(\.lakelatch/)?\.?", "", path)
    path = re.sub(r"\d{17}_\d{17}\.commit", "T_C.commit", path)
    path = re.sub(r"^log/\d+/\d+$", "log/E/S", path)
    path = re.sub(r"\S+\.marker\.\w+$", "temp/T/marker", path)
    path = re.sub(r"[0-9a-f-]{36}\S*\.parquet$", "F", path)
    return re.sub(r"\d{17}", "T", path) or "the table"


def test_a_commit_and_a_read_ask_of_the_store_what_the_document_tells(folder: Path):
    url = str(folder / "table")
    with lakelatch.create(url, record_key="id", partition_by="p") as first:
        first.upsert([{"id": "0", "p": "a"}])
    store = FaultStore(open_store(url))
    with Table(store, writer="w") as table:
        for _ in range(2):  # the handle is warm
            table.upsert([{"id": "0", "p": "a"}])
        store.reset()
        store.calls.clear()
        table.insert([{"id": "1", "p": "a"}])
        assert made(store.calls) == told(0)
        store.calls.clear()
        assert table.read().to_arrow().num_rows == 2
        assert made(store.calls) == told(1)
