"""Operations that two writers may do at the same time, each with a model of what it does to the rows.

The model is a function of rows and knows nothing of files, logs or locks. An operation is done in three steps, so that
a test can put another one between them: `begin`, `stage` and `finish`. Values depend on who wrote them and on what
stood there before, so that two orders give two results wherever they can.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelatch import sql
from lakelatch.hudi.timeline.snapshot import FileSlice
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing import FakeEnvironment

from .world import SCHEMA, World, Writer, fate, insert

Rows = dict[str, dict[str, Any]]  # by id, without the columns that are null


class PairWorld(World):
    """Partition *a* with the file groups {a0, a1} and {a2}, partition *b* with {b0, b1}; all v = 0."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder, self.writers = folder, []
        # Another seed than the one that the table was made with, or new file groups would get the ids of old ones.
        self.env = FakeEnvironment(seed=2)
        shutil.copytree(base, folder)

    @staticmethod
    def make_base(folder: Path, **settings: Any) -> Rows:
        """Make the table that all copies begin as, and tell its rows."""
        world = World(folder, empty="bucket_count" in settings, **settings)
        with world.fresh() as table:
            if "bucket_count" in settings:  # which say where rows lie
                table.insert([{"id": key, "part": key[0], "v": 0} for key in ("a0", "a1", "a2", "b0", "b1")])
            else:
                with table.transaction("insert") as txn:
                    insert(txn, "a", "a2", v=0)
            return rows_of(table.read().to_arrow())

    def rows(self) -> Rows:
        """What a new handle reads."""
        with self.fresh() as table:
            return rows_of(table.read().to_arrow())


def rows_of(read: pa.Table) -> Rows:
    """Rows as values; fails on a key that occurs twice."""
    listed = [{name: value for name, value in row.items() if value is not None} for row in read.to_pylist()]
    rows = {row["id"]: row for row in listed}
    assert len(rows) == len(listed), f"duplicate keys: {sorted(row['id'] for row in listed)}"
    return rows


@dataclass
class Running:
    """One operation under way, by one writer. ``side`` (1 or 2) is what its values are told by."""

    world: World
    writer: Writer
    side: int
    txn: Transaction | None = None
    slices: list[FileSlice] = field(default_factory=list)
    dead: str = ""
    seen: Rows | None = None

    @property
    def table(self) -> Table:
        return self.writer.table


def _nothing(_run: Running) -> None:
    pass


@dataclass(frozen=True)
class Operation:
    """What one writer does.

    Attributes:
        writes: file groups that it writes, "a/new" for one of its own; ``claims``: partitions that it replaces or looks
            through, "*" for all; ``schema``: the column that it adds. Two that have nothing of it in common must land.
        model: the rows after it, of the rows before it and its side.
        reads: what it shows its user is the rows before it.
    """

    name: str
    begin: Callable[[Running], None]
    stage: Callable[[Running], None]
    finish: Callable[[Running], None]
    model: Callable[[Rows, int], Rows] = lambda rows, side: rows
    writes: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    schema: str = ""
    reads: bool = False

    @property
    def instant(self) -> bool:
        """Whether all of it happens in `finish`, so that it has to see all that came before."""
        return self.begin is _nothing

    @property
    def partitions(self) -> frozenset[str]:
        """Where it writes."""
        return frozenset(group[0] for group in self.writes)

    def disjoint(self, other: Operation) -> bool:
        """Whether the two have no file group, no partition claimed and no change of the schema in common."""

        def reached(claims: frozenset[str], partitions: frozenset[str]) -> bool:
            return bool(claims and partitions and ("*" in claims | partitions or claims & partitions))

        groups = {w for w in self.writes & other.writes if not w.endswith("/new")}
        return not (
            groups
            or reached(self.claims, other.partitions | other.claims)
            or reached(other.claims, self.partitions | self.claims)
            or (self.schema and other.schema and self.schema != other.schema)
        )


# --- transactions ----------------------------------------------------------------------------------------------------


