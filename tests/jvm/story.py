"""A table and what it should hold: each change is written through lakelatch and noted, so that a serial replay of the
notes says what every reader must see, at every moment.

The writing is what any plain-Python writer does: read the file groups that a change meets, merge, replace them; or, on
merge-on-read tables, append to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch.hudi.files.file_names import bucket_of, new_file_id
from lakelatch.hudi.merge.rows import merge, remove
from lakelatch.hudi.table.partition_path import partition_path, partition_paths
from lakelatch.hudi.table.record_keys import RECORD_KEY, bucket_ids, key_parts, record_keys

Row = dict[str, Any]
_ID = "00000000-0000-4000-8000-0000000000{:02}"


class Step(NamedTuple):
    """One part of a change: rows that were put, rows whose keys were deleted, or a partition that was emptied."""

    kind: Literal["put", "delete", "empty"]
    rows: Sequence[Row] = ()
    partition: tuple[Any, ...] | None = None


class Landed(NamedTuple):
    """A change that every reader must see: T, C and what it did.

    ``carries``: T of one with a larger T whose file group it replaced: merged again, its rows stand in a new one.
    """

    instant: str
    completion: str
    steps: Sequence[Step]
    carries: str = ""


class Story:
    """A table of its own below ``folder``, and its changes that landed, in the order in which they did."""

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        *,
        record_key: Sequence[str] = ("id",),
        partition_by: Sequence[str] = (),
        ordering: str | None = None,
        **options: Any,
    ) -> None:
        self.path, self.schema = folder, schema
        self.key, self.ordering = tuple(record_key), ordering
        self.table = lakelatch.create(
            str(folder),
            record_key=record_key,
            partition_by=partition_by,
            ordering_field=ordering,
            schema=schema,
            writer="story",
            **options,
        )
        self.partition = self.table.config.partition_fields
        (floor,) = self.table.timeline().commits
        assert floor.completed
        # The empty commit that a table begins with: a moment of its own, at which there are no rows.
        self.landed = [Landed(floor.requested, floor.completed, ())]
        self.as_of_works = True  # not in the JVM while a transaction is open, nor where new columns have a smaller T
        self.about_commits = (
            True  # its point is what happened in which order, not what rows, types or folders there are
        )
        self._groups = 0

    def begin(self, operation: str = "upsert") -> Change:
        return Change(self, operation)

    def insert(self, rows: Sequence[Row]) -> Landed:
        return self.begin("insert").put(rows).commit()

    def upsert(self, rows: Sequence[Row]) -> Landed:
        return self.begin("upsert").put(rows).commit()

    def delete(self, rows: Sequence[Row]) -> Landed:
        return self.begin("delete").delete(rows).commit()

    def overwrite(self, partition: tuple[Any, ...] | None, rows: Sequence[Row]) -> Landed:
        name = "insert_overwrite_table" if partition is None else "insert_overwrite"
        return self.begin(name).empty(partition).put(rows).commit()

    def widen(self, field: pa.Field) -> None:
        """Rows may have one more column from here on."""
        self.schema = self.schema.append(field)

    def alter(self, name: str, kind: pa.DataType) -> Landed:
        """A column, or a part of one, is added, or has a wider type, by a commit without rows."""
        change = "widen_column" if _has(self.schema, name) else "add_column"
        return self._altered(lambda txn: getattr(txn, change)(name, kind))

    def drop(self, name: str) -> Landed:
        """A column, or a part of one, is dropped by a commit without rows. All moments are noted without it."""
        self.as_of_works = False  # back there its columns are others
        return self._altered(lambda txn: txn.drop_column(name))

    def _altered(self, change: Callable[[lakelatch.Transaction], None]) -> Landed:
        with self.table.transaction("insert") as txn:
            change(txn)
        self.schema = self.table.schema()
        self.landed.append(Landed(txn.instant, txn.result.completion, ()))
        return self.landed[-1]

    def roll_back(self, change: Change) -> None:
        """Another writer ends this transaction, as if its heartbeat had stopped."""
        with lakelatch.open(str(self.path), writer="cleaner") as other:
            begin = other.session.log.catch_up().open[change.instant]
            assert other.session.cleaner.roll_back(begin, reason="a test asked for it")

    def rows(self, *, as_of: str | None = None, begin: str = "", end: str | None = None) -> list[Row]:
        """What a reader must see: the changes with T not after ``as_of`` and C not after ``end``, and of their rows
        those that a change with C after ``begin`` wrote."""
        state: dict[tuple[Any, ...], tuple[Row, str]] = {}
        for change in self.landed:
            if (as_of is None or change.instant <= as_of) and (end is None or change.completion <= end):
                for step in change.steps:
                    self._apply(step, change.completion, state)
        return [row for row, completion in state.values() if completion > begin]

    def _apply(self, step: Step, completion: str, state: dict[tuple[Any, ...], tuple[Row, str]]) -> None:
        names = self.schema.names
        if step.kind == "empty":
            for place in [p for p, (row, _) in state.items() if step.partition in (None, self.partition_of(row))]:
                del state[place]
        for row in step.rows:
            place = (self.partition_of(row), *(row[k] for k in self.key))
            if step.kind == "delete":
                state.pop(place, None)
            elif not (self.ordering and place in state and row[self.ordering] < state[place][0][self.ordering]):
                state[place] = ({name: row.get(name) for name in names}, completion)

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.partition)

    def file_id(self, bucket: int | None = None) -> str:
        self._groups += 1
        return new_file_id(_ID.format(self._groups), bucket=bucket)


def _has(schema: pa.Schema, path: str) -> bool:
    name, *inside = path.split(".")
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    for each in inside:
        if not pa.types.is_list(kind) and kind.get_field_index(each) < 0:
            return False
        kind = kind.value_type if pa.types.is_list(kind) else kind.field(each).type
    return True


class Change:
    """One transaction of a story; `commit` notes it."""

    def __init__(self, story: Story, operation: str) -> None:
        self._story = story
        self._txn = story.table.transaction(operation)
        self.instant = self._txn.instant
        self.steps: list[Step] = []

    def put(self, rows: Sequence[Row]) -> Change:
        """Insert or update rows; each partition's new rows make one file group, or one for each bucket."""
        self.steps.append(Step("put", rows))
        story, txn = self._story, self._txn
        if not rows:
            return self
        arrow = pa.Table.from_pylist(list(rows), schema=story.schema)
        if story.table.config.merge_on_read:
            txn.upsert(arrow, new_columns="add")
            return self
        arrow = arrow.append_column(RECORD_KEY, record_keys(arrow, story.key))
        paths = partition_paths(arrow, story.table.config)
        for path in paths.unique().to_pylist():
            part = arrow.filter(pc.equal(paths, path))
            groups = [] if self._emptied(path) else txn.snapshot.file_slices(path)
            for group in groups:
                base = txn.read_slice(group, meta=True)
                known = part.filter(pc.is_in(part[RECORD_KEY], base[RECORD_KEY].combine_chunks()))
                if bucket_of(group.file_id) is not None and story.table.settings.bucket_count:
                    known = part.filter(pa.array(self._buckets(part) == bucket_of(group.file_id)))
                if known.num_rows:
                    with txn.rewrite(group) as file:
                        file.write(merge(base, known, ordering=[story.ordering] if story.ordering else []).rows)
                part = part.filter(pc.invert(pc.is_in(part[RECORD_KEY], known[RECORD_KEY].combine_chunks())))
            self._create(path, part)
        return self

    def _create(self, path: str, rows: pa.Table) -> None:
        if not self._story.table.settings.bucket_count:
            if rows.num_rows:
                with self._txn.new_file(path, file_id=self._story.file_id()) as file:
                    file.write(rows)
            return
        bucket_count = self._buckets(rows)
        for bucket in sorted(set(bucket_count.tolist())):
            with self._txn.new_file(path, file_id=self._story.file_id(bucket)) as file:
                file.write(rows.filter(pa.array(bucket_count == bucket)))

    def _buckets(self, rows: pa.Table) -> Any:
        bucket_count = self._story.table.settings.bucket_count
        assert bucket_count is not None
        return bucket_ids(key_parts(rows, self._story.key), bucket_count)

    def delete(self, rows: Sequence[Row]) -> Change:
        """Delete the rows with the keys of these."""
        self.steps.append(Step("delete", rows))
        story, txn = self._story, self._txn
        arrow = pa.Table.from_pylist(list(rows), schema=story.schema)
        if story.table.config.merge_on_read:
            config = story.table.config  # without an ordering value, which would spare newer rows
            txn.delete(arrow.select([*config.record_key_fields, *config.partition_fields]))
            return self
        keys, paths = record_keys(arrow, story.key), partition_paths(arrow, story.table.config)
        for path in paths.unique().to_pylist():
            wanted = keys.filter(pc.equal(paths, path))
            for group in txn.snapshot.file_slices(path):
                left = remove(txn.read_slice(group, meta=True), wanted)
                if left.changed:
                    with txn.rewrite(group) as file:
                        file.write(left.rows)
        return self

    def empty(self, partition: tuple[Any, ...] | None) -> Change:
        """Replace everything in a partition (None: the table)."""
        self.steps.append(Step("empty", partition=partition))
        path = None if partition is None else partition_path(partition, self._story.table.config)
        self._txn.drop_file_groups(self._txn.snapshot.file_slices(path))
        self._txn.overwrites(path)
        return self

    def _emptied(self, path: str) -> bool:
        config = self._story.table.config
        emptied: Iterable[Step] = (s for s in self.steps if s.kind == "empty")
        return any(s.partition is None or partition_path(s.partition, config) == path for s in emptied)

    def commit(self, *, carries: Landed | None = None) -> Landed:
        """``carries``: what it is merged with again, because that landed first and has a larger T."""
        self._txn.merge_on_conflict()
        result = self._txn.commit()
        assert result is not None
        landed = Landed(result.instant, result.completion, self.steps, carries.instant if carries else "")
        self._story.landed.append(landed)
        return landed

    def abort(self) -> None:
        self._txn.abort()
