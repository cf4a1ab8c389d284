"""DuckLake, the extension of DuckDB, with its catalog in SQLite or PostgreSQL and its files in a local folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import duckdb

from ...errors import ConfigError
from .. import rows
from ..works import Aborted, Change, Key, Note
from .interface import Configuration

if TYPE_CHECKING:
    import pyarrow as pa

_RETRIES = {"ducklake_max_retry_count": 100, "ducklake_retry_wait_ms": 5, "ducklake_retry_backoff": 1.0}
_BEST = {**_RETRIES, "attach": "META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000"}
_AGAIN = "what aborts is run again by the lab, up to 20 attempts with a jittered pause"
_NAMES = [f'"{name}"' for name in rows.SCHEMA.names]  # "by" is a word of SQL's
_COLUMNS = ", ".join(_NAMES)


class DuckLake:
    """DuckLake. The settings are DuckDB's that begin with ``ducklake_``, and ``attach``, options of SQLite's catalog."""

    package: ClassVar[str] = "duckdb"
    modules: ClassVar[tuple[str, ...]] = ("duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner")
    works: ClassVar[frozenset[str]] = frozenset(
        {"append", "replace", "upsert", "increment", "transfer", "delete", "serve"}
    )
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "100 retries, 5 ms apart, instead of 10 with growing pauses from 100 ms; SQLite with a write-ahead log and a busy "
            f"timeout of 5 s; up to 10 rows of a commit stay in the catalog; {_AGAIN}",
            _BEST,
            tries=20,
        ),
        Configuration(
            "files",
            f"the same, and each commit writes a Parquet file; {_AGAIN}",
            {**_BEST, "ducklake_default_data_inlining_row_limit": 0},
            tries=20,
        ),
        Configuration("default", "the extension's own 10 retries; up to 10 rows of a commit stay in the catalog"),
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {name: value for name, value in settings.items() if name.startswith("ducklake_")}
        self._server, self._attach = settings.get("server", ""), settings.get("attach", "")

    def create(self, place: str, first: pa.Table) -> None:
        if "://" in place and not place.startswith("file://"):
            raise ConfigError(f"DuckLake is measured on a local folder only, not at {place.partition('://')[0]}://")
        Path(place.removeprefix("file://")).mkdir(parents=True)
        with self._attached(place) as there:
            columns = ", ".join(map(" ".join, zip(_NAMES, map(_sql, rows.SCHEMA), strict=True)))
            there.execute(f"CREATE TABLE rows ({columns})")
            there.execute(f"ALTER TABLE rows SET PARTITIONED BY ({rows.PARTITION})")
            there.register("new", first)
            there.execute(f"INSERT INTO rows SELECT {_COLUMNS} FROM new")

    def open(self, place: str, writer: str, priority: int) -> _Session:  # noqa: ARG002 - it knows no writers
        return _Session(self._attached(place))

    def rows(self, place: str) -> pa.Table:
        with self._attached(place) as there:
            return there.execute(f"SELECT {_COLUMNS} FROM rows").to_arrow_table().cast(rows.SCHEMA)

    def _attached(self, place: str) -> duckdb.DuckDBPyConnection:
        folder = Path(place.removeprefix("file://")).resolve()
        # One thread: the lab's writers are processes, and fill the machine by themselves.
        there = duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})
        for module in self.modules:
            there.execute(f"LOAD {_quoted(str(_extension(module)))}")
        for name, value in self._settings.items():
            there.execute(f"SET {name} = {value}")
        catalog, *options = self._catalog(folder)
        options.append(f"DATA_PATH {_quoted(str(folder / 'data'))}")
        there.execute(f"ATTACH {_quoted(f'ducklake:{catalog}')} AS lake ({', '.join(options)})")
        there.execute("USE lake")
        return there

    def _catalog(self, folder: Path) -> list[str]:
        """Return the catalog, and the options with which it is attached."""
        return [f"sqlite:{folder}/catalog.sqlite", *filter(None, [self._attach])]


class DuckLakePostgres(DuckLake):
    """DuckLake with a PostgreSQL of the lab's own, which is started for each run."""

    modules: ClassVar[tuple[str, ...]] = ("duckdb_extension_ducklake", "duckdb_extension_postgres_scanner")
    server: ClassVar[str] = "postgres"

    def _catalog(self, folder: Path) -> list[str]:  # noqa: ARG002 - each run has a server of its own
        host, _, port = self._server.partition("://")[2].partition(":")
        return [f"postgres:dbname=postgres host={host} port={port} user=postgres"]