def _transaction(
    name: str, kind: str, stage: Callable[[Transaction, Running], None], *, end: str = "commit", **more: Any
) -> Operation:
    def begin(run: Running) -> None:
        run.txn = run.table.transaction(kind)

    def do(run: Running) -> None:
        stage(run.txn, run)

    def finish(run: Running) -> None:
        getattr(run.txn, end)()

    return Operation(name, begin, do, finish, **more)


def _table_of(rows: Rows, columns: pa.Schema | None) -> pa.Table:
    """Rows in the table's columns and those that they have beyond them."""
    columns = columns or SCHEMA
    wide = {name for row in rows.values() for name in row} - set(columns.names)
    return pa.Table.from_pylist(
        list(rows.values()), pa.schema([*columns, *((name, pa.int64()) for name in sorted(wide))])
    )


def _rewrite(txn: Transaction, keys: Iterable[str], change: Callable[[Rows, str], None]) -> None:
    """Every file group that holds one of the keys again, with ``change`` made for that key; a missing key is added."""
    missing = set(keys)
    for group in txn.snapshot.file_slices():
        rows = rows_of(txn.session.read_slice(group))
        if found := missing & set(rows):
            missing -= found
            for key in found:
                change(rows, key)
            txn.rewrite(group).write(_table_of(rows, txn.schema))
    for key in sorted(missing):
        rows = {}
        change(rows, key)
        if rows:
            txn.new_file(f"part={key[0]}").write(_table_of(rows, txn.schema))


def _put(rows: Rows, key: str, side: int, column: str = "") -> None:
    row = dict(rows.get(key, {"id": key, "part": key[0], "v": 0}))
    row["v"] = row["v"] * 10 + side
    rows[key] = row | ({column: side} if column else {})


def _upsert(name: str, keys: str, writes: str, column: str = "") -> Operation:
    def of(side: int) -> list[str]:
        return [key.replace("#", str(side)) for key in keys.split()]

    def stage(txn: Transaction, run: Running) -> None:
        _rewrite(txn, of(run.side), lambda rows, key: _put(rows, key, run.side, column))

    def model(rows: Rows, side: int) -> Rows:
        rows = dict(rows)
        for key in of(side):
            _put(rows, key, side, column)
        return rows

    return _transaction(name, "upsert", stage, model=model, writes=frozenset(writes.split()), schema=column)


def _delete(key: str, group: str) -> Operation:
    def stage(txn: Transaction, run: Running) -> None:
        _rewrite(txn, [key], lambda rows, key: rows.pop(key, None))

    def model(rows: Rows, side: int) -> Rows:
        return {k: row for k, row in rows.items() if k != key}

    return _transaction(f"delete {key}", "delete", stage, model=model, writes=frozenset({group}))


def _delete_where() -> Operation:
    """All rows of partition *a* with v = 0."""

    def goes(row: dict[str, Any]) -> bool:
        return bool(row["part"] == "a" and row["v"] == 0)

    def stage(txn: Transaction, run: Running) -> None:
        txn.depends_on("part=a")
        for group in txn.snapshot.file_slices("part=a"):
            rows = rows_of(txn.read_slice(group))
            kept = {key: row for key, row in rows.items() if not goes(row)}
            if kept != rows:
                txn.rewrite(group).write(_table_of(kept, txn.schema))

    def model(rows: Rows, side: int) -> Rows:
        return {key: row for key, row in rows.items() if not goes(row)}

    return _transaction("delete where v = 0", "delete", stage, model=model, claims=frozenset("a"))


def _new(part: str, key: str, side: int) -> Rows:
    return {f"{key}{side}": {"id": f"{key}{side}", "part": part, "v": 0}}


def _insert(kind: str, part: str) -> Operation:
    def stage(txn: Transaction, run: Running) -> None:
        txn.new_file(f"part={part}").write(_table_of(_new(part, f"{part}n", run.side), txn.schema))

    def model(rows: Rows, side: int) -> Rows:
        return rows | _new(part, f"{part}n", side)

    name = f"{kind} into {part}" if part != "c" else "insert, first file of c"
    return _transaction(name, kind, stage, model=model, writes=frozenset({f"{part}/new"}))


