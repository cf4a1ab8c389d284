"""One random sequence of transactions on one table, and the same on a dict; after each commit both hold the same rows.

The dict is the order of the commits, one write after the other, and knows nothing of files. A row is found by its key
and its partition's value; null and empty text are one partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.errors import ConflictError
from lakelatch.occ.check.check import check
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction

from ..jvm.readers import by_hudi_rs, in_order, plain, plain_rows
from .awkward import DATA, KEYS, PARTITIONS

Row = dict[str, Any]
Contender = tuple[Any, str]  # partition's value and key
Model = dict[Contender, Row]


class Story:
    """A table, its model, and the choices of one seed.

    Attributes:
        told: what was done so far, for anyone who reads of a failure.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.choose = choose = random.Random(seed)
        self.by = choose.choice([None, *PARTITIONS])
        self.bucket_count = choose.choice([None, None, 1, 3])
        self.ordering = choose.choice([None, None, "n"])
        self.schema = pa.schema(
            [("id", pa.string()), *((name, kind) for name, (kind, _) in DATA.items())]
            + ([("p", PARTITIONS[self.by][0])] if self.by else [])
        )
        self.model: Model = {}
        self._keys = choose.sample(KEYS, 10)
        self._fresh = 0
        self._conditions: list[Callable[[Row], bool]] = []  # of the present transaction
        self.told: list[str] = [f"partitioned by {self.by}, buckets {self.bucket_count}, ordering {self.ordering}"]
        settings: dict[str, Any] = {"partition_by": "p"} if self.by else {}
        self.table: Table = lakelatch.create(
            str(folder),
            record_key="id",
            schema=self.schema,
            bucket_count=self.bucket_count,
            hive_style=choose.random() < 0.7,
            isolation=choose.choice(["snapshot", "write-serializable"]),
            **settings | ({"ordering_field": self.ordering} if self.ordering else {}),
        )

    def run(self) -> None:
        """All of it. An AssertionError or any other error carries the seed and what was done."""
        try:
            for _ in range(self.choose.randint(2, 5)):
                self._transaction()
                self._compare()
            self._end()
        except Exception as e:
            e.add_note(f"seed {self.seed}: " + "; ".join(self.told))
            raise
        finally:
            self.table.close()

    # --- transactions --------------------------------------------------------------------------------------------

    def _transaction(self) -> None:
        kinds: list[Callable[[], None]] = [self._writes] * 6 + [self._beside] * 2 + [self._reopened]
        if self.bucket_count is None:
            kinds += [self._overwrite, self._dropped]
        self.choose.choice(kinds)()

    def _writes(self) -> None:
        operation = self.choose.choice(["upsert", "upsert", "delete", "insert"])
        self.told.append(operation)
        with self.table.transaction(operation) as txn:
            for _ in range(self.choose.randint(1, 4)):
                self._write(txn, self.model)

    def _reopened(self) -> None:
        self.told.append("reopened")
        self.table.close()
        self.table = lakelatch.open(str(self.folder))
        self._writes()
        self.table.clean(retain_commits=1)

    def _beside(self) -> None:
        """Another one lands other keys before ours, which is merged again or loses."""
        self.told.append("beside another")
        ours, theirs = dict(self.model), self._rows(fresh=True)
        with lakelatch.open(str(self.folder)) as other:
            txn = self.table.transaction()
            writes = [self._upsert, self._delete] if self.choose.random() < 0.7 else [self._delete_where]
            for _ in range(self.choose.randint(1, 3)):
                self.choose.choice(writes)(txn, ours)
            with other.transaction() as first:
                first.upsert(self._arrow(theirs))
        self._into(self.model, theirs)
        try:
            if txn.commit() is None:  # it had nothing to change, which was so before the other one
                return
        except ConflictError:
            self.told.append("lost")
            return
        # Of other keys, so that only a condition meets them: it is evaluated again on what has landed.
        self._into(ours, [row for row in theirs if not any(meets(row) for meets in self._conditions)])
        self.model = ours

    def _overwrite(self) -> None:
        rows, path = self._rows(), None
        self.told.append(f"overwrite with {len(rows)}")
        whole = self.choose.random() < 0.3
        with self.table.transaction("insert_overwrite_table" if whole else "insert_overwrite") as txn:
            by_path = self._by_path(rows)
            if whole:
                txn.overwrites(None)
                txn.drop_file_groups(txn.current.file_slices())
                self.model.clear()
            for path, part in by_path.items():
                txn.overwrites(path)
                txn.drop_file_groups(txn.current.file_slices(path))
                places = {self._place(row)[0] for row in part}
                self.model = {place: row for place, row in self.model.items() if place[0] not in places}
                txn.new_file(path).write(self._arrow(part))
            for row in rows:
                self.model[self._place(row)] = row

    def _dropped(self) -> None:
        with self.table.transaction("delete_partition") as txn:
            if not (partitions := txn.current.partitions()):
                return
            path = self.choose.choice(partitions)
            self.told.append(f"drop {path!r}")
            gone = [row for each in txn.current.file_slices(path) for row in txn.read_slice(each).to_pylist()]
            txn.overwrites(path)
            txn.drop_file_groups(txn.current.file_slices(path))
            for row in gone:
                del self.model[self._place(row)]

    # --- writes --------------------------------------------------------------------------------------------------

    def _write(self, txn: Transaction, model: Model) -> None:
        kinds = [self._upsert] * 4 + [self._delete] * 2 + [self._delete_where] * 2 + [self._replace, self._nothing]
        if self.bucket_count is None:
            kinds.append(self._create)
        if self.choose.random() < 0.05:
            kinds = [self._delete_all]
        self.choose.choice(kinds)(txn, model)

    def _upsert(self, txn: Transaction, model: Model) -> None:
        rows = self._rows()
        self.told.append(f"upsert {[self._place(row) for row in rows]}")
        self._merge(txn, self._arrow(rows))
        self._into(model, rows)

    def _delete(self, txn: Transaction, model: Model) -> None:
        rows = [self._row(key) for key in self._some_keys()]
        located = self.by is not None and self.choose.random() < 0.5
        self.told.append(f"delete {[self._place(row) if located else row['id'] for row in rows]}")
        self._remove(txn, self._arrow(rows).select(["id", "p"] if located else ["id"]))
        gone = {self._place(row) if located else row["id"] for row in rows}
        for place in [place for place in model if (place if located else place[1]) in gone]:
            del model[place]

    def _delete_where(self, txn: Transaction, model: Model) -> None:
        terms = [self._term() for _ in range(self.choose.randint(1, 2))]
        self.told.append(f"delete where {terms}")
        meets = self._remove_where(txn, terms)
        self._conditions.append(meets)
        for place in [place for place, row in model.items() if meets(row)]:
            del model[place]

    def _delete_all(self, txn: Transaction, model: Model) -> None:
        self.told.append("delete all")
        txn.delete_all()
        model.clear()

    def _replace(self, txn: Transaction, model: Model) -> None:
        if not (groups := txn.current.file_slices()):
            return
        group = self.choose.choice(groups)
        self.told.append(f"replace in {group.partition!r}")
        rows = txn.read_slice(group)
        held = rows.to_pylist()
        assert in_order(plain(held)) == in_order(plain([model[self._place(row)] for row in held])), "what it reads"
        if not held:
            return
        texts = pa.array([self.choose.choice(DATA["t"][1]) for _ in held], pa.string())
        txn.rewrite(group).write(rows.set_column(rows.column_names.index("t"), "t", texts))
        for row, text in zip(held, texts.to_pylist(), strict=True):
            model[self._place(row)] = row | {"t": text}

    def _create(self, txn: Transaction, model: Model) -> None:
        rows = self._rows(fresh=True)
        self.told.append(f"create {[self._place(row) for row in rows]}")
        for path, part in self._by_path(rows).items():
            self._add(txn, path, self._arrow(part))
        self._into(model, rows)

    def _nothing(self, txn: Transaction, _model: Model) -> None:
        self.told.append("nothing")
        txn.upsert(self.schema.empty_table())
        txn.delete(self.schema.empty_table())
        txn.delete(pa.table({"id": pa.array(["nobody's key"])}))

    # --- the doors, which a story in Spark has others for ---------------------------------------------------------

    def _merge(self, txn: Transaction, rows: pa.Table) -> None:
        txn.upsert(rows)

    def _remove(self, txn: Transaction, keys: pa.Table) -> None:
        txn.delete(keys)

    def _remove_where(self, txn: Transaction, terms: list[tuple[Any, ...]]) -> Callable[[Row], bool]:
        txn.delete_where(terms)
        return lambda row: all(met(row[name], op, *value) for name, op, *value in terms)

    def _add(self, txn: Transaction, path: str, rows: pa.Table) -> None:
        txn.new_file(path).write(rows)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _row(self, key: str) -> Row:
        row: Row = {"id": key, **{name: self.choose.choice(values) for name, (_, values) in DATA.items()}}
        return row | ({"p": self.choose.choice(PARTITIONS[self.by][1])} if self.by else {})

    def _rows(self, *, fresh: bool = False) -> list[Row]:
        keys = self._some_keys()
        if fresh:
            self._fresh += 1
            keys = [f"{key} {self._fresh}" for key in keys]
        return list({self._place(row): row for row in map(self._row, keys)}.values())

    def _some_keys(self) -> list[str]:
        return [self.choose.choice(self._keys) for _ in range(self.choose.randint(1, 6))]

    def _place(self, row: Row) -> Contender:
        return (row.get("p") or None) if self.by == "text" else row.get("p"), row["id"]

    def _into(self, model: Model, rows: list[Row]) -> None:
        for row in rows:
            old = model.get(self._place(row))
            if old is None or self.ordering is None or _newer(row[self.ordering], old[self.ordering]):
                model[self._place(row)] = row

    def _arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.schema)

    def _by_path(self, rows: list[Row]) -> dict[str, list[Row]]:
        from lakelatch.hudi.table.partition_path import partition_paths

        found: dict[str, list[Row]] = {}
        for row, path in zip(rows, partition_paths(self._arrow(rows), self.table.config).to_pylist(), strict=True):
            found.setdefault(path, []).append(row)
        return found

    def _term(self) -> tuple[Any, ...]:
        name = self.choose.choice(self.schema.names)
        op = self.choose.choice(["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"])
        if op.startswith("is"):
            return name, op
        values = self._keys if name == "id" else (PARTITIONS[self.by or ""][1] if name == "p" else DATA[name][1])
        values = [value for value in values if value is not None]
        if op == "in":
            return name, op, tuple(self.choose.sample(values, 2))
        return name, op, self.choose.choice(values)

    # --- the readers ---------------------------------------------------------------------------------------------

    @property
    def expected(self) -> list[str]:
        """The rows of the model, in the form in which readers are compared."""
        return in_order(plain(list(self.model.values())))

    def _compare(self) -> None:
        self._conditions = []
        assert in_order(plain_rows(self.table.read().to_arrow())) == self.expected

    def _end(self) -> None:
        with lakelatch.open(str(self.folder)) as fresh:
            assert in_order(plain_rows(fresh.read().to_arrow())) == self.expected, "a fresh handle"
            assert not check(fresh.store, deep=True).findings
        if self.model:
            assert in_order(by_hudi_rs(self.folder)) == self.expected, "hudi-rs"


def _newer(new: Any, old: Any) -> bool:
    return old is None or (new is not None and new >= old)


def _ordered(value: float) -> tuple[bool, float]:
    """NaN is equal to itself and larger than every number; both zeros are one."""
    return (True, 0.0) if value != value else (False, value)


def met(held: Any, op: str, value: Any = None) -> bool:
    """Whether a value meets a condition; a comparison with null is not true."""
    if op == "is null":
        return held is None
    if op == "is not null":
        return held is not None
    if held is None:
        return False
    if isinstance(held, float):
        held, value = _ordered(held), tuple(map(_ordered, value)) if op == "in" else _ordered(value)
    match op:
        case "=":
            return bool(held == value)
        case "!=":
            return bool(held != value)
        case "<":
            return bool(held < value)
        case "<=":
            return bool(held <= value)
        case ">":
            return bool(held > value)
        case ">=":
            return bool(held >= value)
        case _:
            return held in value
