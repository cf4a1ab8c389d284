"""pyiceberg with its SQL catalog on SQLite or PostgreSQL, on a local folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import And, EqualTo, In, StartsWith
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import OperationalError

from ...errors import ConfigError
from .. import rows
from ..works import Aborted, Change, Key, Note
from .interface import Configuration

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table, Transaction

_NAME = "lab.rows"
_OF_THE_LAB = ("locks", "server")  # settings that are no properties of the table


class PyIceberg:
    """pyiceberg. The settings are properties of the table."""

    package: ClassVar[str] = "pyiceberg"
    works: ClassVar[frozenset[str]] = frozenset({"append", "replace", "upsert", "increment", "transfer", "delete"})
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "100 retries of 5 to 200 ms instead of 4 of 100 ms to 60 s, old metadata files deleted, table refreshed before each "
            "write; what aborts is run again by the lab, up to 20 attempts with a jittered pause",
            {
                "commit.retry.num-retries": "100",
                "commit.retry.min-wait-ms": "5",
                "commit.retry.max-wait-ms": "200",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "10",
            },
            tries=20,
        ),
        Configuration("default", "properties as they come, table refreshed before each write"),
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._properties = {name: str(value) for name, value in settings.items() if name not in _OF_THE_LAB}
        self._server = settings.get("server", "")

    def create(self, place: str, first: pa.Table) -> None:
        if "://" in place and not place.startswith("file://"):
            raise ConfigError(f"pyiceberg is measured on a local folder only, not at {place.partition('://')[0]}://")
        Path(place.removeprefix("file://")).mkdir(parents=True)
        catalog = self._catalog(place)
        catalog.create_namespace("lab")
        table = catalog.create_table(_NAME, rows.SCHEMA, properties=self._properties)
        number = table.schema().find_field(rows.PARTITION).field_id
        with table.update_spec() as spec:
            spec.add_identity(rows.PARTITION)
        assert table.spec() == PartitionSpec(
            PartitionField(number, 1000, IdentityTransform(), rows.PARTITION), spec_id=table.spec().spec_id
        )
        table.append(first)

    def open(self, place: str, writer: str, priority: int) -> _Session:  # noqa: ARG002 - it knows no writers
        return _Session(self._catalog(place).load_table(_NAME))

    def rows(self, place: str) -> pa.Table:
        return self._catalog(place).load_table(_NAME).scan(selected_fields=tuple(rows.SCHEMA.names)).to_arrow()

    def _catalog(self, place: str) -> SqlCatalog:
        folder = Path(place.removeprefix("file://")).resolve()
        return SqlCatalog("lab", uri=self._database(folder), warehouse=f"file://{folder}")

    def _database(self, folder: Path) -> str:
        return f"sqlite:///{folder}/catalog.db"


class PyIcebergPostgres(PyIceberg):
    """pyiceberg with a PostgreSQL of the lab's own, which is started for each run."""

    modules: ClassVar[tuple[str, ...]] = ("pg8000",)
    server: ClassVar[str] = "postgres"

    def _database(self, folder: Path) -> str:  # noqa: ARG002 - each run has a server of its own
        return f"{self._server.replace('postgresql', 'postgresql+pg8000').replace('//', '//postgres@')}/postgres"


class _Session:
    def __init__(self, table: Table) -> None:
        self._table = table

    def append(self, new: pa.Table, note: Note) -> None:
        self._do(lambda txn: txn.append(new), note)

    def replace(self, part: str, new: pa.Table, note: Note) -> None:
        self._do(lambda txn: txn.overwrite(new, overwrite_filter=EqualTo(rows.PARTITION, part)), note)

    def upsert(self, new: pa.Table, note: Note) -> None:
        self._do(lambda txn: self._write(txn, new), note)

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        def work(txn: Transaction) -> None:
            condition = And(In(rows.PARTITION, {part for part, _ in keys}), In(rows.KEY, {key for _, key in keys}))
            found = self._table.scan(row_filter=condition, selected_fields=tuple(rows.SCHEMA.names)).to_arrow()
            note.saw(found)
            self._write(txn, change(found))

        self._do(work, note)

    def delete(self, value: int, note: Note) -> None:
        condition = And(EqualTo(rows.VALUE, value), StartsWith(rows.KEY, rows.APPENDED))
        self._do(lambda txn: txn.delete(condition), note)

    def close(self) -> None:
        pass

    def _write(self, txn: Transaction, new: pa.Table) -> None:
        # Table.upsert compares row by row in Python; an overwrite of these keys does the same thing in less time.
        mine = And(
            In(rows.PARTITION, set(new[rows.PARTITION].to_pylist())), In(rows.KEY, set(new[rows.KEY].to_pylist()))
        )
        txn.overwrite(new, overwrite_filter=mine)

    def _do(self, work: Callable[[Transaction], object], note: Note) -> None:
        note.attempt()
        try:
            self._table.refresh()
            with self._table.transaction() as txn:
                work(txn)
                note.think()
        except (CommitFailedException, ValidationException) as e:
            raise Aborted(type(e).__name__) from e
        except OperationalError as e:
            if "locked" not in str(e):
                raise
            raise Aborted("the catalog's database is locked") from e
        snapshot = self._table.current_snapshot()
        note.landed(str(snapshot.snapshot_id) if snapshot else "", [])
