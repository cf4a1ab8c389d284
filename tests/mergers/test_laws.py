"""The checker of merge laws: built-in mergers keep theirs, and each mutant is caught with at most three records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelatch.errors import InputError
from lakelatch.hudi.table import RECORD_KEY
from lakelatch.mergers import BUILT_IN, Groups, Laws, find
from lakelatch.testing import Broken, broken_laws, check_apply, check_merger
from lakelatch.testing.merger_laws import DELETED, ORDER, Apply

EXACT = Laws(commutative=True, associative=True, idempotent=True)
IN_ORDER = Laws(commutative=False, associative=True, idempotent=True)
LIST = pa.list_(pa.struct([("ts", pa.int64()), ("x", pa.string())]))

TYPES = {
    "last": pa.string(), "first": pa.int64(), "last_non_null": pa.float64(), "first_non_null": pa.int64(),
    "last_unless(1)": pa.int64(), "sum": pa.int64(), "count": pa.int32(), "min": pa.float64(), "max": pa.string(),
    "product": pa.float64(), "bool_and": pa.bool_(), "bool_or": pa.bool_(), "collect_list(2)": pa.list_(pa.int64()),
    "listagg('; ')": pa.string(),
    "collect_set(2)": pa.list_(pa.float64()), "top_n(1, by='ts')": LIST,
    "merge_map(2)": pa.map_(pa.string(), pa.int64()), "merge_map(2, by='ts')": pa.map_(pa.string(), LIST.value_type),
    "theta(5)": pa.binary(), "nested_update('x')": LIST, "nested_update('x', by='ts')": LIST,
}  # fmt: skip
SOME = {
    pa.int64(): [None, 0, 1], pa.float64(): [None, 0.0, 1.5], pa.string(): [None, "a", "b"],
    LIST: [None, *([{"ts": ts, "x": x}] for ts in (1, 2) for x in "ab"), [{"ts": 3, "x": "b"}, {"ts": 1, "x": "a"}]],
}  # fmt: skip
LATE = {
    "first",
    "first_non_null",
    "last_non_null",
    "last_unless",
    "collect_list",
    "listagg",
    "merge_map(2)",
    "nested_update('x')",
}


def test_every_merger_is_checked() -> None:
    assert {spec.partition("(")[0] for spec in TYPES} == set(BUILT_IN)


@pytest.mark.parametrize("spec", TYPES)
def test_a_built_in_merger_keeps_its_laws(spec: str) -> None:
    check_merger(spec, TYPES[spec], examples=5)
    if TYPES[spec] == LIST:  # whose own samples have no key twice
        check_merger(spec, LIST, values=SOME[LIST], examples=5)


@pytest.mark.parametrize("spec", TYPES)
def test_with_late_rows_those_fail_that_need_the_order(spec: str) -> None:
    found = broken_laws(spec, TYPES[spec], event_time=True, values=SOME.get(TYPES[spec]), examples=0)
    assert bool(found) == bool({spec, spec.partition("(")[0]} & LATE)
    assert all(len(each.records) <= 3 for each in found)


def test_a_sum_of_floats_is_no_law_abider_and_says_so() -> None:
    assert not find("sum").laws(pa.float64()).associative
    check_merger("sum", pa.float64(), examples=0)
    found = broken_laws("sum", pa.float64(), values=[0.1, 0.2, 0.3], declared=Laws(True, True, False), examples=0)
    assert "one_at_a_time" in {each.law for each in found}


# --- mutants of mergers -----------------------------------------------------------------------------------------------


class _Mutant:
    said = EXACT

    def laws(self, kind: pa.DataType) -> Laws:
        return self.said

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        return values

    def of(self, values: list[Any]) -> Any:
        raise NotImplementedError

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        some = values.to_pylist()
        parts = [some[a:b] for a, b in zip(groups.offsets, groups.offsets[1:], strict=False)]
        return pa.array([self.of(part) for part in parts], values.type)


class Mean(_Mutant):
    """A mean of means."""

    said = Laws(commutative=True, associative=True, idempotent=True)

    def of(self, values: list[Any]) -> Any:
        there = [each for each in values if each is not None]
        return sum(there) / len(there) if there else None


class CountsAgain(_Mutant):
    """How many values there are, merged counts among them."""

    said = Laws(commutative=True, associative=True, idempotent=False)

    def of(self, values: list[Any]) -> Any:
        return len([each for each in values if each is not None])


class Adds(_Mutant):
    """A sum that says that a repeated row changes nothing: Paimon 9666, a batch that commits twice."""

    def of(self, values: list[Any]) -> Any:
        return sum(each or 0 for each in values)


class LosesNaN(_Mutant):
    """Python's max, which depends on where NaN stands."""

    def of(self, values: list[Any]) -> Any:
        return max((each for each in values if each is not None), default=None)


