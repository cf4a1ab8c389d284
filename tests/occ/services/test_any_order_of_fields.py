"""Writes, writers side by side and table services in any order on tables that two fields order, against a dict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakelatch
from lakelatch.errors import ConflictError
from lakelatch.occ.check.check import check
from lakelatch.testing import FakeEnvironment

from ...thorough import THOROUGH

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("text", pa.string()), ("number", pa.int32()), ("v", pa.int64())]
)
KEYS = st.sampled_from(["a0", "a1", "b0", "b\U0001f600"])  # the first letter is the partition
ORDERS = st.tuples(st.sampled_from(["", "a", "ä{%s}", "\U0001f600"]), st.integers(-1, 1))
BATCHES = st.lists(st.tuples(KEYS, ORDERS), min_size=1, max_size=4)  # a key may come twice
Order = tuple[str, int]
State = dict[str, tuple[Order, int]]


class AnyOrderOfFields(RuleBasedStateMachine):
    """``v`` is the number of the row, in order of arrival."""

    @initialize(
        type_=st.sampled_from(["copy_on_write", "merge_on_read", "merge_on_read"]), buckets=st.sampled_from([None, 2])
    )
    def begin(self, type_: str, buckets: int | None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.merge_on_read, self.buckets = type_ == "merge_on_read", buckets
        self.table = lakelatch.create(
            str(Path(self.folder.name, "table")), record_key="id", partition_by="part", schema=SCHEMA, type=type_,
            ordering_field=["text", "number"], table_version=9, bucket_count=buckets, env=FakeEnvironment(seed=1),
        )  # fmt: skip
        self.now: State = {}
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "table"):
            assert not [each for each in check(self.table.store).findings if each.severity != "note"]
            self.table.close()
            self.folder.cleanup()

    def _rows(self, batch: list[tuple[str, Order]]) -> list[dict[str, Any]]:
        found = []
        for key, (text, number) in batch:
            self.count += 1
            found.append({"id": key, "part": key[0], "text": text, "number": number, "v": self.count})
        return found

    def _put(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            order = row["text"], row["number"]
            if row["id"] not in self.now or order >= self.now[row["id"]][0]:
                self.now[row["id"]] = order, row["v"]

    @rule(batch=BATCHES)
    def upsert(self, batch: list[tuple[str, Order]]) -> None:
        rows = self._rows(batch)
        self.table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        self._put(rows)

    @rule(ours=BATCHES, theirs=BATCHES)
    def two_writers(self, ours: list[tuple[str, Order]], theirs: list[tuple[str, Order]]) -> None:
        """The second to land is merged again onto what the first has made, or run again."""
        first, second = self._rows(ours), self._rows(theirs)
        late = self.table.transaction()
        late.upsert(pa.Table.from_pylist(second, SCHEMA))
        self.table.upsert(pa.Table.from_pylist(first, SCHEMA))
        self._put(first)
        try:
            late.commit()
        except ConflictError:
            assert self.merge_on_read or {key for key, _ in ours} & {key for key, _ in theirs}
            self.table.upsert(pa.Table.from_pylist(second, SCHEMA))
        self._put(second)

    @rule(batch=st.dictionaries(KEYS, ORDERS, min_size=1, max_size=3))
    def delete_what_is_not_newer(self, batch: dict[str, Order]) -> None:
        rows = self._rows(list(batch.items()))
        self.table.delete(pa.Table.from_pylist(rows, SCHEMA).drop_columns(["v"]))
        self.now = {key: each for key, each in self.now.items() if key not in batch or each[0] > batch[key]}

    @rule(keys=st.sets(KEYS, min_size=1, max_size=3))
    def delete(self, keys: set[str]) -> None:
        self.table.delete([{"id": key, "part": key[0]} for key in sorted(keys)])
        self.now = {key: each for key, each in self.now.items() if key not in keys}

    @rule(number=st.integers(-1, 1), to=st.integers(-1, 1))
    def update_where(self, number: int, to: int) -> None:
        """May give a row an older value, which a log file cannot say."""
        self.table.update_where([("number", "=", number)], set={"number": to})
        self.now = {
            key: ((order[0], to if order[1] == number else order[1]), v) for key, (order, v) in self.now.items()
        }

    @rule()
    def compact(self) -> None:
        self.table.compact()

    @rule()
    def compact_logs(self) -> None:
        self.table.compact_logs(min_logs=2)

    @precondition(lambda self: self.buckets is None)
    @rule()
    def cluster(self) -> None:
        self.table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)

    @invariant()
    def readers_see_the_rows(self) -> None:
        if hasattr(self, "table"):
            found = self.table.read().to_pylist()
            assert len({row["id"] for row in found}) == len(found)
            assert {row["id"]: ((row["text"], row["number"]), row["v"]) for row in found} == self.now
            few = self.table.read(columns=["id", "v"]).to_pylist()
            assert {row["id"]: row["v"] for row in few} == {key: v for key, (_, v) in self.now.items()}


TestAnyOrderOfFields = AnyOrderOfFields.TestCase
TestAnyOrderOfFields.settings = settings(
    max_examples=60 if THOROUGH else 6, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
