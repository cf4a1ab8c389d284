"""Streams at random against a model in memory, after every step: events late and repeated, deletes, open transactions that
land in any order, compactions, restores, cleanings, new handles, columns that a stream gets on the way."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import lakelatch
from lakelatch.errors import CommitError, ConflictError, InputError
from lakelatch.occ.check.check import check
from lakelatch.streams import CLEARED, DELETED, RETRACTED, UPSERT
from lakelatch.testing import FakeEnvironment

from ..thorough import THOROUGH
from .model import Model, Row

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        *[("a1", pa.int64()), ("a2", pa.string()), ("a3", pa.decimal128(20, 2)), ("a_at", pa.int64())],
        *[("b1", pa.float64()), ("b2", pa.string()), ("b_at", pa.timestamp("us", "UTC"))],
        *[("c1", pa.string()), ("c2", pa.int32()), ("c3", pa.int64()), ("c_at", pa.string())],
        *[("c_seq", pa.decimal128(5, 1)), ("d_seq", pa.int32())],
        *[
            ("d1", pa.int64()),
            ("d2", pa.list_(pa.string())),
            ("d3", pa.int64()),
            ("d4", pa.float64()),
            ("d5", pa.string()),
        ],
        ("d_at", pa.float64()),
        *(_KEPT := [("e_at", pa.int64()), ("e_seq", pa.int32()), ("e1", pa.int64()), ("e2", pa.string())]),
        *(
            _MORE := [
                ("e3", pa.list_(pa.string())),
                ("e4", pa.string()),
                ("e5", pa.list_(pa.string())),
                ("e_id", pa.string()),
            ]
        ),
        ("e_events", pa.list_(pa.struct([*_KEPT, *_MORE]))),
    ]
)
DECLARED: dict[str, dict[str, Any]] = {
    "a": {
        "columns": ["a1", "a2", "a3"],
        "ordering": "a_at",
        "on_delete": "row",
        "merge": {"a3": "sum"},
        "foreign_readers": False,
    },
    "b": {
        "columns": ["b1", "b2"],
        "ordering": "b_at",
        "default": {"b1": 0.5},
        "null": "write",
        "foreign_readers": False,
    },
    "c": {"columns": ["c1", "c2"], "ordering": ["c_at", "c_seq"], "on_delete": "ignore", "default": {"c2": -1}},
    "d": {
        "columns": ["d1", "d2", "d3", "d5"],
        "ordering": ["d_at", "d_seq"],
        "merge": {"d1": "sum", "d2": "collect_set(2)", "d3": "count"},
        "default": {"d1": 5},
        "null": "write",
        "foreign_readers": False,
    },
}
DECLARED["e"] = {
    "columns": ["e1", "e2", "e3", "e4", "e5"],
    "ordering": ["e_at", "e_seq"],
    "merge": {"e1": "sum", "e2": "first", "e3": "top_n(2)", "e5": "collect_list(3)"},
    "event_id": "e_id",
    "events": "e_events",
    "foreign_readers": False,
}
KINDS = {"a": DELETED, "b": CLEARED, "d": CLEARED, "e": CLEARED}
IDS, PARTS = ["k", "ü𝄞{}%s", "k2", "k3"], ["p", "q"]
_WAYS = st.sampled_from([1, -1])
_SOME_PARTS = st.none() | st.sampled_from([{*PARTS}, *({each} for each in PARTS)])
_TEXTS = st.none() | st.sampled_from(["", "x", "{}%𝄞"])
_VALUES = {
    "a1": st.none() | st.integers(-3, 3),
    "a2": _TEXTS,
    "a3": st.none() | st.integers(-3, 3).map(lambda n: Decimal(n) / 4),
    "a_at": st.integers(-2, 4),
    "b1": st.none() | st.sampled_from([-0.0, 1.5, float("inf")]),
    "b2": _TEXTS,
    "b_at": st.sampled_from([-(10**16), -1, 0, 1, 2]),
    "c1": _TEXTS,
    "c2": st.none() | st.integers(0, 2),
    "c3": st.none() | st.integers(7, 9),
    "c_at": st.sampled_from(["", "1", "2", "ü", "𝄞"]),
    "d1": st.none() | st.integers(-3, 3),
    "d2": st.none() | st.lists(_TEXTS.filter(lambda text: text is not None), max_size=3),
    "d3": st.none() | st.just(7),
    "d4": st.none() | st.sampled_from([-1.5, 0.0, 2.5]),
    "d5": _TEXTS,
    "d_at": st.sampled_from([-1.5, 0.0, 1.0, 2.0]),
    "d_seq": st.integers(-1, 1),
    "c_seq": st.integers(-1, 1).map(lambda n: Decimal(n) / 2),
    "e1": st.none() | st.integers(-3, 3),
    **dict.fromkeys(("e2", "e4"), _TEXTS),
    **dict.fromkeys(("e3", "e5"), st.none() | st.lists(_TEXTS.filter(lambda text: text is not None), max_size=3)),
    "e_at": st.integers(-2, 4),
    "e_seq": st.integers(0, 1),
    "e_id": st.sampled_from(["", "x", "ü", "\ue000", "𝄞"]),
}


def _epoch(value: int) -> Any:
    return pa.scalar(value, pa.timestamp("us", "UTC")).as_py()


class Machine(RuleBasedStateMachine):
    """Two handles write; `open` are transactions that have staged events and not landed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        url = str(Path(self.folder.name) / "t")
        self.env = FakeEnvironment(seed=1)
        self.table = lakelatch.create(
            url,
            record_key="id",
            partition_by="part",
            schema=SCHEMA,
            type="merge_on_read",
            table_version=9,
            bucket_count=2,
            env=self.env,
        )
        for name, given in DECLARED.items():
            self.table.stream(name, **given)
        self.other = lakelatch.open(url, env=self.env, writer="other")
        self.model = Model(("part", "id"), list(self.table.streams))
        self.open: list[tuple[Any, list[tuple[str, str, list[Row]]]]] = []
        self.doomed: set[Any] = set()
        self.batches = ((f"source {n}", 1) for n in itertools.count())
        self.states: list[tuple[str, str, Any]] = []  # T and C of commits, and what the model held then

    @rule(data=st.data(), name=st.sampled_from(sorted(DECLARED)), delete=st.booleans(), second=st.booleans())
    def write(self, data: Any, name: str, *, delete: bool, second: bool) -> None:
        """One commit of one stream."""
        table = self.other if second else self.table
        batch = self.batch(data, name, delete=delete)
        stream = table.stream(name)
        number = next(self.batches)
        for again in (False, True)[: 1 + second]:  # after a crash
            assert (stream.delete if delete else stream.upsert)(batch, batch=number).repeated == again
        self.landed([(name, delete, batch)])

    @rule(data=st.data())
    def retract(self, data: Any) -> None:
        """Events are taken back that were there, that were not yet, and both in the transaction that sends them."""
        sent, back = (self.batch(data, "e", delete=False) for _ in range(2))
        with self.table.transaction("upsert") as txn:
            for events, given in ((txn.stream("e").upsert, sent), (txn.stream("e").retract, back))[:: data.draw(_WAYS)]:
                events(given)
        with self.table.transaction("upsert") as txn:
            txn.stream("e").retract(back[:1])
        self.model.apply("e", UPSERT, sent)
        self.model.apply("e", RETRACTED, back)
        self.landed([])

    @rule(
        data=st.data(), second=st.booleans(), names=st.lists(st.sampled_from(sorted(DECLARED)), min_size=1, max_size=2)
    )
    def overwrite(self, data: Any, names: list[str], *, second: bool) -> None:
        """Streams are overwritten in some partitions, in one commit; beside an event of another handle it loses."""
        table, staged = (self.other, self.table)[:: data.draw(_WAYS)][0], list[tuple[str, set[str], list[Row]]]()
        txn = table.transaction("insert_overwrite", batch=next(self.batches))
        for name in names:
            batch, parts = self.batch(data, name, delete=False, most=2), data.draw(_SOME_PARTS)
            named = None if parts is None else [{"part": each} for each in sorted(parts)]
            parts = {each["part"] for each in batch} if parts is None else parts
            batch = [each for each in batch if each["part"] in parts]
            txn.stream(name).overwrite(batch, partitions=named)
            staged.append((name, parts, batch))
        all_parts = {part for _, parts, _ in staged for part in parts}
        if second:
            beside = self.batch(data, "c", delete=False, most=1)
            self.table.stream("c").upsert(beside)
            self.landed([("c", False, beside)])
            if any(each["part"] in all_parts for each in beside):
                with pytest.raises(ConflictError):
                    txn.commit()
                return
        if data.draw(st.sampled_from([True, False, False, False])):
            txn.abort()
            return
        assert txn.commit() is not None
        for name, parts, batch in staged:
            self.model.overwrite(name, parts, batch)
        self.lose(all_parts)
        self.landed([])

    @rule(part=st.none() | st.sampled_from(PARTS), planned=st.booleans())
    def drop(self, part: str | None, *, planned: bool) -> None:
        """A partition goes, or all rows; a compaction that was planned ends then."""
        plan = self.other.plan_compaction() if planned else None
        parts = {*PARTS} if part is None else {part} & {key[0] for key in self.model.states}
        if parts:
            self.other.delete_all(partition=None if part is None else {"part": part})
            self.model.drop(parts)
            self.lose(parts)
            self.landed([])
        if plan:
            with contextlib.suppress(ConflictError):
                self.table.execute(plan)

    def lose(self, parts: set[str]) -> None:
        """Who is at work in these partitions does not land."""
        for txn, staged in self.open:
            written = (batch for name, delete, batch in staged if not delete or name in KINDS)
            if any(each["part"] in parts for batch in written for each in batch):
                self.doomed.add(txn)

    @precondition(lambda self: len(self.open) < 3)
    @rule(
        data=st.data(),
        names=st.lists(st.tuples(st.sampled_from(sorted(DECLARED)), st.booleans()), min_size=1, max_size=3),
    )
    def begin(self, data: Any, names: list[tuple[str, bool]]) -> None:
        """Stage events, of several streams perhaps, in a transaction that lands later."""
        txn, staged = self.table.transaction("upsert", batch=next(self.batches)), []
        for name, delete in names:
            batch = self.batch(data, name, delete=delete)
            stream = txn.stream(name)
            (stream.delete if delete else stream.upsert)(batch)
            staged.append((name, delete, batch))
        self.open.append((txn, staged))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), lands=st.sampled_from([True, True, True, False]))
    def end(self, data: Any, *, lands: bool) -> None:
        """One of the open ones ends, in whatever order."""
        txn, staged = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if not lands:
            txn.abort()
            return
        empty = all(not batch or (delete and name not in KINDS) for name, delete, batch in staged)
        if txn in self.doomed:  # without events it may land, and changes nothing
            with contextlib.suppress(CommitError) if empty else pytest.raises(CommitError):
                txn.commit()
            return
        assert txn.commit() is not None, "that there were no events is remembered too"
        self.landed(staged)

    @precondition(lambda self: len(self.states) > 1)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        """A state that has been is there again; who is at work meanwhile loses."""
        self.states = self.states[: data.draw(st.integers(1, len(self.states)))]
        instant, _, states = self.states[-1]
        took_back = self.other.restore(instant).completion is not None  # else it was the newest state
        self.model.states = deepcopy(states)
        self.doomed |= {txn for txn, _ in self.open} if took_back else set()

    @rule(second=st.booleans())
    def compact(self, *, second: bool) -> None:
        """Anyone who is open meanwhile lands on the new base files."""
        (self.other if second else self.table).compact()

    @rule(data=st.data())
    def compact_beside(self, data: Any) -> None:
        """What lands between a plan and its execution is on top of it."""
        planned = self.other.plan_compaction()
        self.write(data, "a", delete=False, second=False)
        if planned:
            self.table.execute(planned)

    @rule()
    def clean(self) -> None:
        """Old slices go."""
        self.table.clean(retain_commits=1)
        self.states.clear()  # the newest state may be that of a compaction since

    @rule()
    def extend(self) -> None:
        """Streams get columns, with a default for rows that appear from now on, and with a merger."""
        self.other.stream("c", **{**DECLARED["c"], "columns": ["c1", "c2", "c3"], "default": {"c2": -1, "c3": 7}})
        given = DECLARED["d"]
        merge, default = {**given["merge"], "d4": "max"}, {**given["default"], "d4": -1.0}
        self.other.stream("d", **{**given, "columns": [*given["columns"], "d4"], "merge": merge, "default": default})
        for each in self.other.streams:
            self.model.declare(each)

    @rule(default=st.sampled_from([None, -0.0, 7.5]), back=st.booleans())
    def change(self, default: float | None, *, back: bool) -> None:
        """A stream gets another default, or is dropped and comes back without one; who is at work meanwhile loses."""
        before = self.other.streams
        if back:
            self.other.stream("b").drop()
            with pytest.raises(InputError, match="was dropped"):
                self.table.stream("b").delete([{"id": IDS[0], "part": PARTS[0], "b_at": _epoch(5)}])
            self.other.stream("b").undrop()
        else:
            self.other.stream("b").alter(default={"b1": default})
        for each in self.other.streams:
            self.model.declare(each)
        self.doomed |= {txn for txn, _ in self.open} if self.other.streams != before else set()

    @invariant()
    def same(self) -> None:
        """What is read is the serial merge of all that landed, with all columns and with a few."""
        expected = self.model.rows()
        for table in (self.table, self.other):
            assert self.content(table) == expected
        fresh = lakelatch.open(self.table.url, env=self.env)
        for few in (["b1"], ["d2"], ["e1"], ["e2", "a1"]):
            assert self.content(fresh, ["part", "id", *few]) == {
                key: {n: row[n] for n in few} for key, row in expected.items()
            }
        assert fresh.read().count() == len(expected)
        fresh.close()
        if self.states:
            _, moment, states = self.states[0]
            past = {key: state.values.get("a1") for key, state in states.items() if state.there}
            read = self.table.read(as_of_completion=moment).to_pylist()
            assert {(row["part"], row["id"]): row["a1"] for row in read} == past

    def batch(self, data: Any, name: str, *, delete: bool, most: int = 5) -> list[Row]:
        stream = next(each for each in self.table.session.streams if each.name == name)
        columns = [*stream.ordered_by, *(() if delete else stream.columns)]
        size = data.draw(st.integers(0, most))
        return [
            {"id": data.draw(st.sampled_from(IDS)), "part": data.draw(st.sampled_from(PARTS))}
            | {each: data.draw(_VALUES[each].map(_epoch) if each == "b_at" else _VALUES[each]) for each in columns}
            for _ in range(size)
        ]

    def landed(self, staged: list[tuple[str, bool, list[Row]]]) -> None:
        for name, delete, batch in staged:
            if not delete or name in KINDS:
                self.model.apply(name, KINDS[name] if delete else UPSERT, batch)
        last = self.table.session.log.catch_up().last
        assert last is not None
        if last.action in ("deltacommit", "replacecommit") and (not self.states or self.states[-1][0] != last.instant):
            self.states.append((last.instant, last.completion, deepcopy(self.model.states)))

    def content(self, table: lakelatch.Table, columns: list[str] | None = None) -> dict[Any, Row]:
        known = {"part", "id", *(column for each in self.model.streams.values() for column in each.own)}
        names = columns or [n for n in SCHEMA.names if n in known]
        read = table.read(columns=names).to_pylist()
        found = {(row.pop("part"), row.pop("id")): row for row in read}
        assert len(found) == len(read), "a key twice"
        return found

    def explained(self) -> None:
        """What is told of each row is what is read of it."""
        found = {}
        for key in IDS:
            for told in self.table.explain_row(key):
                if told.there:
                    cells = {each.column: each.value for each in told.cells}
                    found[cells.pop("part"), cells.pop("id")] = cells
        known = {column for each in self.model.streams.values() for column in each.own}
        names = [n for n in SCHEMA.names if n in known]
        expected = self.content(self.table)
        assert {key: {n: row[n] for n in names if n in row} for key, row in found.items()} == expected

    def teardown(self) -> None:
        for txn, _ in self.open:
            txn.abort()
        self.explained()
        findings = check(self.table.store).findings
        self.table.close()
        self.other.close()
        self.folder.cleanup()
        assert not [each for each in findings if each.severity != "note"]


def test_what_is_read_is_the_serial_merge_of_all_events_whatever_happens_beside():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=15 if THOROUGH else 6,
            stateful_step_count=25,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a story takes minutes; its steps are told
            suppress_health_check=list(HealthCheck),
        ),
    )