def _overwrite(kind: str, part: str | None, *, rows_in: str = "") -> Operation:
    """Replace a partition or the table by one row in ``rows_in``, or by nothing."""

    def stage(txn: Transaction, run: Running) -> None:
        where = part and f"part={part}"
        txn.overwrites(where)
        txn.drop_file_groups(txn.snapshot.file_slices(where))
        if rows_in:
            txn.new_file(f"part={rows_in}").write(_table_of(_new(rows_in, f"{rows_in}o", run.side), txn.schema))

    def model(rows: Rows, side: int) -> Rows:
        kept = {key: row for key, row in rows.items() if part and row["part"] != part}
        return kept | (_new(rows_in, f"{rows_in}o", side) if rows_in else {})

    name = f"{kind} {part}" if part else kind
    return _transaction(name, kind, stage, model=model, claims=frozenset(part or "*"))


def _stage_a0(txn: Transaction, run: Running) -> None:
    _rewrite(txn, ["a0"], lambda rows, key: _put(rows, key, run.side))


# --- everything else -------------------------------------------------------------------------------------------------


def _change_settings(run: Running) -> None:
    run.table.change_settings(lease_s=20.0 + run.side)
    assert run.table.settings.lease_s == 20.0 + run.side


def _set_lock(run: Running) -> None:
    lock = f"file://{run.world.folder}-locks-{run.side}"
    assert run.table.set_lock(lock).lock == lock


def _clean(run: Running) -> None:
    run.table.rollback_failed_writes()


def _begin_dead(run: Running) -> None:
    """A third writer has begun to change a0, and its process has ended."""
    # Its host is that of the others, so they can see it at once.
    dead = run.world.writer(f"dead {run.side}")
    run.dead = dead.begin_add("a").instant
    dead.die()


def _roll_back(run: Running) -> None:
    run.table.rollback_failed_writes()
    assert fate(run.table, run.dead) == ["begin", "rollback"]


def _take_snapshot(run: Running) -> None:
    run.slices = run.table.snapshot().file_slices()


def _read_snapshot(run: Running) -> None:
    parts = [run.table.read_slice(each) for each in run.slices]
    run.seen = rows_of(pa.concat_tables(parts, promote_options="default")) if parts else {}


def _read_now(run: Running) -> None:
    run.seen = rows_of(run.table.read().to_arrow())


OPERATIONS = [
    _insert("insert", "a"),
    _insert("insert", "b"),
    _insert("bulk_insert", "a"),
    _insert("insert", "c"),
    _upsert("upsert a0", "a0", "a/1"),
    _upsert("upsert a1", "a1", "a/1"),
    _upsert("upsert a2", "a2", "a/2"),
    _upsert("upsert b0", "b0", "b/1"),
    _upsert("upsert a0 and b0", "a0 b0", "a/1 b/1"),
    _upsert("upsert of a new key of a", "au#", "a/new"),
    _upsert("upsert a0 with column w", "a0", "a/1", "w"),
    _upsert("upsert a2 with column w", "a2", "a/2", "w"),
    _upsert("upsert b0 with column x", "b0", "b/1", "x"),
    _delete("a0", "a/1"),
    _delete("b0", "b/1"),
    _delete_where(),
    _overwrite("delete_partition", "a"),
    _overwrite("delete_partition", "b"),
    _overwrite("insert_overwrite", "a", rows_in="a"),
    _overwrite("insert_overwrite", "b", rows_in="b"),
    _overwrite("insert_overwrite", "c", rows_in="c"),
    _overwrite("insert_overwrite_table", None, rows_in="a"),
    _transaction("empty commit", "upsert", lambda txn, run: txn.allow_empty()),
    _transaction("abort of upsert a0", "upsert", _stage_a0, end="abort"),
    Operation("change of settings", _nothing, _nothing, _change_settings),
    Operation("change of the lock", _nothing, _nothing, _set_lock),
    Operation("clean", _nothing, _nothing, _clean),
    Operation("rollback of a dead writer", _begin_dead, _nothing, _roll_back),
    Operation("read of a snapshot", _take_snapshot, _nothing, _read_snapshot, reads=True),
    Operation("read", _nothing, _nothing, _read_now, reads=True),
]


