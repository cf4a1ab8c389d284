"""What a writer does with its transaction between begin and commit: look at the snapshot, announce and add files.

No protocol in here: that is `transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .avro import WriteStat
from .commit_log import Follower
from .over import is_over
from .staging import Staged
from .view import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from .basefile import FileSpec
    from .snapshot import FileSlice, Snapshot
    from .table import Table
    from .writer import NewFile


class Work:
    """The part of a `Transaction` that its writer uses while it is open.

    Attributes:
        operation: as it was begun.
        url: of the table.
        instant: its requested time T.
        begin_slot: its place in the log; the snapshot is the state there.
    """

    instant: str
    begin_slot: int

    def __init__(self, table: Table, name: str) -> None:
        self._table, self.operation, self.url = table, name, table.url
        self._staged = Staged(name)
        self._follower = Follower()
        self._schema: str | None = None
        self._columns: pa.Schema | None = None
        self._snapshot: Snapshot | None = None
        self._began_with: tuple[str | None] | None = None
        self._open_files: list[NewFile] = []
        self._state = "open"

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever has landed since."""
        if self._snapshot is None:
            self._snapshot = self._table.views.at(self.begin_slot, self.instant, self._follower).snapshot
        return self._snapshot

    @property
    def schema(self) -> pa.Schema | None:
        """The table's data columns as of the begin slot, None when it has had no schema yet."""
        text = self._schema_seen()
        return arrow_schema(text) if text else None

    def _schema_seen(self) -> str | None:
        if self._began_with is None:
            self._began_with = (self._table.views.schema_at(self.begin_slot, self.instant, self._follower),)
        return self._began_with[0]

    def read(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of a file slice; with ``meta`` also Hudi's five columns, which mark a row as unchanged on write.

        Columns that the table got after the file was written hold nulls, so that the rows can be written again.
        """
        import pyarrow as pa

        self._staged.saw(group)
        rows = self._table.read_slice(group, columns=columns, meta=meta)
        for field in self.schema or ():
            if field.name not in rows.column_names and (columns is None or field.name in columns):
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def replace(self, group: FileSlice) -> NewFile:
        """The successor of a file slice: its name and marker exist before the file does."""
        from .writer import NewFile

        return NewFile(self, partition=group.partition, file_id=group.file_id, replaces=group)

    def create(self, partition: str = "", *, file_id: str | None = None) -> NewFile:
        """A new file group in a partition."""
        from .names import new_file_id
        from .writer import NewFile

        return NewFile(self, partition=partition, file_id=file_id or new_file_id(self._table.env.uuid()))

    def _adopt(self, file: NewFile) -> None:
        self._require_open()
        self._open_files.append(file)

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """What a worker needs to write data files of this transaction; pickles. Checks and widens the schema.

        Raises:
            InputError: a column is dropped or changes its type, or its type cannot be held by every reader.
        """
        import pyarrow as pa

        self._require_open()
        spec, self._schema = self._table.file_spec(self.instant, schema, self.schema)
        if self._columns is not None and self._columns.names != spec.schema.names:
            # Another file of this transaction has other new columns: the table gets the new columns of all of them.
            more = [field for field in spec.schema if field.name not in self._columns.names]
            wide = pa.schema([*self._columns, *more])
            spec, self._schema = self._table.file_spec(self.instant, wide, self.schema)
        self._columns = spec.schema
        return spec

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Files that workers have written and that belong to the commit; one per file group."""
        self._require_open()
        self._staged.add(stats)

    def drop(self, slices: Iterable[FileSlice]) -> None:
        """File groups that readers shall no longer see; only in overwrites and delete_partition."""
        self._require_open()
        self._staged.drop(slices)

    def overwrites(self, partition: str | None) -> None:
        """Claim a partition (None: the table) with all that appears in it before the commit."""
        self._require_open()
        self._staged.overwrites(partition)

    def reads(self, partition: str | None) -> None:
        """Declare that the result depends on everything in a partition (None: the table)."""
        self._require_open()
        self._staged.reads(partition)

    def scanned(self, partition: str | None) -> None:
        """Say that rows of a partition (None: the table) were read. Counts above isolation ``snapshot``.

        Who says nothing there may have read everything; slices that `read` gave are known by themselves.
        """
        self._require_open()
        self._staged.scanned(partition, self.snapshot.file_groups(partition))

    def commit_empty(self) -> None:
        """Let this transaction land even when it changes nothing; otherwise it leaves no trace."""
        self._require_open()
        self._staged.empty_too = True

    def _require_open(self) -> None:
        if self._state != "open":
            raise is_over(self, self._state)
