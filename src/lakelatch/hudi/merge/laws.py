"""The laws of merging, checked on every small set of records; a violation is reported with the fewest that show it.

    one_at_a_time   records that arrive one after the other give what they give together
    compaction      what a compaction has merged stands for the records in it: before others, and among them
    order           records in another order give the same; with ``event_time`` by their ordering values, late or not
    replay          a record that arrives twice changes nothing
    deletes         a deleted row leaves nothing behind
    keys            what becomes of one key does not depend on others
    projection      a column has the same value whichever others are read

The subject of a check is a function of two tables, the stored rows and the arriving records; a named merger's is built from
the code that writes tables. `lakelatch.testing` adds random longer sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...mergers import Laws, Merger, Rule
from ..table import RECORD_KEY
from .rows import merge_by, remove

KEY, ORDER = RECORD_KEY, "order"
DELETED = "deleted"  # a column of records: the row goes, and has no values
ALL = ("one_at_a_time", "compaction", "order", "replay", "deletes", "keys", "projection")

# The stored rows, at most one for each key, and records in order of arrival -> the stored rows then.
Apply = Callable[[pa.Table, pa.Table], pa.Table]
Record = dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """A violated law: the records in order of arrival, and the two results that should be equal."""

    subject: str
    law: str
    records: tuple[Record, ...]
    ways: tuple[tuple[str, list[Record]], tuple[str, list[Record]]]

    def __str__(self) -> str:
        several, deletes = len({r[KEY] for r in self.records}) > 1, any(r[DELETED] for r in self.records)
        left_out = {*([] if several else [KEY]), *([] if deletes else [DELETED])}
        names = [name for name in self.records[0] if name not in left_out]
        rows = [["slot", *names]] + [
            [str(slot), *(_shown(name, record) for name in names)] for slot, record in enumerate(self.records, 1)
        ]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        told = [f"{how}: {', '.join(map(_told, found)) or 'no row'}" for how, found in self.ways]
        return "\n".join([f"{self.subject} breaks the law {self.law!r}:", *lines, *told])


def sample(kind: pa.DataType) -> list[Any]:
    """Return some values of a type, null among them.

    Raises:
        InputError: none are known.
    """
    import datetime as dt
    import math
    from decimal import Decimal

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = sample(kind.value_type)
        return [None, [], *([each] for each in inner[1:]), inner[1:3]]
    if pa.types.is_map(kind):
        keys, items = sample(kind.key_type)[1:3], sample(kind.item_type)
        return [None, [], *([(keys[0], each)] for each in items), [(keys[1], items[1]), (keys[0], items[-1])]]
    if pa.types.is_struct(kind):
        columns = [sample(field.type) for field in kind]
        return [
            None,
            *(
                {f.name: c[n % len(c)] for f, c in zip(kind, columns, strict=True)}
                for n in range(max(map(len, columns)))
            ),
        ]
    known: list[tuple[Callable[[pa.DataType], bool], list[Any]]] = [
        (pa.types.is_boolean, [None, False, True]),
        (pa.types.is_unsigned_integer, [None, 0, 1, 2]),
        (pa.types.is_integer, [None, 0, 1, 2, -3]),
        (pa.types.is_floating, [None, 0.0, 1.5, -0.0, math.nan, -math.inf, 0.1, 0.2, 0.3]),
        (pa.types.is_decimal, [None, Decimal(0), Decimal(1), Decimal(-2)]),
        (pa.types.is_date, [None, dt.date(2026, 1, 1), dt.date(1969, 12, 31)]),
        (pa.types.is_timestamp, [None, *(dt.datetime(y, 1, 1, tzinfo=dt.UTC if kind.tz else None) for y in (2026, 1))])
        if pa.types.is_timestamp(kind)
        else (pa.types.is_timestamp, []),
        (pa.types.is_string, [None, "", "a", "😀", "{%s}"]),
        (pa.types.is_large_string, [None, "", "a", "😀"]),
        (pa.types.is_binary, [None, b"", b"\x00", b"\xff"]),
    ]
    for fits, values in known:
        if fits(kind):
            return values
    raise InputError(f"no values of {kind} are known; give some: check_merger(..., values=[...])")


# --- the subject of a merger --------------------------------------------------------------------------------------------


class _With(Rule):
    """A rule of mergers that have no name yet."""

    def __init__(self, mergers: Mapping[str, Merger], ordering: tuple[str, ...]) -> None:
        super().__init__(dict.fromkeys(mergers, ""), ordering)
        # `Rule` is frozen and looks its mergers up by name; these are put into its cache instead.
        self.__dict__["_found"] = dict(mergers)


def subject_of(
    merger: Merger, kind: pa.DataType, values: Sequence[Any] | None = None, *, event_time: bool = False
) -> tuple[Apply, pa.Schema, dict[str, list[Any]]]:
    """Return the arguments of `Tried` for a merger: its function on rows of one column, the schema, and the values records
    bring.

    Raises:
        InputError: no values of the type are known.
    """
    if values is None:
        own = getattr(merger, "samples", None)
        values = own(kind) if own is not None else sample(kind)
    lifted = merger.lift(pa.array(values, kind), kind)
    rule = _With({"value": merger}, (ORDER,) if event_time else ())
    return _by_rule(rule), pa.schema([pa.field("value", kind)]), {"value": lifted.to_pylist()}


def _by_rule(rule: Rule) -> Apply:
    def apply(stored: pa.Table, records: pa.Table) -> pa.Table:
        for deleted, some in _runs(records):
            if deleted:
                stored = remove(stored, some.column(KEY).combine_chunks()).rows
            else:
                stored = merge_by(rule, stored, rule.one_of_each(some, KEY)).rows
        return stored

    return apply


def _runs(records: pa.Table) -> Iterable[tuple[bool, pa.Table]]:
    """Yield runs of deletes and of rows in turn, each without the column that marks deletes."""
    marks, start = records.column(DELETED).to_pylist(), 0
    rows = records.drop_columns([DELETED])
    for end in range(1, len(marks) + 1):
        if end == len(marks) or marks[end] != marks[start]:
            yield marks[start], rows.slice(start, end - start)
            start = end


# --- the laws -----------------------------------------------------------------------------------------------------------

Ways = tuple[tuple[str, pa.Table], tuple[str, pa.Table]]
_SMALL = 3  # three records show every violation except those at bounds
_CASES_MAX = 3000  # tried at once; a larger set is sampled


@dataclass(frozen=True)
class Case:
    """The operations on a set of records: two cuts through it, another order of it, and one record of it."""

    cut: int = 0
    end: int = 0
    order: tuple[int, ...] = ()
    one: int = 0


class Tried:
    """One subject with its values, and the laws it claims.

    Every set of two records is tried, and a sample of the sets of three. Each set has its own key, so one merge tries them all.
    """

    def __init__(
        self,
        apply: Apply,
        schema: pa.Schema,
        values: Mapping[str, Sequence[Any]],
        laws: Laws,
        *,
        event_time: bool,
        name: str,
    ) -> None:
        self._apply, self._laws, self._event_time, self._name = apply, laws, event_time, name
        order = [pa.field(ORDER, pa.int64())] if event_time else []
        self._stored = pa.schema([pa.field(KEY, pa.string()), *order, *schema])
        self._values = {name: pa.array(some, schema.field(name).type) for name, some in values.items()}
        self._nothing = self._stored.empty_table()

    def broken(self, wanted: Iterable[str]) -> Iterable[Broken]:
        """Yield the laws that do not hold, each with its smallest counterexample."""
        for law in wanted:
            if self._claims(law) and (found := self._smallest(law) or self.searched(law)):
                yield found

    def searched(self, law: str) -> Broken | None:  # noqa: ARG002 - for those who go on where the small sets end
        """Return a counterexample among longer sets; None here. Subclasses search."""
        return None

    def _claims(self, law: str) -> bool:
        laws = self._laws
        return {
            "one_at_a_time": laws.associative,
            "compaction": laws.associative,
            "order": laws.commutative or self._event_time,
            "replay": laws.idempotent,
            "projection": len(self._values) > 1,
        }.get(law, True)

    # --- every small set ------------------------------------------------------------------------------------------

    def _smallest(self, law: str) -> Broken | None:
        if law == "keys":
            return None
        deletes = law in ("one_at_a_time", "compaction", "deletes")
        for count, with_deletes in product(range(1, self.most(law, _SMALL) + 1), (False, True)[: 1 + deletes]):
            records = self._every(law, count, deletes=with_deletes)
            for case in cases_of(law, count):
                try:
                    ways = self.ways(law, records, case)
                except InputError:  # one of thousands does not fit
                    return None
                if (key := first_difference(ways[0][1], ways[1][1])) is not None:
                    return self.told(law, records, ways, key)
        return None

    def most(self, law: str, most: int) -> int:
        """Return how many records of a set can show something about the law."""
        # The sum of three floats depends on the order; that of two does not.
        return min(most, 2) if law == "order" and not self._laws.associative else most

    def _every(self, law: str, count: int, *, deletes: bool) -> list[pa.Table]:
        """Return one table per position in arrival order, with a row for every set of ``count`` records."""
        rows = product(*(range(len(some)) for some in self._values.values()))
        choices = [tuple(each) for each in product(rows, *self.stamps(count, deletes=deletes))]
        size = len(choices)
        numbers: Any = range(size**count)
        if len(numbers) > _CASES_MAX:
            # The same sample in every run, so that a broken law is found again.
            numbers = sorted(Random(0).sample(numbers, _CASES_MAX))
        some = [tuple(choices[number // size**place % size] for place in reversed(range(count))) for number in numbers]
        if self._event_time and law in ("order", "replay"):
            # Among equal ordering values the order of arrival decides, so another order may rightly give another result.
            some = [each for each in some if len({record[1] for record in each}) == count]
        keys = pa.array([str(number) for number in range(len(some))])
        return [self.records(keys, [each[place] for each in some]) for place in range(count)]

    def stamps(self, count: int, *, deletes: bool) -> list[Sequence[Any]]:
        """Return what a record has beside its values: ordering values, and the delete mark."""
        return [*([range(1, count + 1)] if self._event_time else []), (False, True) if deletes else (False,)]

    def records(self, keys: pa.Array, chosen: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Return records with these keys; ``chosen`` has the indexes of their values, and their stamps."""
        columns = {KEY: keys}
        if self._event_time:
            columns[ORDER] = pa.array([each[1] for each in chosen], pa.int64())
        for number, (name, some) in enumerate(self._values.items()):
            columns[name] = some.take(pa.array([each[0][number] for each in chosen], pa.int64()))
        columns[DELETED] = pa.array([each[-1] for each in chosen], pa.bool_())
        return pa.table(columns)

    # --- what is compared -----------------------------------------------------------------------------------------

    def told(self, law: str, records: Sequence[pa.Table], ways: Ways, key: str | None) -> Broken:
        """Return the report of a counterexample."""

        def of(rows: pa.Table) -> list[Record]:
            mine: list[Record] = (rows if key is None else rows.filter(pc.equal(rows.column(KEY), key))).to_pylist()
            return mine

        (how, one), (other, two) = ways
        return Broken(
            self._name, law, tuple(r for each in records for r in of(each)), ((how, of(one)), (other, of(two)))
        )

    def ways(self, law: str, records: Sequence[pa.Table], case: Case) -> Ways:
        """Return two ways of applying the records that must give the same result."""
        together = "all together", self._after(self._nothing, records)
        if law == "one_at_a_time":
            return together, ("one after the other", self._one_by_one(records))
        if law == "compaction":
            return self._compacted(records, case)
        if law == "order":
            how = " ".join(str(place + 1) for place in case.order)
            mixed = self._one_by_one([records[place] for place in case.order])
            return ("as they came", self._one_by_one(records)), (f"in the order {how}", mixed)
        if law == "replay":
            # Without ordering values a record that comes again later is a new one.
            last = len(records) if self._event_time or self._laws.commutative else case.one + 1
            again = [*records[:last], records[case.one], *records[last:]]
            return together, (f"with {case.one + 1} once more after {last}", self._after(self._nothing, again))
        if law == "deletes":
            rest = records[case.cut :]
            gone = self._after(self._after(self._nothing, records[: case.cut]), [_deletes(records[0])])
            return (f"after a delete behind {case.cut}", self._after(gone, rest)), (
                "without what was deleted",
                self._after(self._nothing, rest),
            )
        if law == "keys":
            rows = pa.concat_tables(records)
            apart = [
                self._after(self._nothing, [rows.filter(pc.equal(rows.column(KEY), key))])
                for key in rows.column(KEY).unique()
            ]
            return together, ("each key by itself", pa.concat_tables(apart))
        name = list(self._values)[case.one % len(self._values)]
        kept = [column for column in self._stored.names if column in (KEY, ORDER, name)]
        few = self._apply(self._nothing.select(kept), pa.concat_tables(records).select([*kept, DELETED]))
        return ("of all columns", together[1].select(kept)), (f"of {name} alone", few.select(kept))

    def _compacted(self, records: Sequence[pa.Table], case: Case) -> Ways:
        """Return the two ways for records merged ahead from one cut to the other, as by a compaction or within a batch."""
        some = records[case.cut : case.end]
        if not case.cut:
            merged = self._after(self._nothing, some)
            rest = self._after(merged, records[case.end :])
            return ("all together", self._after(self._nothing, records)), (f"after a compaction of {case.end}", rest)
        # Deletes are not merged with rows: a log keeps them.
        gone = pa.concat_arrays([each.filter(each.column(DELETED)).column(KEY).combine_chunks() for each in some])
        records = [each.filter(pc.invert(pc.is_in(each.column(KEY), value_set=gone))) for each in records]
        merged = self._after(self._nothing, records[case.cut : case.end])
        merged = merged.append_column(DELETED, pa.array([False] * merged.num_rows, pa.bool_()))
        ahead = [*records[: case.cut], merged, *records[case.end :]]
        how = f"where {case.cut + 1} to {case.end} were merged ahead"
        return ("all together", self._after(self._nothing, records)), (how, self._after(self._nothing, ahead))

    def _one_by_one(self, records: Iterable[pa.Table]) -> pa.Table:
        stored = self._nothing
        for each in records:
            stored = self._after(stored, [each])
        return stored

    def _after(self, stored: pa.Table, records: Sequence[pa.Table]) -> pa.Table:
        # Records of one position have different keys, so their deletes may come first.
        sorted_ = [part for each in records for part in _split(each)]
        if not sorted_:
            return stored
        return self._apply(stored, pa.concat_tables(sorted_)).select(self._stored.names)