# --- the verbs of rows -----------------------------------------------------------------------------------------------


def verbs(*, ordered: bool, merge_on_read: bool) -> list[Operation]:
    """The methods of rows of a transaction; ``ordered``: the table is ordered by v."""

    def update(name: str, where: str, goes: Callable[[dict[str, Any]], bool], value: str, **more: Any) -> Operation:
        def stage(txn: Transaction, run: Running) -> None:
            where_a = {"part": "a"} if "part" not in where else None
            txn.update_where(where, {"v": sql(value.replace("#", str(run.side)))}, partition=where_a)

        def model(rows: Rows, side: int) -> Rows:
            new = value.replace("#", str(side))
            return {key: row | {"v": eval(new, {"v": row["v"]})} if goes(row) else row for key, row in rows.items()}

        return _transaction(name, "upsert", stage, model=model, **more)

    def upsert(side: int, rows: Rows) -> None:
        for key in ("a0", f"an{side}"):
            new = {"id": key, "part": "a", "v": 3 * side}
            if not (ordered and key in rows and rows[key]["v"] > new["v"]):
                rows[key] = new

    def merge(side: int, rows: Rows) -> None:
        for key in ("a0", "a2", f"am{side}"):
            if key in rows and rows[key]["v"] == 77:
                del rows[key]
            elif key in rows:
                rows[key] = rows[key] | {"v": rows[key]["v"] * 10 + side}
            else:
                rows[key] = {"id": key, "part": "a", "v": 77}

    def delete(_side: int, rows: Rows) -> None:
        rows.pop("a0", None)

    def delete_where(_side: int, rows: Rows) -> None:
        for key in [key for key, row in rows.items() if row["part"] == "a" and row["v"] == 0]:
            del rows[key]

    def changed(change: Callable[[int, Rows], None]) -> Callable[[Rows, int], Rows]:
        def model(rows: Rows, side: int) -> Rows:
            rows = dict(rows)
            change(side, rows)
            return rows

        return model

    def stage_upsert(txn: Transaction, run: Running) -> None:
        new: Rows = {}
        upsert(run.side, new)
        txn.upsert(_table_of(new, None))

    def stage_merge(txn: Transaction, run: Running) -> None:
        source = pa.table({"id": ["a0", "a2", f"am{run.side}"], "part": ["a"] * 3, "v": [77] * 3})
        made = txn.merge(source).when_matched("t.v = 77", delete=True)
        made.when_matched(update={"v": sql(f"t.v * 10 + {run.side}")}).when_not_matched(insert="all").run()

    def of_a(row: dict[str, Any]) -> bool:
        return bool(row["part"] == "a")

    group = frozenset({"a/1"})
    found = [
        _transaction("the verb upsert", "upsert", stage_upsert, model=changed(upsert), writes=group | {"a/new"}),
        _transaction("the verb merge", "upsert", stage_merge, model=changed(merge), writes=group | {"a/2", "a/new"}),
        _transaction(
            "the verb delete",
            "delete",
            lambda txn, _: txn.delete([{"id": "a0", "part": "a"}]),
            model=changed(delete),
            writes=group,
        ),
        _transaction(
            "the verb delete_where",
            "delete",
            lambda txn, _: txn.delete_where("v = 0", partition={"part": "a"}),
            model=changed(delete_where),
            claims=frozenset("a"),
        ),
        update("update of all of a", "true", of_a, "v * 10 + #", claims=frozenset("a")),
        update("update where v = 0", "v = 0", lambda row: of_a(row) and row["v"] == 0, "#", claims=frozenset("a")),
        update("update to an older value", "id = 'a0'", lambda row: row["id"] == "a0", "v - 100 - #", claims=frozenset("a")),
        update("update of b", "part = 'b'", lambda row: row["part"] == "b", "v * 10 + #", claims=frozenset("b")),
        Operation("read", _nothing, _nothing, _read_now, reads=True),
    ]  # fmt: skip
    return [*found, Operation("compaction", _nothing, _nothing, _compact)] if merge_on_read else found


def _compact(run: Running) -> None:
    run.table.compact()
