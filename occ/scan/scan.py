"""`Scan`: chosen rows of one state of a table, read lazily."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from ...ahead import in_order
from ...arguments import number, suggesting
from ...errors import ConfigError, InputError
from ...hudi.table import python_rows
from ...hudi.timeline import FileSlice
from ...notebook import view
from ...progress import ProgressOption, Reporter, drawn
from ..session import files_there, some
from .explanation import Explanation, ScannedFile
from .parts import BATCH_ROWS_MAX, ScanPart
from .pruning import partitions_that_may_match
from .row_groups import RowReader, Wanted

if TYPE_CHECKING:
    from ..session import Session

Hold = Callable[[], AbstractContextManager[object]]


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows


@suggesting
class Scan:
    """A lazy read of rows of one state of a table, fixed when the scan was made.

    Each reading method starts from the beginning, so a scan may be read several times, and by several threads. Row groups are
    read ahead by as many threads as Arrow has (`pyarrow.set_cpu_count`), and come in the order of partitions and file groups.
    At most about twice as many row groups as threads are in memory.

    Polars, DuckDB, pandas and pyarrow accept a scan as input, through ``__arrow_c_stream__``. It pickles: another process opens
    the table for itself, and reads the same state; ``progress`` is not called from there.

    Attributes:
        schema: the columns of the rows.
        completion: the newest completion time C of the state, or None if unknown; `Table.changes` continues from it.
    """

    def __init__(
        self,
        session: Session,
        slices: Sequence[FileSlice],
        wanted: Wanted,
        *,
        pruned: Callable[[], Sequence[ScannedFile]] = tuple,
        completion: str | None = None,
        hold: Hold = nullcontext,
        finish: Callable[[pa.Table], pa.Table] = _as_they_are,
        limit: int | None = None,
    ) -> None:
        self._session, self._slices, self._wanted, self._pruned = session, tuple(slices), wanted, pruned
        self._hold, self._finish, self.completion, self._limit = hold, finish, completion, limit
        self._progress: ProgressOption | None = None
        self.schema: pa.Schema = finish(wanted.schema.empty_table()).schema

    def telling(self, progress: ProgressOption | None) -> Scan:
        """Set the callback for the number of rows read (True: a bar), and return this scan."""
        self._progress = progress
        return self

    # --- reading ---------------------------------------------------------------------------------------------

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, of at most 131,072 rows each; close it, or read it to its end.

        If it stays open for long, a reader's lease keeps its files from cleanings (`Table.pinned` does from the start).

        Raises:
            StorageError: a file was cleaned away meanwhile; read again. Earlier rows are right.
            CorruptTableError: another program has deleted a file.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table. Raises as `to_batches`."""
        tables = list(self._rows())
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def head(self, n: int = 10) -> pa.Table:
        """Return the first ``n`` rows as an Arrow table; no more row groups are read than that takes, and some ahead."""
        return self.limited(number(n, "head: n", least=0, whole=True)).to_arrow()

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame; `ConfigError` without pandas."""
        _optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars DataFrame; `ConfigError` without polars."""
        return _optional("polars").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return a DuckDB relation that streams the rows whenever it is executed; `ConfigError` without DuckDB.

        Args:
            connection: the relation's connection; by default DuckDB's default connection.
        """
        duckdb = _optional("duckdb")
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise InputError(f"connection={connection!r} is none of DuckDB's; give what `duckdb.connect()` returns")
        return (duckdb if connection is None else connection).from_arrow(self)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries; a date or time outside of Python's years 1 to 9999 is given as its number."""
        return python_rows(self.to_arrow())

    def count(self) -> int:
        """Return the number of rows; without a condition and log files, footers alone are read."""
        if self._wanted.condition is not None:
            asked = Wanted(self._wanted.table, tuple(self._wanted.asked), self._wanted.condition)
            return sum(rows.num_rows for rows in self._first(self._tables(asked)))
        reader = RowReader(self._session, self._wanted)
        with self._reading():
            calls = (partial(reader.count, each) for each in self._slices)
            found = sum(in_order(self._session.env, calls, self._at_once))
            return found if self._limit is None else min(found, self._limit)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows through Arrow's C stream interface."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a Scan is not iterable, because its rows are not read yet: go through `scan.to_batches()` for Arrow batches, "
            "or `scan.to_pylist()` for rows"
        )

    def parts(self, bytes_max: int) -> list[ScanPart]:
        """Split the scan for other processes, into parts of slices in order with at most ``bytes_max`` bytes of files.

        Only the retention, or a lease held meanwhile (`Table.pinned`), keeps their files.
        """
        number(bytes_max, "bytes_max", least=1, whole=True)
        if self._limit is not None:
            raise InputError(
                f"a scan of the first {self._limit:,} rows of {self._session.url} has no parts; read it here"
            )
        parts: list[list[FileSlice]] = []
        size = bytes_max
        for each in self._slices:
            if size + each.total_size > bytes_max:
                parts.append([])
                size = 0
            parts[-1].append(each)
            size += each.total_size
        of = self._session
        return [
            ScanPart(of.store, of.config, of.streams, self._wanted, tuple(slices), self._finish) for slices in parts
        ]

    # --- telling ---------------------------------------------------------------------------------------------

    def explain(self) -> Explanation:
        """Return the files that the scan reads or leaves out, with reasons. A condition makes it read footers, never rows."""
        reader = RowReader(self._session, self._wanted)

        def told(each: FileSlice) -> ScannedFile:
            if each.logs:
                base = f" onto {each.base.path}" if each.base else ""
                return ScannedFile(each.logs[-1].path, True, f"merges {len(each.logs)} log files{base}")
            if self._wanted.condition is None:
                return ScannedFile(each.path, True, "no condition")
            left, footer = reader.row_groups(each)
            what = f"{len(left)} of {footer.num_row_groups} row groups"
            return ScannedFile(
                each.path, bool(left), f"{what} may match" if left else "its statistics exclude the condition"
            )

        with self._reading():
            calls = (partial(told, each) for each in self._slices)
            return Explanation((*in_order(self._session.env, calls, self._at_once), *self._pruned()))

    def narrowed(self, columns: Sequence[str] | None, where: Any) -> Scan:
        """Return a scan of the same state with some of its columns (None: all) and the rows that meet a condition.

        For scans that have no condition yet.

        Raises:
            InputError: not a condition on these columns.
        """
        from ...conditions import condition_on

        asked, session = self._wanted, self._session
        assert asked.condition is None
        assert self._limit is None
        condition = None if where is None else condition_on(asked.table, where)
        slices: Sequence[FileSlice] = self._slices
        if condition is not None:
            paths = {each.partition for each in slices}
            may = partitions_that_may_match(paths, session.config, asked.table, condition)
            slices = [each for each in slices if each.partition in may]
        wanted = Wanted(asked.table, tuple(asked.columns if columns is None else columns), condition)
        return Scan(session, slices, wanted, completion=self.completion, hold=self._hold)

    def limited(self, limit: int | None) -> Scan:
        """Return this scan, of its first ``limit`` rows only; None: all of them."""
        if limit is None:
            return self
        number(limit, "limit", least=0, whole=True)
        least = limit if self._limit is None else min(limit, self._limit)
        made = Scan(
            self._session,
            self._slices,
            self._wanted,
            pruned=self._pruned,
            completion=self.completion,
            hold=self._hold,
            finish=self._finish,
            limit=least,
        )
        return made.telling(self._progress)

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = (
            self._session, self._slices, self._wanted, self._pruned(), self.completion, self._hold, self._finish, self._limit
        )  # fmt: skip
        return _again, made_of

    def __repr__(self) -> str:
        where = "" if self._wanted.condition is None else f" where {self._wanted.condition}"
        files = sum(len(each.paths) for each in self._slices)
        first = "" if self._limit is None else f"the first {self._limit:,} rows, "
        return (
            f"<Scan of {self._session.url}: {first}{some(self._wanted.columns)} of {files} files{where}; not read yet>"
        )

    def _repr_html_(self) -> str:
        files = sum(len(each.paths) for each in self._slices)
        return view(
            f"scan of {self._session.url}",
            [
                ("files", f"{files:,}"),
                ("where", self._wanted.condition),
                ("rows", None if self._limit is None else f"the first {self._limit:,}"),
                ("state", self.completion and f"of {self.completion}"),
            ],
            headers=("column", "type"),
            rows=[(each.name, each.type) for each in self.schema],
            below="not read yet: head(), to_pandas(), to_arrow() and others read it",
        )

    # --- how -------------------------------------------------------------------------------------------------

    @property
    def _at_once(self) -> int:
        return int(pa.cpu_count())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self._rows():
            yield from rows.to_batches(max_chunksize=BATCH_ROWS_MAX)

    def _rows(self) -> Iterator[pa.Table]:
        return self._first(self._tables(self._wanted), self._finish)

    def _first(
        self, tables: Generator[pa.Table], finish: Callable[[pa.Table], pa.Table] = _as_they_are
    ) -> Generator[pa.Table]:
        """Yield the rows up to the limit, and then read no further."""
        left = self._limit
        with closing(tables):
            while left is None or left > 0:
                if (rows := next(tables, None)) is None:
                    return
                found = finish(rows)
                if left is not None:
                    found = found.slice(0, min(left, found.num_rows))
                    left -= found.num_rows
                yield found

    def _tables(self, wanted: Wanted) -> Generator[pa.Table]:
        with self._reading(), drawn(self._progress) as told:
            report = Reporter(told, "read")
            for rows in RowReader(self._session, wanted).tables(self._slices, self._at_once):
                yield rows
                report.add(rows.num_rows)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._session.require_open()
        with self._hold(), files_there(self._session, "`read` was called"):
            yield


def _again(
    session: Session,
    slices: Sequence[FileSlice],
    wanted: Wanted,
    pruned: Sequence[ScannedFile],
    completion: str | None,
    hold: Hold,
    finish: Callable[[pa.Table], pa.Table],
    limit: int | None = None,
) -> Scan:
    return Scan(
        session, slices, wanted, pruned=lambda: pruned, completion=completion, hold=hold, finish=finish, limit=limit
    )


def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as e:
        raise ConfigError(f"rows for {name} need it installed: pip install {name}") from e