class NewestNull(_Mutant):
    """The last value, said to be the same in every order."""

    def of(self, values: list[Any]) -> Any:
        return values[-1]


class FirstOfMany(_Mutant):
    """The value only where it is alone, as a merger that forgot what it has merged already."""

    said = IN_ORDER

    def of(self, values: list[Any]) -> Any:
        return values[-1] if len(values) < 3 else values[0]


class AcrossKeys(_Mutant):
    """A running maximum that nobody begins again for the next key."""

    said = Laws(commutative=False, associative=True, idempotent=False)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        filled = np.asarray(values.fill_null(0))
        return pa.array(np.maximum.accumulate(filled)[groups.offsets[1:] - 1] if len(filled) else filled, values.type)


class CutsTooEarly(_Mutant):
    """The two newest distinct values: it cuts to two before it looks for equal ones."""

    said = IN_ORDER

    def of(self, values: list[Any]) -> Any:
        flat = [each for one in values if one for each in one]
        return list(dict.fromkeys(flat[-2:]))


class Remembers(_Mutant):
    """A merger with a memory of its own: what it gives depends on how often it was asked."""

    said = IN_ORDER

    def __init__(self) -> None:
        self.calls = 0

    def of(self, values: list[Any]) -> Any:
        return values[0 if self.calls % 2 else -1]

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        self.calls += 1
        return super().merge(values, groups)


@pytest.mark.parametrize(
    ("mutant", "kind", "law"),
    [
        (Mean(), pa.float64(), "one_at_a_time"), (CountsAgain(), pa.int64(), "one_at_a_time"), (Adds(), pa.int64(), "replay"),
        (LosesNaN(), pa.float64(), "order"), (NewestNull(), pa.int64(), "order"), (FirstOfMany(), pa.int64(), "one_at_a_time"),
        (AcrossKeys(), pa.int64(), "keys"), (CutsTooEarly(), pa.list_(pa.int64()), "compaction"),
        (Remembers(), pa.int64(), "one_at_a_time"),
    ],
)  # fmt: skip
def test_a_mutant_of_a_merger_is_caught(mutant: Any, kind: pa.DataType, law: str) -> None:
    examples = 40 if law == "keys" else 0  # of one key the short sets that are tried first are enough
    found = {each.law: each for each in broken_laws(mutant, kind, examples=examples)}
    assert law in found
    assert all(len(each.records) <= 3 for each in found.values())
    with pytest.raises(AssertionError, match=f"{type(mutant).__name__} of .* breaks the law"):
        check_merger(mutant, kind, examples=examples)


# --- mutants of rules over whole rows -----------------------------------------------------------------------------------


def by_row(step: Callable[[dict[str, Any] | None, dict[str, Any]], dict[str, Any] | None]) -> Apply:
    """A subject that takes one record after the other."""

    def apply(stored: pa.Table, records: pa.Table) -> pa.Table:
        rows = {row[RECORD_KEY]: row for row in stored.to_pylist()}
        for record in records.to_pylist():
            deleted = record.pop(DELETED)
            key = record[RECORD_KEY]
            after = None if deleted else step(rows.get(key), record)
            rows.pop(key, None)
            if after is not None:
                rows[key] = after
        return pa.Table.from_pylist(list(rows.values()), stored.schema)

    return apply


