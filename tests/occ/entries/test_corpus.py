"""Log entries and log blocks of an earlier version decode, and encode to the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lakelatch.hudi.files.log_blocks import COMMAND, DELETE, NATURAL, PARQUET, Block, read_blocks
from lakelatch.hudi.files.log_encoding import _block
from lakelatch.occ.entries import decode, encode

CORPUS = Path(__file__).parents[2] / "data" / "log_entries"
# Not `splitlines`, which would also split at U+2028 inside of a name.
BODIES = (CORPUS / "entries.jsonl").read_bytes().removesuffix(b"\n").split(b"\n")
FIELDS_THAT_APPEAR = {
    "begin": {"priority", "plan", "planned_at", "executes", "first", "asked", "reserved"},
    "commit": {"blind", "undone", "named", "echo", "batch"},
    "abort": {"lost"},
    "open": {"schema", "batches"},
}


@pytest.mark.whole
@pytest.mark.parametrize("number", range(len(BODIES)))
def test_an_entry_of_an_earlier_version_keeps_its_bytes(number: int) -> None:
    raw = json.loads(BODIES[number])
    entry = decode(BODIES[number], f"entry {number}")
    # A setting that means nothing any more is left out.
    assert encode(entry, raw["epoch"], raw["slot"], raw["id"]) == BODIES[number].replace(b'"group_commit":true,', b"")


def test_the_corpus_has_every_kind_and_each_optional_field_present_and_absent() -> None:
    found = [json.loads(body) for body in BODIES]
    kinds = Counter(each["kind"] for each in found)
    assert sum("group_commit" in each.get("settings", ()) for each in found) == 2
    assert set(kinds) == {"begin", "begins", "commit", "commits", "rollback", "abort", "setting", "close", "open"}
    for kind, names in FIELDS_THAT_APPEAR.items():
        for name in names:
            assert {name in each for each in found if each["kind"] == kind} == {True, False}, (kind, name)


def test_blocks_of_an_earlier_version_keep_their_bytes() -> None:
    body = (CORPUS / "blocks.log").read_bytes()
    blocks = [each for each in read_blocks(body, "blocks.log") if isinstance(each, Block)]
    assert b"".join(_block(each.kind, each.header, each.content) for each in blocks) == body
    assert [each.kind for each in blocks] == [PARQUET, PARQUET, DELETE, DELETE, DELETE, DELETE, COMMAND]
    first, natural, several, none = (dict(each.deletes()) for each in blocks if each.kind == DELETE)
    assert first == {"k😀": 7, "𝒜": NATURAL}
    assert natural == {"k😀": NATURAL, "𝒜": NATURAL}
    assert several == {"k": ("a😀", 3)}
    assert none == {}
    assert blocks[-1].rolls_back == blocks[0].instant
    assert [each.merged and len(each.merged) for each in blocks] == [None, 2, None, None, 1, None, None]
