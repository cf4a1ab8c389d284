"""Writes and table services in any order, on both types of tables, against a dict; hypothesis shrinks what goes wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakelatch
from lakelatch.errors import InputError
from lakelatch.occ.check.check import check
from lakelatch.testing import FakeEnvironment

from ...thorough import THOROUGH
from ..world import SCHEMA, check_history, content, independent_content

KEYS = st.sampled_from(["a0", "a1", "b0", "b\U0001f600", "a{%s}", "bü 'x'"])  # the first letter is the partition
VALUES = st.integers(-3, 3)
SMALL = {"small_bytes": 1 << 20, "target_bytes": 2 << 20}
State = dict[str, int | None]


class AnyOrder(RuleBasedStateMachine):
    """One writer. ``done``: T, C and state of each commit, of services too; from ``kept`` on all states are whole."""

    @initialize(
        type_=st.sampled_from(["copy_on_write", "merge_on_read", "merge_on_read"]),
        ordering=st.sampled_from([None, "v"]),
        buckets=st.sampled_from([None, None, 2]),
        partial=st.booleans(),
    )
    def begin(self, type_: str, ordering: str | None, buckets: int | None, *, partial: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "table")
        self.ordering, self.buckets, self.partial = ordering, buckets, partial and ordering is None
        merge = {"merge": "partial_update", "table_version": 9} if self.partial else {}
        self.table = lakelatch.create(
            str(self.path), record_key="id", partition_by="part", schema=SCHEMA, type=type_, ordering_field=ordering,
            bucket_count=buckets, env=FakeEnvironment(seed=1), **merge,
        )  # fmt: skip
        self.reader = lakelatch.open(str(self.path), env=FakeEnvironment(seed=2))
        self.now: State = {}
        self.done: list[tuple[str, str, State]] = []
        self.saved: dict[str, State] = {}
        self.kept = 0
        self._note()

    def teardown(self) -> None:
        if hasattr(self, "table"):
            assert not [each for each in check(self.table.store).findings if each.severity != "note"]
            check_history(self.table)
            self.reader.close()
            self.table.close()
            self.folder.cleanup()

    def _note(self) -> None:
        known = {instant for instant, _, _ in self.done}
        for each in self.table.timeline().commits:
            if each.requested not in known:
                self.done.append((each.requested, each.completed or "", dict(self.now)))

    # --- writes --------------------------------------------------------------------------------------------------

    @rule(values=st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
    def upsert(self, values: State) -> None:
        columns = [list(values), [key[0] for key in values], list(values.values())]
        self.table.upsert(pa.table(columns, schema=SCHEMA))
        self.now |= {k: v for k, v in values.items() if not (self.ordering and v < self.now.get(k, v))}
        self._note()

    @precondition(lambda self: self.partial)
    @rule(values=st.dictionaries(KEYS, st.none() | VALUES, min_size=1, max_size=3))
    def update_partly(self, values: State) -> None:
        columns = [list(values), [key[0] for key in values], list(values.values())]
        self.table.upsert(pa.table(columns, schema=SCHEMA))
        self.now |= {key: self.now.get(key) if value is None else value for key, value in values.items()}
        self._note()

    @rule(keys=st.sets(KEYS, min_size=1, max_size=3))
    def delete(self, keys: set[str]) -> None:
        self.table.delete([{"id": key, "part": key[0]} for key in sorted(keys)])
        self.now = {key: value for key, value in self.now.items() if key not in keys}
        self._note()

    @rule(bound=VALUES, step=st.sampled_from([-2, 1]))
    def update_where(self, bound: int, step: int) -> None:
        self.table.update_where([("v", ">", bound)], set={"v": lakelatch.sql(f"v + ({step})")})
        self.now = {
            key: value + step if value is not None and value > bound else value for key, value in self.now.items()
        }
        self._note()

    @rule(bound=VALUES)
    def delete_where(self, bound: int) -> None:
        self.table.delete_where([("v", "<", bound)])
        self.now = {key: value for key, value in self.now.items() if value is None or value >= bound}
        self._note()

    # --- services ------------------------------------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        self.table.compact()
        self._note()

    @rule()
    def compact_logs(self) -> None:
        self.table.compact_logs(min_logs=2)
        self._note()

    @precondition(lambda self: self.buckets is None)
    @rule()
    def cluster(self) -> None:
        self.table.cluster(**SMALL)
        self._note()

    @rule(commits=st.integers(1, 3))
    def clean(self, commits: int) -> None:
        self.table.clean(retain_commits=commits)
        self.kept = max(self.kept, len(self.done) - commits - 1)

    @rule()
    def savepoint(self) -> None:
        instant, _, state = self.done[-1]
        if instant not in self.saved:
            assert self.table.savepoint().instant == instant
            self.saved[instant] = state

    @precondition(lambda self: self.saved)
    @rule()
    def delete_savepoint(self) -> None:
        instant = min(self.saved)
        self.table.delete_savepoint(instant)
        del self.saved[instant]

    @rule(back=st.integers(0, 4))
    def restore(self, back: int) -> None:
        place = max(len(self.done) - 1 - back, 0)
        instant, _, state = self.done[place]
        undone = {each for each, _, _ in self.done[place + 1 :]}
        try:
            self.table.restore(instant)
        except InputError as e:
            refused = undone & self.saved.keys() or (place < self.kept and instant not in self.saved)
            if not refused:
                raise AssertionError(f"nothing is in the way of {instant}") from e
        else:
            assert not undone & self.saved.keys()
            self.done, self.now, self.kept = self.done[: place + 1], dict(state), min(self.kept, place)

    # --- what must be true ---------------------------------------------------------------------------------------

    @invariant()
    def every_reader_sees_the_rows(self) -> None:
        if hasattr(self, "table"):
            assert content(self.table) == self.now
            assert independent_content(self.path) == self.now
            # A handle that only reads goes on from what it has seen before, and comes to what a new one lists.
            with lakelatch.open(str(self.path), env=FakeEnvironment(seed=3)) as fresh:
                assert self.reader.session.latest() == fresh.session.latest()

    @rule(back=st.integers(0, 5))
    def look_back(self, back: int) -> None:
        place = max(len(self.done) - 1 - back, 0)
        instant, completed, state = self.done[place]
        if place < self.kept and instant not in self.saved:
            return
        with self.table.pinned(as_of_completion=completed) as view:
            found = view.read(columns=["id", "v"]).to_arrow()
            assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == state


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=60 if THOROUGH else 8, stateful_step_count=16, deadline=None, suppress_health_check=list(HealthCheck)
)
