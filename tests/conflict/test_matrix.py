"""The matrix of operations: the page says what the code does, and each difference from Hudi is explained once."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from lakelatch.conflict.operations import COMPLETED, INGESTION, PLANNED, Kind
from lakelatch.testing.contention import PATIENCE_S

SCRIPT = Path(__file__).parents[2] / "scripts/conflict_matrix.py"
_spec = importlib.util.spec_from_file_location("conflict_matrix", SCRIPT)
matrix = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = matrix  # its dataclasses look themselves up there
_spec.loader.exec_module(matrix)
BEATS, HUDI, LANDS, LOSES, NOTES, WAITS = (
    getattr(matrix, name) for name in ("BEATS", "HUDI", "LANDS", "LOSES", "NOTES", "WAITS")
)
answer, differs, render = matrix.answer, matrix.differs, matrix.render
PAGE = Path(__file__).parents[2] / "docs/conflicts.md"
CELLS = [(ours, theirs, landed) for ours, theirs in product(Kind, Kind) for landed in (True, False)]


def test_the_page_holds_what_the_code_says():
    """To renew it, put the output of ``python scripts/conflict_matrix.py`` between the two marks."""
    told = PAGE.read_text().partition("<!-- generated -->\n")[2].partition("<!-- end -->")[0]
    assert told == "\n" + render() + "\n"


def test_the_module_prints_it():
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert run.stdout == render()


def test_a_difference_from_hudi_is_explained_once_and_nothing_else_is():
    for ours, theirs, landed in CELLS:
        explained(ours, theirs, landed=landed)


def explained(ours: Kind, theirs: Kind, *, landed: bool) -> None:
    covering = [note for note in NOTES if note.covers(ours, theirs, landed=landed)]
    assert len(covering) == differs(ours, theirs, landed=landed), (ours, theirs, landed)
    assert HUDI[landed][ours, theirs] in "Fonb"
    for note in covering:
        laxer = answer(ours, theirs, landed=landed) in (LANDS, BEATS)
        assert note.why.startswith("laxer: " if laxer else "stricter: ")


def test_a_rollback_meets_nobody_and_is_not_in_the_page():
    for ours, theirs, landed in CELLS:
        if Kind.ROLLBACK in (ours, theirs):
            assert answer(ours, theirs, landed=landed) == LANDS
            assert not differs(ours, theirs, landed=landed)


@pytest.mark.parametrize("ours", Kind)
def test_the_decision_follows_the_grid(ours):
    for theirs, by in product(Kind, ("simple", "prefer-writer", "priority")):
        loses = answer(ours, theirs, landed=True, by=by) == LOSES
        assert loses == (COMPLETED[ours, theirs] != ".")
        pending = answer(ours, theirs, landed=False, by=by)
        assert pending in (LANDS, BEATS, WAITS)
        if COMPLETED[theirs, ours] == ".":
            assert pending == LANDS, "anyone who cannot lose to ours is not in the way"


@pytest.mark.parametrize(("ours", "theirs"), list(product(INGESTION, PLANNED)))
def test_under_prefer_writer_ingestion_never_waits_for_a_service_of_ours(ours, theirs):
    assert answer(ours, theirs, landed=False, by="prefer-writer") != WAITS
    pending = answer(theirs, ours, landed=False, by="prefer-writer")
    assert (pending == WAITS) == (COMPLETED[ours, theirs] != ".")


@pytest.mark.parametrize("by", ["simple", "prefer-writer", "priority"])
def test_what_a_jvm_service_would_land_over_waits(by):
    for ours, theirs in product(INGESTION, (Kind.COMPACTION, Kind.CLUSTERING)):
        harmless = theirs is Kind.COMPACTION and ours is not Kind.REWRITE
        waits = answer(ours, theirs, landed=False, by=by, stranger=True) == WAITS
        assert waits != harmless