class _Session:
    def __init__(self, there: duckdb.DuckDBPyConnection) -> None:
        self._there = there

    def append(self, new: pa.Table, note: Note) -> None:
        self._do(lambda: self._insert(new), note)

    def replace(self, part: str, new: pa.Table, note: Note) -> None:
        def write() -> None:
            self._there.execute(f"DELETE FROM rows WHERE {rows.PARTITION} = ?", [part])
            self._insert(new)

        self._do(write, note)

    def upsert(self, new: pa.Table, note: Note) -> None:
        self._do(lambda: self._merge(new), note)

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        def write() -> None:
            parts, names = sorted({part for part, _ in keys}), [key for _, key in keys]
            found = self._there.execute(
                f"SELECT {_COLUMNS} FROM rows WHERE list_contains(?, {rows.PARTITION}) AND list_contains(?, {rows.KEY})",
                [parts, names],
            ).to_arrow_table()
            found = found.cast(rows.SCHEMA)
            note.saw(found)
            self._merge(change(found))

        self._do(write, note)

    def delete(self, value: int, note: Note) -> None:
        def write() -> None:
            self._there.execute(
                f"DELETE FROM rows WHERE {rows.VALUE} = ? AND starts_with({rows.KEY}, ?)", [value, rows.APPENDED]
            )

        self._do(write, note)

    def serve(self, note: Note) -> None:
        note.attempt()
        for call in ("ducklake_flush_inlined_data", "ducklake_merge_adjacent_files"):
            try:
                self._there.execute(f"CALL {call}('lake')")
            except duckdb.Error as e:
                raise _lost(e) from e
        note.landed("", [])

    def close(self) -> None:
        self._there.close()

    def _insert(self, new: pa.Table) -> None:
        self._there.register("new", new)
        self._there.execute(f"INSERT INTO rows SELECT {_COLUMNS} FROM new")

    def _merge(self, new: pa.Table) -> None:
        # Partitions as constants, so that only their files are read.
        parts = ", ".join(_quoted(part) for part in sorted(set(new[rows.PARTITION].to_pylist())))
        self._there.register("new", new)
        fresh = ", ".join(f"new.{name}" for name in _NAMES)
        same = f"rows.{rows.PARTITION} = new.{rows.PARTITION} AND rows.{rows.KEY} = new.{rows.KEY}"
        self._there.execute(
            f"MERGE INTO rows USING (SELECT {_COLUMNS} FROM new) AS new"
            f" ON rows.{rows.PARTITION} IN ({parts}) AND {same}"
            f' WHEN MATCHED THEN UPDATE SET "{rows.VALUE}" = new."{rows.VALUE}", "{rows.BY}" = new."{rows.BY}"'
            f" WHEN NOT MATCHED THEN INSERT VALUES ({fresh})"
        )

    def _do(self, write: Callable[[], object], note: Note) -> None:
        note.attempt()
        self._there.begin()
        try:
            write()
            note.think()
            self._there.commit()
        except duckdb.Error as e:
            self._roll_back()
            raise _lost(e) from e
        except BaseException:
            self._roll_back()
            raise
        # Fetch the whole answer: otherwise its transaction stays open, and with SQLite no other writer can write.
        ((snapshot,),) = self._there.execute("FROM ducklake_last_committed_snapshot('lake')").fetchall()
        note.landed(str(snapshot), [])

    def _roll_back(self) -> None:
        with suppress(duckdb.TransactionException):  # a failed commit has ended it
            self._there.rollback()


def _extension(module: str) -> Path:
    """Return the file of a package with an extension, built for the version of DuckDB that its own version names."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    found = sorted(folder.glob("*.duckdb_extension"))
    if not found:
        raise ConfigError(
            f"{module} has no extension for DuckDB {duckdb.__version__}; install both in the same version"
        )
    return found[0]


def _lost(error: duckdb.Error) -> Exception:
    """Return `Aborted` with a constant reason if another writer was in the way, else the error itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "conflict" in line.lower()), lines[-1] if lines else "")
    if isinstance(error, duckdb.TransactionException) or "database is locked" in told:
        return Aborted("the catalog's database is locked" if "database is locked" in told else told[:120])
    return error


def _sql(field: pa.Field) -> str:
    return "BIGINT" if field.type == rows.SCHEMA.field(rows.VALUE).type else "VARCHAR"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
