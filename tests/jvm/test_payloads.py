"""Payload classes that are honoured: our write between two of the JVM's leaves for both what the JVM's own would have left."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch

from .payloads import ARCHIVE, TYPES, data, requests, rows_of
from .readers import ask_jvm, by_us, require_jvm

pytestmark = pytest.mark.jvm

HONOURED = ("OverwriteWithLatestAvroPayload", "DefaultHoodieRecordPayload", "EventTimeAvroPayload")
TABLES = [f"{payload}-{version}-{kind}" for payload in HONOURED for version in (8, 9) for kind in TYPES]


@pytest.mark.thorough
def test_the_jvm_goes_on_where_we_have_written_as_if_it_had(tmp_path: Path) -> None:
    require_jvm()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    asked = []
    for name in TABLES:
        path = tmp_path / name / "1"
        with lakelatch.adopt(str(path)) as table:
            table.upsert(pa.Table.from_pylist(rows_of(name, 1)))
        asked += [{"kind": "snapshot", "path": str(path)}, requests(name, path)[2]]
    said = ask_jvm(asked, tmp_path)
    for name, ours, theirs in zip(TABLES, said[0::2], said[1::2], strict=True):
        assert data(ours["rows"]) == answers[name][1], name
        assert data(theirs["rows"]) == data(by_us(tmp_path / name / "1")) == answers[name][2], name
