"""Two writers and the table's schema: the rows of Hudi's own tests for RFC-82, and what they leave open."""

from __future__ import annotations

import pytest

from lakelatch.conflict import Conflict, Party, settle_schema

S, E1, E2 = "as made", "with column a", "with column b"
NO, YES = False, True

# Source: Apache Hudi, TestHoodieClientMultiWriter, the rows of its test of schema conflict resolution:
# the table has a commit with S; it has an empty one without a schema; its type; schema of the first and of the second
# transaction (both begin before either commits); does the second conflict; the table's schema in the end.
ROWS = [
    (YES, NO, "MOR", S, S, NO, S),
    (NO, NO, "MOR", S, S, NO, S),
    (NO, YES, "MOR", S, S, NO, S),
    (YES, NO, "COW", S, E1, NO, E1),
    (YES, NO, "MOR", S, E1, NO, E1),
    (YES, NO, "COW", E1, S, NO, E1),
    (YES, NO, "MOR", E1, S, NO, E1),
    (NO, YES, "COW", E1, S, YES, E1),
    (NO, NO, "MOR", E1, S, YES, E1),
    (NO, YES, "MOR", E1, S, YES, E1),
    (YES, NO, "COW", E1, E1, NO, E1),
    (YES, NO, "MOR", E1, E1, NO, E1),
    (YES, NO, "COW", E1, E2, YES, E1),
    (YES, NO, "MOR", E1, E2, YES, E1),
    (NO, NO, "COW", E1, E2, YES, E1),
    (NO, NO, "MOR", E1, E2, YES, E1),
    (NO, YES, "COW", E1, E2, YES, E1),
    (NO, YES, "MOR", E1, E1, NO, E1),
]
# Not among Hudi's: the same evolution by both on a table with neither commit.
ROWS.append((NO, NO, "MOR", E1, E1, NO, E1))


def party(t: str, operation: str = "UPSERT", c: str = "") -> Party:
    return Party(t, c, operation, f"writer of {t}")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hudi_s_table_of_schema_conflicts(row):
    with_commit, _with_empty_commit, kind, first, second, conflicts, left = row
    began = S if with_commit else None
    first_left = settle_schema(party("021"), began, first, [])
    assert first_left == first
    later = [(party("021", c="1"), first_left)]
    if with_commit:  # a table service between the two, planned before the first has landed
        service = party("032", "COMPACT" if kind == "MOR" else "CLUSTER", c="2")
        kept = settle_schema(party("032", service.operation), began, began, later)
        assert kept == first_left  # it takes over what it finds
        later.append((service, kept))
    later += [(party("033", c="3"), None), (party("034", c="4"), "")]  # these say nothing of the schema
    settled = settle_schema(party("031"), began, second, later)
    if conflicts:
        assert isinstance(settled, Conflict)
        assert settled.winner.instant == "021"
        assert settled.loser.instant == "031"
        settled = first_left
    assert settled == left


# Source: the table of RFC-82: scenario, at the begin, at the commit, ours, what it leaves (None: a conflict).
SCENARIOS = [
    (1, None, None, S, S),
    (2, None, S, S, S),
    (3, None, E1, E2, None),
    (4, S, S, S, S),
    (5, S, S, E1, E1),
    (6, S, E1, S, E1),
    (7, S, E1, E1, E1),
    (8, S, E1, E2, None),
]


@pytest.mark.parametrize(("number", "began", "found", "wanted", "left"), SCENARIOS)
def test_the_eight_scenarios_of_rfc_82(number, began, found, wanted, left):
    later = [(party("021", c="1"), found)] if found != began else []
    settled = settle_schema(party("031"), began, wanted, later)
    assert (None if isinstance(settled, Conflict) else settled) == left


@pytest.mark.parametrize("operation", ["COMPACT", "CLUSTER", "LOG_COMPACT"])
def test_a_table_service_changes_no_schema(operation):
    """TestSimpleSchemaConflictResolutionStrategy: compaction and clustering skip the check."""
    assert settle_schema(party("031", operation), S, E2, [(party("021", c="1"), E1)]) == E1


def test_an_upsert_that_says_nothing_of_the_schema_takes_over_an_added_column():
    """The null writer schema of Hudi's test; also a delete."""
    assert settle_schema(party("031"), S, None, [(party("021", c="1"), E1)]) == E1
    assert settle_schema(party("031"), S, None, []) == S


def test_an_upsert_follows_a_column_that_was_added_in_two_steps():
    wider = E1 + ", " + E2
    later = [(party("021", c="1"), E1), (party("022", c="2"), wider)]
    assert settle_schema(party("031"), S, S, later) == wider


def test_of_two_evolutions_the_first_to_land_stays_and_is_named():
    later = [(party("020", c="1"), S), (party("021", c="2"), E1), (party("022", c="3"), E1)]
    lost = settle_schema(party("031"), S, E2, later)
    assert isinstance(lost, Conflict)
    assert (lost.winner.instant, lost.rule) == ("021", "both changed the table's schema")
    assert "run the write again on the new schema" in lost.advice