def newest(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    return new if old is None or new[ORDER] >= old[ORDER] else old


PAIR = pa.schema([("status", pa.string()), ("amount", pa.int64())])
PAIRS = {"status": [None, "made", "paid"], "amount": [None, 10, 20]}


def test_a_rule_without_a_fault_passes() -> None:
    check_apply(by_row(newest), PAIR, PAIRS, laws=IN_ORDER, event_time=True, examples=5)


def paimon_5872(stored: pa.Table, records: pa.Table) -> pa.Table:
    """Of two writers' rows with one sequence number a read takes the later, and the compaction the one it had before."""
    read = by_row(newest)
    merged = read(stored.slice(0, 0), records)
    kept = {row[RECORD_KEY]: row for row in merged.to_pylist()}
    for row in stored.to_pylist():
        later = kept.get(row[RECORD_KEY])
        if later is None or row[ORDER] >= later[ORDER]:
            kept[row[RECORD_KEY]] = row
    return pa.Table.from_pylist(list(kept.values()), stored.schema)


def fluss_4130(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """A write of a part of the group advances the group's sequence, and a later valid update of the rest is refused."""
    if old is None:
        return new
    if new[ORDER] < old[ORDER]:
        return old
    return {name: old[name] if value is None else value for name, value in new.items()}


def late_wins(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    return new if old is None else new | {ORDER: max(old[ORDER], new[ORDER])}


def forgets_the_time(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The newest row, stored without its ordering value."""
    return newest(old, new) | {ORDER: 0}


def ties_by_value(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Of equal ordering values the column decides that is read first, so that another projection gives another row."""
    if old is None or new[ORDER] != old[ORDER]:
        return newest(old, new)
    column = next(name for name in new if name not in (RECORD_KEY, ORDER))
    return max(old, new, key=lambda row: str(row[column]))


def keeps_deleted(stored: pa.Table, records: pa.Table) -> pa.Table:
    """A delete that a row follows in the same batch is lost, and with it that the columns of before are gone."""

    def fill(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
        return new if old is None else {name: old[name] if value is None else value for name, value in new.items()}

    last = {record[RECORD_KEY]: record[DELETED] for record in records.to_pylist()}
    kept = records.filter(pa.array([not r[DELETED] or last[r[RECORD_KEY]] for r in records.to_pylist()], pa.bool_()))
    return by_row(fill)(stored, kept)


@pytest.mark.parametrize(
    ("mutant", "laws", "event_time", "law"),
    [
        (paimon_5872, IN_ORDER, True, "one_at_a_time"), (by_row(fluss_4130), IN_ORDER, True, "order"),
        (by_row(late_wins), IN_ORDER, True, "order"), (by_row(forgets_the_time), IN_ORDER, True, "order"),
        (by_row(ties_by_value), IN_ORDER, True, "projection"), (keeps_deleted, IN_ORDER, False, "one_at_a_time"),
    ],
)  # fmt: skip
def test_a_mutant_of_a_rule_is_caught(mutant: Apply, laws: Laws, event_time: bool, law: str) -> None:
    if mutant is paimon_5872:  # it takes no deletes
        mutant = _without_deletes(mutant)
    with pytest.raises(AssertionError, match=f"breaks the law '{law}'") as e:
        check_apply(mutant, PAIR, PAIRS, laws=laws, event_time=event_time, examples=0)
    table = next(part for part in str(e.value).split("\n\n") if f"'{law}'" in part)
    assert table.splitlines()[1].split()[0] == "slot"
    assert 2 <= len([line for line in table.splitlines()[2:] if line[0].isdigit()]) <= 3


def _without_deletes(apply: Apply) -> Apply:
    def made(stored: pa.Table, records: pa.Table) -> pa.Table:
        gone = records.filter(records.column(DELETED)).column(RECORD_KEY)
        left = stored.filter(pc.invert(pc.is_in(stored.column(RECORD_KEY), value_set=gone.combine_chunks())))
        return apply(left, records.filter(pc.invert(records.column(DELETED))).drop_columns([DELETED]).append_column(
            DELETED, pa.array([False] * (records.num_rows - len(gone)), pa.bool_())
        ))  # fmt: skip

    return made


def test_a_counterexample_is_a_table_of_records() -> None:
    (found,) = [each for each in broken_laws(Adds(), pa.int64(), examples=0) if each.law == "replay"]
    assert isinstance(found, Broken)
    assert str(found).splitlines() == [
        "Adds of int64 breaks the law 'replay':",
        "slot  value",
        "1     1",
        "all together: value=1",
        "with 1 once more after 1: value=2",
    ]


def test_a_type_without_known_values_wants_some() -> None:
    with pytest.raises(InputError, match="give some"):
        check_merger("last", pa.duration("us"))
    with pytest.raises(InputError, match="sum adds numbers"):
        check_merger("sum", pa.string())
