"""What an abort entry keeps of a loss: the same after writing and reading, bounded, and refused when it cannot be."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.conflict.predicate import Term
from lakelatch.conflict.resolve import ISOLATION_LEVELS
from lakelatch.conflict.write_set import ReadSet, Region, Scan, WriteSet
from lakelatch.errors import CorruptTableError
from lakelatch.hudi.files.file_names import FileGroupId
from lakelatch.occ.entries.entries import End, decode, encode
from lakelatch.occ.entries.losses import GROUPS_MAX, Changed, Loss

T = "20260101000000000"
TEXT = st.sampled_from(["", "a", "{0}%s", "ä\N{FOX FACE}", "p=x/y"])
GROUPS = st.frozensets(st.builds(FileGroupId, TEXT, TEXT), max_size=4)
REGIONS = st.builds(Region, st.frozensets(TEXT, max_size=2), st.booleans())
VALUES = st.sampled_from([1, -2.5, "x", True, date(1, 1, 1), datetime(2026, 1, 1, 1), Decimal("1.10")])
WHERE = st.lists(
    st.one_of(
        st.builds(Term, TEXT, st.sampled_from(["=", "<"]), VALUES),
        st.builds(Term, TEXT, st.just("in"), st.lists(VALUES, max_size=3).map(tuple)),
        st.builds(Term, TEXT, st.sampled_from(["is null", "is not null"])),
    ),
    max_size=2,
).map(tuple)
SCANS = st.lists(st.builds(Scan, REGIONS, WHERE, GROUPS), max_size=2).map(tuple)
READS = st.builds(
    ReadSet, REGIONS, blind=st.booleans(), condition=SCANS, scans=st.none() | SCANS, lookups=SCANS
)  # fmt: skip
COUNT = st.integers(0, 9)
LOSSES = st.builds(
    Loss, TEXT, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3).map(tuple), st.builds(WriteSet, GROUPS, REGIONS, GROUPS),
    READS, st.dictionaries(st.builds(FileGroupId, TEXT, TEXT), st.builds(Changed, COUNT, COUNT, COUNT, COUNT), max_size=3),
    isolation=st.sampled_from(ISOLATION_LEVELS),
    files=COUNT, rows=COUNT, bytes=COUNT, took_s=st.sampled_from([0.0, 1.5]), rounds=COUNT, merges=st.booleans(),
    same_rows=COUNT, early=st.booleans(), cut=st.booleans(),
)  # fmt: skip


@given(LOSSES)
def test_a_loss_is_the_same_after_writing_and_reading(loss: Loss) -> None:
    end = End("abort", T, "w", "why", 3, loss)
    assert decode(encode(end, 1, 3, "x"), "slot") == end


def test_an_entry_of_an_earlier_version_has_no_loss() -> None:
    body = json.dumps({"v": 1, "kind": "abort", "epoch": 1, "slot": 3, "id": "x", "T": T, "who": "w", "reason": "r"})
    assert decode(body.encode(), "slot") == End("abort", T, "w", "r", 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"winner": 1},
        {"overlap": [1]},
        {"files": -1},
        {"bytes": True},
        {"rows": 1.5},
        {"took_s": "1"},
        {"took_s": float("nan")},
        {"isolation": "perfect"},
        {"writes": {"groups": [["a"]], "region": None, "appended": []}},
        {"writes": {"groups": "ab", "region": None, "appended": []}},
        {"writes": {"groups": [], "region": {"partitions": [1], "whole_table": False}, "appended": []}},
        {"changed": [["p", "f", 1, 2, 3]]},
        {"changed": [["p", "f", 1, 2, 3, "4"]]},
        {"reads": {}},
        {"reads": None},
    ],
)
def test_a_loss_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    raw = json.loads(encode(End("abort", T, "w", "why", 3, Loss("", "", "", "")), 1, 3, "x"))
    decode(json.dumps(raw).encode(), "slot")
    raw["lost"] |= wrong
    with pytest.raises(CorruptTableError):
        decode(json.dumps(raw).encode(), "slot")


def test_a_condition_that_has_no_plain_form_is_left_out_so_that_more_counts_as_read() -> None:
    scan = Scan(where=(Term("a", "=", b"bytes"), Term("b", ">", float("inf")), Term("c", "<", 3)))
    assert Scan.from_json(scan.to_json()).where == (Term("c", "<", 3),)


def test_what_it_lost_on_stays_when_it_is_cut() -> None:
    groups = frozenset(FileGroupId(f"p{n}", "f") for n in range(5 * GROUPS_MAX))
    region = Region(frozenset(group.partition for group in groups))
    on = FileGroupId("p999", "f")
    loss = Loss("", "", "", "", writes=WriteSet(groups, region), reads=ReadSet(region)).bounded([on])
    assert loss.cut
    assert on in loss.writes.groups
    assert "p999" in loss.writes.region.partitions
    assert "p999" in loss.reads.region.partitions
    assert len(encode(End("abort", T, "w", "why", 3, loss), 1, 3, "x")) < 32_000
    small = Loss("", "", "", "", writes=WriteSet(frozenset({on})))
    assert small.bounded([on]) == small