def cases_of(law: str, count: int) -> Iterable[Case]:
    """Return all cases that a law needs for this many records."""
    if law == "compaction":
        return [Case(cut, end) for cut in range(count) for end in range(cut + 1, count + 1)]
    if law == "order":
        return [Case(order=order) for order in permutations(range(count))]
    if law == "deletes":
        return [Case(cut) for cut in range(count + 1)]
    if law == "projection":
        return [Case(one=one) for one in range(5)]
    if law == "replay":
        return [Case(one=one) for one in range(count)]
    return [Case()]


def _split(records: pa.Table) -> list[pa.Table]:
    marks = records.column(DELETED)
    return [part for part in (records.filter(marks), records.filter(pc.invert(marks))) if part.num_rows]


def _deletes(records: pa.Table) -> pa.Table:
    place = records.schema.get_field_index(DELETED)
    return records.set_column(place, DELETED, pa.array([True] * records.num_rows))


def first_difference(one: pa.Table, other: pa.Table) -> str | None:
    """Return the first key whose rows differ between the tables, or None. NaN equals NaN, and -0.0 is not 0.0."""
    if one.equals(other):
        return None
    rows = [{row[KEY]: repr(row) for row in each.to_pylist()} for each in (one, other)]
    keys = [key for key in rows[0].keys() | rows[1].keys() if rows[0].get(key) != rows[1].get(key)]
    return min(keys, key=lambda key: (len(key), key), default=None)


def _shown(name: str, record: Record) -> str:
    if name == DELETED:
        return "yes" if record[name] else ""
    return repr(record[name])


def _told(row: Record) -> str:
    return " ".join(f"{name}={value!r}" for name, value in row.items() if name != KEY)
