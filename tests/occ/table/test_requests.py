"""The requests of a commit and of a read are those that docs/storage.md tells."""

from __future__ import annotations

import re
from pathlib import Path

from lakelatch.testing.faults import Call

DOCUMENT = Path(__file__).parents[3] / "docs/storage.md"
VERBS = {"folders": "list", "put_if_absent": "put", "publish": "put"}
NO_REQUEST = {"create", "settled"}  # a temporary file on this host
WORDS = (
    (r"\.hoodie/hoodie\.properties", "properties"),
    (r"\.hoodie/\.lakelatch/log/\d+/\d+", "log slot"),
    (r"\.hoodie/\.lakelatch/log", "log epochs"),
    (r"\.hoodie/\.heartbeat/\d+", "heartbeat"),
    (r"\.hoodie/\.temp/\d+", "markers"),
    (r"\.hoodie/\.temp/\d+/.*", "marker"),
    (r"\.hoodie/timeline", "timeline"),
    (r"\.hoodie/timeline/\d+\.commit\.requested", "requested"),
    (r"\.hoodie/timeline/\d+\.inflight", "inflight"),
    (r"\.hoodie/timeline/\d+_\d+\.commit", "instant"),
    (r"\.hoodie/timeline/history/.*", "history"),
    (r"part=\w+/\.hoodie_partition_metadata", "partition metadata"),
    (r"part=\w+/.*\.parquet", "data file"),
    ("", "data files"),
)


def told() -> dict[str, list[str]]:
    """The requests of each part of the table in the document."""
    found: dict[str, list[str]] = {}
    part, text = "", DOCUMENT.read_text().partition("## Every request\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [each.strip() for each in line.split("|")]
        if len(cells) > 3 and cells[2] not in ("Request", "---"):
            part = cells[1] or part
            found.setdefault(part, []).extend(cells[2].split(", "))
    return found


def said(calls: list[Call]) -> list[str]:
    return [
        f"{VERBS.get(call.op, call.op)} {next(word for form, word in WORDS if re.fullmatch(form, call.path))}"
        for call in calls
        if call.op not in NO_REQUEST
    ]


def test_a_commit_makes_the_requests_that_the_document_tells(make_world):
    writer = make_world(lock="none://").writer("A")
    writer.insert("a", "first")
    writer.store.reset()
    writer.insert("a", "second")
    parts = told()
    assert said(writer.store.calls) == [each for part in ("begin", "write", "commit", "after") for each in parts[part]]


def test_a_read_makes_the_requests_that_the_document_tells(make_world):
    writer = make_world(lock="none://").writer("A")
    writer.insert("a", "first")
    writer.store.reset()
    writer.table.view()
    assert said(writer.store.calls) == told()["read"]
