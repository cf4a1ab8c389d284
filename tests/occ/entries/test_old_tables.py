"""Tables of an earlier version: what they hold is what this version writes for the same content, and it works on them."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

import lakelatch
from lakelatch.hudi.files.log_blocks import Block, read_blocks
from lakelatch.hudi.files.log_encoding import _block
from lakelatch.hudi.timeline.commit_metadata import decode_commit, encode_commit
from lakelatch.hudi.timeline.instant import COMMIT_ACTIONS, parse
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.entries import Begin, Commit, decode, encode
from lakelatch.occ.entries.service_content import instant_body, plan_body
from lakelatch.occ.log.publisher import metadata_of
from lakelatch.storage.local.store import LocalStore

OLD = Path(__file__).parents[2] / "data" / "old_tables"
_ALL = {("a", "𝒜😀"): 2, ("e", "𝒜😀"): 2, ("😀", "𝒜😀"): 1, ("c", "2"): 3, ("x", "2"): 6, ("f", "3"): 1}
ROWS = {"cow": _ALL | {("d", "2"): 1, ("g", "3"): 1}, "mor": _ALL | {("g", "3"): 1}, "buckets": _ALL}


@pytest.fixture(params=sorted(ROWS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(OLD / f"{request.param}.zip") as packed:
        packed.extractall(tmp_path / request.param)
    return tmp_path / request.param


def entries(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / ".hoodie/.lakelatch/log").glob("*/*"))}


def test_the_entries_of_an_earlier_version_keep_their_bytes(folder: Path) -> None:
    bodies = entries(folder)
    assert len(bodies) > 25
    for name, body in bodies.items():
        raw = json.loads(body)
        assert encode(decode(body, name), raw["epoch"], raw["slot"], raw["id"]) == body


def test_the_instants_of_an_earlier_version_are_what_its_entries_say_today(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, timeline, compared = LocalStore(str(folder)), folder / ".hoodie/timeline", set[str]()
    for name, body in entries(folder).items():
        entry = decode(body, name)
        if isinstance(entry, Begin) and entry.plan is not None:
            body = (timeline / f"{entry.instant}.{entry.action}.requested").read_bytes()
            # A plan names its files by their place, which was another folder then.
            found = re.search(rb"file://[^\0]*?/t(?=/)", body)
            at = found[0].decode() if found else ""
            monkeypatch.setattr(store, "uri", lambda path, at=at: f"{at}/{path}")
            assert plan_body(store, entry) == body, entry.action
            compared.add(entry.action)
        elif isinstance(entry, Commit) and (path := timeline / entry.shown).exists():
            if entry.action in COMMIT_ACTIONS:
                written = encode_commit(metadata_of(store, entry), replace=entry.action == "replacecommit")
            else:
                written = instant_body(store, entry)
            assert written == path.read_bytes(), entry.shown
            compared.add(path.name)
    completed = {path.name for path in timeline.glob("*_*")}
    assert completed <= compared
    assert len(compared) > 10


def test_commit_metadata_of_an_earlier_version_keeps_its_bytes(folder: Path) -> None:
    for path in (folder / ".hoodie/timeline").glob("*_*commit"):
        instant = parse(path.name, layout=2)
        assert instant is not None
        read = decode_commit(path.read_bytes(), name=path.name, layout=2)
        assert encode_commit(read, replace=instant.action == "replacecommit") == path.read_bytes()


def test_the_log_files_of_an_earlier_version_keep_their_bytes(folder: Path) -> None:
    for path in folder.rglob(".*.log.*"):
        body = path.read_bytes()
        blocks = [each for each in read_blocks(body, path.name) if isinstance(each, Block)]
        assert b"".join(_block(each.kind, each.header, each.content) for each in blocks) == body


def test_a_writer_of_today_goes_on_with_a_table_of_an_earlier_version(folder: Path) -> None:
    with lakelatch.open(str(folder)) as table:
        found = {(row["id"], row["day"]): row["n"] for row in table.read().to_pylist()}
        assert found == ROWS[folder.name]
        table.upsert([{"id": "a", "day": "3", "n": 9, "at": 9}])
        assert {(row["id"], row["day"]): row["n"] for row in table.read().to_pylist()} == found | {("a", "3"): 9}
        assert check(table.store, deep=True).sound()
