"""Merging rows into a table by clauses, for rows that match stored ones and for rows that do not.

A row of the source (``s``) matches the row of the table (``t``) with the same record key in the same partition. The first
clause of its kind whose condition is true decides; without one the row is left as it is.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import suggesting
from ...conflict import Region
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.merge import Merged, plain, widened
from ...hudi.table import RECORD_KEY, one_array, partition_list
from ...hudi.timeline import WriteStat
from ..incoming import Incoming, refuse_new_columns
from ..rebase import refuse_known, refuse_read_rows
from ..staging import TaskFiles, WritePlan, apply, held_keys, read_slice, write_successor
from ..staging import units as units_of
from ..turns import take_turn, targets
from .new_values import NewValues, with_values
from .row_writes import Received, Write, Writer

if TYPE_CHECKING:
    from ...conditions import Condition, Given
    from ...hudi.table import TableConfig
    from ..rebase import Lost, Unit
    from ..session import Session

R = TypeVar("R")
ALL = "all"


@dataclass(frozen=True)
class Clause:
    """A clause as the caller gave it; values None: delete the row."""

    where: Given
    values: Any


Asked = tuple[Clause, ...]


@suggesting
class Merge(Generic[R]):
    """A builder of a merge by clauses; `run` executes it. Made by ``merge`` of a table or transaction."""

    def __init__(self, url: str, finish: Callable[[Asked, Asked], R]) -> None:
        self._url, self._finish = url, finish
        self._matched: list[Clause] = []
        self._new: list[Clause] = []
        self._ends = False  # it was run, or refused

    def when_matched(
        self, where: Given = None, *, update: str | Mapping[str, Any] | None = None, delete: bool = False
    ) -> Self:
        """Add a clause for rows of the table that a row of the source matches.

        Args:
            where: a condition over ``s`` and ``t``, as ``"s.updated > t.updated"``; None: always.
            update: ``"all"``, all columns from the source; or values by column, plain ones or `lakelatch.sql` over ``s`` and
                ``t``. Other columns stay as they are. The ordering field decides nothing here.
            delete: delete the row.
        """
        if delete is (update is not None):
            self._ends = True
            raise InputError(
                'a clause says either `update="all"` (or values by column) or `delete=True`; nothing was written'
            )
        self._matched.append(Clause(where, None if delete else update))
        return self

    def when_not_matched(self, where: Given = None, *, insert: str | Mapping[str, Any]) -> Self:
        """Add a clause for rows of the source that match no row of the table.

        Args:
            where: a condition over ``s``; None: always.
            insert: ``"all"``, the row as it is; or values by column, as for `when_matched`. Key and partition come from the
                source; columns that are not named are null.
        """
        self._new.append(Clause(where, insert))
        return self

    def run(self) -> R:
        """Execute the merge: from a table in a transaction of its own, with retries; from a transaction, stage it there.

        Raises:
            InputError: there is no clause; the source has a key twice and no ordering field decides; a condition or value
                does not fit the columns.
        """
        self._ends = True
        if not (self._matched or self._new):
            raise InputError(
                f"the merge into {self._url} has no clause; say `when_matched(...)` or `when_not_matched(...)`; "
                "nothing was written"
            )
        return self._finish(tuple(self._matched), tuple(self._new))

    def __del__(self) -> None:
        # As Python warns of a coroutine that was never awaited: without `run` the call looks like one that has written.
        if not getattr(self, "_ends", True) and (self._matched or self._new) and not sys.is_finalizing():
            warnings.warn(
                f"a merge into {self._url} was dropped without `.run()`; nothing was written",
                RuntimeWarning,
                stacklevel=2,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        self._ends = True
        raise InputError(
            f"a merge into {self._url} cannot travel: it belongs to the process that began it, and has not run. Hand over the "
            "table and the rows, and begin it there"
        )


def merging(session: Session, given: Any, new_columns: str, zone: str | None, finish: Callable[[Write], R]) -> Merge[R]:
    """See `Transaction.merge`; `Merge.run` passes the write to ``finish``."""
    incoming = Incoming(given, session.url, session.config, new_columns=new_columns, zone=zone)

    def put_together(matched: Asked, new: Asked) -> R:
        stage = partial(stage_merge, incoming=incoming, matched=matched, new=new)
        return finish(Write("upsert", stage, Received(session, incoming, incoming.source)))

    return Merge(session.url, put_together)


def stage_merge(txn: Writer, incoming: Incoming, matched: Asked, new: Asked) -> None:
    """Merge rows by clauses into the file groups that hold their keys."""
    txn.workspace.refuse_merge("merge")
    config = txn.session.config

    def planned() -> tuple[WritePlan, pa.Table] | None:
        schema = txn.workspace.written_schema
        rows = incoming.source(schema)
        if not rows.num_rows:
            return None
        clauses = Clauses.of(
            matched, new, schema, rows.schema, txn.url, config, txn.workspace.required, adds=incoming.adds
        )
        now = txn.workspace.current
        slices = {each: tuple(now.file_slices(each)) for each in partition_list(rows, config)}
        spec = txn.workspace.file_spec(clauses.schema)
        return WritePlan(spec, slices, combine=clauses, on_disk=incoming.on_disk), rows

    def aimed_at(near: Region) -> Iterable[FileGroupId]:
        if (made := planned()) is None:
            return ()
        slices = {path: each for path, each in made[0].slices.items() if near.covers(path)}
        plan = WritePlan(made[0].spec, slices, on_disk=made[0].on_disk)
        return map(txn.workspace.changes.place_of, targets(plan, made[1]))

    take_turn(txn, aimed_at)
    # Read and planned only now: the transaction may have waited, and restarted with another workspace.
    workspace = txn.workspace
    workspace.next_write()
    if (made := planned()) is None:
        return
    plan, rows = made
    assert isinstance(plan.combine, Clauses)
    hook = workspace.hook_of(_ClausesAgain)
    if hook.rows is not None:
        # The second merge depends on the rows of the first, so a rebase cannot repeat one without the other.
        workspace.rebase = None
    hook.rows, hook.clauses = rows, plan.combine
    incoming.kept_by(hook.forget)
    with (
        workspace.staging(),
        TaskFiles(plan.spec, 0, threads=txn.session.threads, report=txn.workspace.report) as files,
    ):
        apply(plan, rows, files)
        workspace.add(files.stats())
    for partition in plan.slices:
        workspace.mark_lookup(partition)
    hook.idle |= plan.combine.idle


class _ClausesAgain:
    """The rebase of a merge by clauses: evaluate it again on the file groups as others have changed them."""

    by_condition: ClassVar = False

    def __init__(self) -> None:
        self.rows: pa.Table | None = None
        self.clauses: Clauses | None = None
        self.idle = False

    def forget(self) -> None:
        """Drop the rows: no rebase follows."""
        self.rows = None

    def __call__(self, lost: Lost) -> list[WriteStat]:
        assert self.rows is not None
        assert self.clauses is not None
        plan = WritePlan(lost.spec, combine=self.clauses)
        units = [
            (place, bucket, plan.one_of_each(rows).slice()) for place, bucket, rows in units_of(plan.spec, self.rows)
        ]
        for own in lost.appended:
            met = [_keys(rows) for partition, _bucket, rows in units if partition == own.current.partition]
            refuse_read_rows(lost, own, pa.concat_arrays(met))
        for each in lost.appeared:
            here = [rows for partition, _bucket, rows in units if partition == each.partition]
            # A row that changed nothing may now match a row that appeared there, or no longer match one that left.
            if self.idle and here:
                raise lost.same_row(here[0].column(RECORD_KEY).slice(0, 100).to_pylist())
            for rows in here:
                refuse_known(lost, each, _keys(rows))
        with TaskFiles(lost.spec, 0, round=lost.round) as files:
            for unit in lost.units:
                mine = [rows for partition, _bucket, rows in units if partition == unit.partition]
                if mine:
                    _merge_unit(lost, unit, pa.concat_tables(mine), self.clauses, files)
            return files.stats()


def _merge_unit(lost: Lost, unit: Unit, rows: pa.Table, clauses: Clauses, files: TaskFiles) -> None:
    """Merge the source rows whose keys are or were in the unit; a key that no slice holds now goes to the first slice."""
    keys = _keys(rows)
    held = [held_keys(lost.spec, each) for each in unit.current]
    was = [held_keys(lost.spec, each) for own in unit.ours for each in (own.path, own.old) if each]
    for number, current in enumerate(unit.current):
        mine = pc.is_in(keys, value_set=held[number])
        if not number:
            elsewhere = pc.is_in(keys, value_set=pa.concat_arrays(held))
            mine = pc.or_(mine, pc.and_not(pc.is_in(keys, value_set=pa.concat_arrays(was)), elsewhere))
        merged = clauses(read_slice(lost.spec, current), rows.filter(mine))
        write_successor(files, current, merged, lost.file_id(current))


# --- clauses -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clause:
    where: Condition | None
    values: NewValues | None  # None: all columns from the source
    delete: bool = False


class Clauses:
    """Clauses bound to the columns of table and source; a `Combine`.

    Attributes:
        schema: the columns of the table, with those that the clauses add.
        idle: True if some row of the source changed nothing.
    """

    def __init__(
        self, matched: list[_Clause], new: list[_Clause], schema: pa.Schema, kept: list[str], times: Collection[str]
    ) -> None:
        self._matched, self._new, self.schema, self._kept = matched, new, schema, kept
        self._times = times  # a time may change within its partition
        self.idle = False
        self._read = {side: _read(side, *matched, *new) for side in ("s", "t")}

    @classmethod
    def of(
        cls,
        matched: Iterable[Clause],
        new: Iterable[Clause],
        known: pa.Schema | None,
        source: pa.Schema,
        url: str,
        config: TableConfig,
        required: Collection[str],
        *,
        adds: bool = False,
    ) -> Clauses:
        """Check and bind clauses.

        Args:
            matched: clauses for source rows that match.
            new: clauses for the other source rows.
            known: the columns of the table; None: it has none, and gets those of the source.
            source: the columns of the source.
            url: the table's URL, for messages.
            config: the table's properties.
            required: columns declared not null.
            adds: with ``"all"``, add columns to the table that it lacks and no clause names.

        Raises:
            InputError: a condition or value does not fit; or, with ``"all"``, the source lacks columns or has other ones.
        """
        from ...conditions import condition_on

        schema = source if known is None else known
        s, t = (pa.field(side, pa.struct(list(each))) for side, each in (("s", source), ("t", schema)))
        kept = [*config.record_key_fields, *config.partition_fields]
        kept += [name for name in config.placed_by if name not in kept]

        def bound(asked: Clause, over: pa.Schema) -> _Clause:
            where = None if asked.where is None else condition_on(over, asked.where)
            if asked.values is None:
                return _Clause(where, None, delete=True)
            if not isinstance(asked.values, str):
                return _Clause(where, NewValues(asked.values, schema, over, url, config, required))
            if asked.values != ALL:
                raise InputError(f'{asked.values!r} is neither "all" nor values by column; nothing was written')
            return _Clause(where, None)

        both = [bound(each, pa.schema([s, t])) for each in matched], [bound(each, pa.schema([s])) for each in new]
        clauses = [*both[0], *both[1]]
        if any(each.values is None and not each.delete for each in clauses):
            named = _read("s", *clauses)
            more = [each for each in source if each.name not in (*schema.names, *named)]
            if not adds:
                refuse_new_columns([each.name for each in more], known, url)
            if missing := [name for name in schema.names if name not in source.names]:
                raise InputError(
                    f'"all" wants every column of {url}, and the rows lack {", ".join(missing)}; give these columns, or name '
                    "values by column; nothing was written",
                    columns=missing,
                )
            schema = pa.schema([*schema, *more])
        for each in new:
            given = [*kept, *(each.values if isinstance(each.values, Mapping) else schema.names)]
            if lacking := [name for name in required if name not in given]:
                raise InputError(
                    f"an inserted row would have no value for {', '.join(lacking)} of {url}, declared not null; name it among "
                    "the values of the clause; nothing was written",
                    columns=lacking,
                )
        times = set(config.placed_by) - {*config.record_key_fields, *config.partition_fields}
        return cls(*both, schema, kept, times)

    def __call__(self, base: pa.Table | None, incoming: pa.Table) -> Merged:
        """Apply the clauses to the rows of a slice (None: there is no slice); inserted rows come last."""
        base = self.schema.empty_table().append_column(RECORD_KEY, pa.array([], pa.string())) if base is None else base
        match = pc.index_in(_keys(incoming), value_set=_keys(base))
        there = np.asarray(match.is_valid())
        places = np.asarray(pc.fill_null(match, 0)).astype(np.int64)[there]
        gone, changed = self._meet(base, places, incoming.filter(pa.array(there)))
        added = self._added(incoming.filter(pa.array(~there)))
        deletes, updates, inserts = int(gone.sum()), sum(len(where) for where, _ in changed), added.num_rows
        self.idle |= deletes + updates + inserts < incoming.num_rows
        if not (deletes or updates or inserts):
            return Merged(base)
        wide = [*base.schema, *(each for each in self.schema if each.name not in base.column_names)]
        schema = pa.schema(wide)
        source, pieces, size = np.arange(base.num_rows), [widened(base, schema)], base.num_rows
        for where, rows in changed:
            source[where] = size + np.arange(len(where))
            pieces.append(widened(rows, schema))
            size += len(where)
        if inserts:
            pieces.append(widened(added, schema))
        order = np.concatenate([source[~gone], size + np.arange(inserts)])
        return Merged(pa.concat_tables(pieces).take(pa.array(order)), inserts, updates, deletes)

    def _meet(
        self, base: pa.Table, places: npt.NDArray[np.int64], source: pa.Table
    ) -> tuple[npt.NDArray[np.bool_], list[tuple[npt.NDArray[np.int64], pa.Table]]]:
        """Return for the matching rows a mark for each deleted one, and the changed ones with their places."""
        gone = np.zeros(base.num_rows, bool)
        changed: list[tuple[npt.NDArray[np.int64], pa.Table]] = []
        if not len(places) or not self._matched:
            return gone, changed
        there = self._struct("t", base).take(pa.array(places))
        pairs = pa.table({"s": self._struct("s", source), "t": there})
        for clause, mine in _decided(self._matched, pairs):
            if clause.delete:
                gone[places[mine]] = True
                continue
            old, new = base.take(pa.array(places[mine])), source.take(pa.array(mine))
            changed.append((places[mine], with_values(old, self._values(clause, pairs.take(pa.array(mine)), new))))
        return gone, changed

    def _added(self, source: pa.Table) -> pa.Table:
        pieces = [source.select([*dict.fromkeys(self._kept), RECORD_KEY]).slice(0, 0)]
        if source.num_rows and self._new:
            rows = pa.table({"s": self._struct("s", source)})
            for clause, mine in _decided(self._new, rows):
                new = source.take(pa.array(mine))
                base = new.select([*dict.fromkeys(self._kept), RECORD_KEY])
                pieces.append(with_values(base, self._values(clause, rows.take(pa.array(mine)), new)))
        schema = pa.schema([*self.schema, pa.field(RECORD_KEY, pa.string())])
        return pa.concat_tables([widened(each, schema) for each in pieces])

    def _values(self, clause: _Clause, rows: pa.Table, source: pa.Table) -> dict[str, pa.ChunkedArray]:
        if clause.values is not None:
            return clause.values.of(rows)
        return {
            name: source.column(name) for name in self.schema.names if name not in self._kept or name in self._times
        }

    def _struct(self, side: str, rows: pa.Table) -> pa.StructArray:
        """The columns of one side that clauses read; without any the key column carries the number of rows."""
        names = [name for name in self._read[side] if name in rows.column_names] or [RECORD_KEY]
        arrays = [one_array(plain(rows.column(name))) for name in names]
        return pa.StructArray.from_arrays(arrays, names=names)


def _read(side: str, *clauses: _Clause) -> list[str]:
    """Return the columns of one side that conditions and values name."""
    parts = (part for each in clauses for part in (each.where, each.values) if part is not None)
    return sorted({path[1] for part in parts for path in part.paths if path[0] == side})


def _decided(clauses: list[_Clause], rows: pa.Table) -> Iterable[tuple[_Clause, npt.NDArray[np.int64]]]:
    """Yield each clause with the rows that it decides: its condition is true, and no earlier one is."""
    left = np.arange(rows.num_rows)
    for clause in clauses:
        mine = np.ones(len(left), bool)
        if clause.where is not None and len(left):
            found = clause.where.mask(rows.take(pa.array(left)))
            mine = np.asarray(found.to_numpy(zero_copy_only=False), bool)
        if mine.any():
            yield clause, left[mine]
        left = left[~mine]


def _keys(rows: pa.Table) -> pa.Array:
    return one_array(rows.column(RECORD_KEY))
