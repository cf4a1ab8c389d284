"""Isolation levels against brute force: what two transactions leave, beside what both serial orders leave.

A small table of rows in file groups. A transaction looks at a snapshot and says what it writes; it is run on the
snapshot both began with, as real ones are, and alone, one after the other. No verdict is taken from the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelatch.conflict import ISOLATION_LEVELS, Party, ReadSet, Scan, WriteSet, refuse_isolation, resolve
from lakelatch.conflict.predicate import ColumnStatistics, FileStatistics, Term, Where, may_match, where_of
from lakelatch.conflict.write_set import EVERYWHERE, NOWHERE, Region
from lakelatch.errors import ConfigError, InputError
from lakelatch.hudi.files import FileGroupId

from ..thorough import THOROUGH

# --- a table, and transactions on it ----------------------------------------------------------------------------

Row = int | None
Table = dict[FileGroupId, tuple[Row, ...]]
PARTITIONS = ("p", "q")


def statistics(rows: tuple[Row, ...]) -> FileStatistics:
    values = [r for r in rows if r is not None]
    bounds = (min(values), max(values)) if values else (None, None)
    return FileStatistics(len(rows), {"x": ColumnStatistics(*bounds, nulls=len(rows) - len(values))})


def holds(condition: Term, value: Row) -> bool:
    if condition.op in ("is null", "is not null"):
        return (value is None) == (condition.op == "is null")
    if value is None:
        return False
    given = condition.value
    return {
        "=": lambda: value == given,
        "!=": lambda: value != given,
        "<": lambda: value < given,
        "<=": lambda: value <= given,
        ">": lambda: value > given,
        ">=": lambda: value >= given,
        "in": lambda: value in given,
    }[condition.op]()


def meets(where: Where, value: Row) -> bool:
    return all(holds(each, value) for each in where)


def select(table: Table, region: Region, where: Where) -> dict[FileGroupId, list[Row]]:
    return {
        g: hit
        for g, rows in table.items()
        if region.covers(g.partition) and (hit := [r for r in rows if meets(where, r)])
    }


@dataclass(frozen=True)
class Work:
    """One transaction: ``what`` it does, where it looks, and the row that it adds or changes."""

    what: str  # insert, delete, copy, overwrite
    name: str
    region: Region = NOWHERE
    where: Where = ()
    target: str = "p"
    row: int = 0

    def change(self, table: Table) -> Table:
        """New contents of the file groups that it writes on this snapshot; () for one that goes."""
        own = FileGroupId(self.target, self.name)
        if self.what == "insert":
            return {own: (self.row,)}
        if self.what == "delete":
            return {
                g: tuple(r for r in table[g] if not meets(self.where, r))
                for g in select(table, self.region, self.where)
            }
        if self.what == "overwrite":
            gone: Table = {g: () for g in table if g.partition == self.target}
            return gone | {own: (self.row,)}
        found = select(table, self.region, self.where)  # copy: a row that depends on what it has read
        return {own: (sum(r or 0 for hit in found.values() for r in hit) + len(found) * 1000,)}

    def run(self, table: Table) -> Table:
        return {g: rows for g, rows in {**table, **self.change(table)}.items() if rows}

    def sets(self, table: Table) -> tuple[WriteSet, ReadSet]:
        """What it declares, with groups pruned by statistics as a reader does."""
        change = self.change(table)
        overwritten = Region(frozenset({self.target})) if self.what == "overwrite" else NOWHERE
        known = {g: statistics(rows) for g, rows in change.items()}
        writes = WriteSet(frozenset(change), overwritten, statistics=known)
        seen = frozenset(
            g
            for g, rows in table.items()
            if self.region.covers(g.partition) and may_match(self.where, statistics(rows))
        )
        scan = Scan(self.region, self.where, seen)
        if self.what == "delete":
            return writes, ReadSet(condition=(scan,), scans=())
        if self.what == "copy":
            return writes, ReadSet(scans=(scan,))
        return writes, ReadSet(blind=True, scans=())

    @property
    def operation(self) -> str:
        return {"insert": "INSERT", "delete": "DELETE", "copy": "UPSERT", "overwrite": "INSERT_OVERWRITE"}[self.what]


def party(work: Work, table: Table, t: str, c: str = "") -> Party:
    return Party(t, c, work.operation, work.name, work.sets(table)[0])


def lands(second: Work, first: Work, table: Table, level: str) -> bool:
    """Both began on ``table``; ``first`` has landed; may ``second``?"""
    candidate = party(first, table, "1", "2")
    return resolve(party(second, table, "3"), second.sets(table)[1], [candidate], isolation=level).lost is None


def both(first: Work, second: Work, table: Table) -> Table:
    """What stands when both land, each with what it wrote on the snapshot that both began with."""
    return {g: rows for g, rows in {**table, **first.change(table), **second.change(table)}.items() if rows}


rows = st.none() | st.integers(0, 6)
tables = st.dictionaries(
    st.builds(FileGroupId, st.sampled_from(PARTITIONS), st.sampled_from("gh")),
    st.lists(rows, min_size=1, max_size=3).map(tuple),
    max_size=4,
)
conditions = st.one_of(
    st.builds(Term, st.just("x"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.integers(0, 6)),
    st.builds(Term, st.just("x"), st.just("in"), st.lists(st.integers(0, 6), max_size=2).map(tuple)),
    st.builds(Term, st.just("x"), st.sampled_from(["is null", "is not null"])),
)
regions = st.sampled_from([EVERYWHERE, Region(frozenset({"p"})), Region(frozenset({"q"}))])


def works(name: str) -> st.SearchStrategy[Work]:
    return st.builds(
        Work,
        st.sampled_from(["insert", "delete", "copy", "overwrite"]),
        st.just(name),
        regions,
        st.lists(conditions, max_size=2).map(tuple),
        st.sampled_from(PARTITIONS),
        st.integers(0, 6),
    )


# --- the levels --------------------------------------------------------------------------------------------------


@settings(max_examples=800 if THOROUGH else 100)
@given(tables, works("first"), works("second"))
def test_serializable_is_the_order_of_commits(table, first, second):
    if lands(second, first, table, "serializable"):
        assert both(first, second, table) == second.run(first.run(table))


@settings(max_examples=400 if THOROUGH else 60)
@given(tables, works("first"), works("second"))
def test_when_neither_order_conflicts_both_orders_are_equal(table, first, second):
    if lands(second, first, table, "serializable") and lands(first, second, table, "serializable"):
        assert second.run(first.run(table)) == first.run(second.run(table)) == both(first, second, table)


@settings(max_examples=800 if THOROUGH else 100)
@given(tables, works("first"), works("second"))
def test_write_serializable_is_some_order(table, first, second):
    if lands(second, first, table, "write-serializable"):
        assert both(first, second, table) in (second.run(first.run(table)), first.run(second.run(table)))


@settings(max_examples=400 if THOROUGH else 60)
@given(tables, works("first"), works("second"), st.sampled_from(ISOLATION_LEVELS))
def test_no_level_loses_an_update(table, first, second, level):
    if lands(second, first, table, level):
        assert not set(first.change(table)) & set(second.change(table))


@settings(max_examples=400 if THOROUGH else 60)
@given(tables, works("first"), works("second"))
def test_a_stronger_level_never_lets_more_through(table, first, second):
    verdicts = [lands(second, first, table, level) for level in ISOLATION_LEVELS]
    assert verdicts == sorted(verdicts, reverse=True)


@settings(max_examples=400 if THOROUGH else 60)
@given(tables, works("first"), works("second"))
def test_what_lies_in_other_partitions_is_never_aborted(table, first, second):
    def touched(work: Work) -> set[str]:
        read = {p for p in PARTITIONS if work.region.covers(p)} if work.what in ("delete", "copy") else set()
        return read | ({work.target} if work.what != "delete" else set())

    if touched(first).isdisjoint(touched(second)):
        assert all(lands(second, first, table, level) for level in ISOLATION_LEVELS)


# --- by example, as docs/conflicts.md tells them -----------------------------------------------------------------

A, B = FileGroupId("p", "a"), FileGroupId("p", "b")


def update(group: FileGroupId, reads: ReadSet, *candidates: Party, level: str) -> bool:
    """Whether an update of one file group lands."""
    ours = Party("9", "", "UPSERT", "me", WriteSet(frozenset({group})))
    return resolve(ours, reads, candidates, isolation=level).lost is None


def landed(operation: str, *groups: FileGroupId, **more) -> Party:
    return Party("5", "6", operation, "other", WriteSet(frozenset(groups), statistics=more))


@pytest.mark.parametrize(
    ("level", "lands"), [("snapshot", True), ("write-serializable", False), ("serializable", False)]
)
def test_write_skew_happens_under_snapshot_only(level, lands):
    """Two doctors are on call, a and b. Each looks at both rows, sees the other on call, and signs off."""
    saw_both = ReadSet(scans=(Scan(groups=frozenset({A, B})),))
    assert update(A, saw_both, landed("UPSERT", B), level=level) == lands


NEW = FileGroupId("p", "new")


@pytest.mark.parametrize(
    ("level", "operation", "lands"),
    [
        ("snapshot", "INSERT", True),
        ("write-serializable", "INSERT", True),
        ("serializable", "INSERT", False),
        ("snapshot", "UPSERT", True),
        ("write-serializable", "UPSERT", False),
        ("serializable", "UPSERT", False),
    ],
)
def test_a_phantom_of_a_blind_insert_counts_under_serializable_and_another_earlier(level, operation, lands):
    """A total of partition p is written to group a; meanwhile a row appears in p."""
    summed = ReadSet(scans=(Scan(Region(frozenset({"p"})), groups=frozenset({B})),))
    assert update(A, summed, landed(operation, NEW), level=level) == lands


def test_statistics_prove_that_a_new_row_is_no_phantom():
    small = where_of([("x", "<", 10)])
    reads = ReadSet(scans=(Scan(Region(frozenset({"p"})), small),))
    large = landed("UPSERT", NEW)
    known = Party("5", "6", "UPSERT", "other", WriteSet(frozenset({NEW}), statistics={NEW: statistics((10, 20))}))
    assert update(A, reads, known, level="serializable")
    assert not update(A, reads, large, level="serializable"), "without statistics it may be one"


@pytest.mark.parametrize("level", ["write-serializable", "serializable"])
def test_whoever_does_not_say_what_it_read_may_have_read_all(level):
    assert not update(A, ReadSet(), landed("UPSERT", B), level=level)
    assert update(A, ReadSet(scans=()), landed("UPSERT", B), level=level)


@pytest.mark.parametrize("level", ISOLATION_LEVELS)
def test_a_condition_counts_at_every_level(level):
    for reads in (ReadSet(Region(frozenset({"p"})), scans=()), ReadSet(condition=(Scan(EVERYWHERE),), scans=())):
        assert not update(A, reads, landed("INSERT", NEW), level=level)


@pytest.mark.parametrize("operation", ["COMPACT", "LOG_COMPACT", "CLUSTER", "CLEAN"])
def test_moving_rows_changes_nothing_that_was_read(operation):
    reads = ReadSet(Region(frozenset({"p"})), scans=(Scan(EVERYWHERE, groups=frozenset({B})),))
    assert update(A, reads, landed(operation, B), level="serializable")


def test_an_insert_that_read_or_a_stranger_s_is_not_blind():
    summed = ReadSet(scans=(Scan(Region(frozenset({"p"}))),))
    for more in ({"reads_too": True}, {"stranger": True}):
        theirs = Party("5", "6", "INSERT", "other", WriteSet(frozenset({NEW})), **more)
        assert not update(A, summed, theirs, level="write-serializable")


def test_levels_that_do_not_exist_or_weaken_the_table_s_are_refused():
    with pytest.raises(
        ConfigError, match="no isolation level 'dirty'; known: snapshot, write-serializable, serializable"
    ):
        refuse_isolation("dirty")
    with pytest.raises(ConfigError, match="'snapshot' is weaker than the table's 'serializable'"):
        refuse_isolation("snapshot", below="serializable")
    refuse_isolation("serializable", below="snapshot")


# --- predicates --------------------------------------------------------------------------------------------------


@settings(max_examples=800 if THOROUGH else 100)
@given(st.lists(rows, max_size=4).map(tuple), st.lists(conditions, max_size=3).map(tuple))
def test_a_file_is_only_excluded_when_no_row_meets_the_conditions(values, where):
    if any(meets(where, value) for value in values):
        assert may_match(where, statistics(values))


@given(st.lists(rows, min_size=1, max_size=4).map(tuple), conditions)
def test_bounds_that_are_not_known_exclude_nothing(values, condition):
    unknown = FileStatistics(len(values), {"x": ColumnStatistics()})
    if condition.value != ():  # "in" nothing is met by nothing
        assert may_match((condition,), unknown)
        assert may_match((condition,), FileStatistics(len(values)))
        assert may_match((condition,), None)


@pytest.mark.parametrize(
    ("terms", "low", "high", "may"),
    [
        ([("x", "<", 3)], 3, 9, False),
        ([("x", "<=", 3)], 3, 9, True),
        ([("x", ">", 9)], 3, 9, False),
        ([("x", "=", 2)], 3, 9, False),
        ([("x", "in", (1, 2))], 3, 9, False),
        ([("x", "in", ())], 3, 9, False),
        ([("x", "!=", 3)], 3, 3, False),
        ([("x", ">", 1), ("x", "<", 3)], 3, 9, False),
        ([("x", "=", "b")], "c", "d", False),
        ([("x", "=", "3")], 3, 9, True),  # another type proves nothing
        ([("x", "=", 2.0)], 3, 9, True),
        ([("x", "=", True)], 3, 9, True),
        ([("x", "<", 2.0)], 3.0, 9.0, False),
        ([("x", ">", 10.0)], 3.0, 9.0, True),  # NaN, which bounds leave out, is larger for Spark
        ([("x", "!=", 3.0)], 3.0, 3.0, True),
        ([("x", "=", float("nan"))], 3.0, 9.0, True),
        ([("x", "<", 2.0)], float("nan"), float("nan"), True),
        ([("x", "is null")], 3, 9, False),
        ([("x", "is not null")], 3, 9, True),
        ([("y", "=", 1)], 3, 9, True),
    ],
)
def test_what_bounds_prove(terms, low, high, may):
    known = FileStatistics(2, {"x": ColumnStatistics(low, high, nulls=0)})
    assert may_match(where_of(terms), known) == may


def test_nulls_meet_no_comparison():
    empty = FileStatistics(2, {"x": ColumnStatistics(nulls=2)})
    assert not may_match(where_of([("x", ">=", 0)]), empty)
    assert not may_match(where_of([("x", "is not null")]), empty)
    assert may_match(where_of([("x", "is null")]), empty)


@pytest.mark.parametrize(
    ("op", "value", "words"),
    [
        ("like", "a%", "no operator 'like'"),
        ("=", None, "ask for nulls with 'is null'"),
        ("in", 3, "for 'in' a tuple"),
        ("=", (1, 2), "give one value"),
        ("is null", 3, "takes no value"),
    ],
)
def test_conditions_that_mean_nothing_are_refused(op, value, words):
    with pytest.raises(InputError, match=words):
        Term("x", op, value)


@given(st.lists(rows, max_size=4).map(tuple))
def test_statistics_survive_json(values):
    known = statistics(values)
    assert FileStatistics.from_json(known.to_json()) == known


def test_bounds_that_json_cannot_hold_become_unknown():
    odd = FileStatistics(1, {"x": ColumnStatistics(float("nan"), float("inf"), 0), "y": ColumnStatistics(b"a", b"b")})
    assert odd.to_json() == {"rows": 1, "columns": {"x": [None, None, 0], "y": [None, None, None]}}
