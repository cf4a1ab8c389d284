"""Writes one base file of one transaction: meta columns, marker before, exclusive creation after.

One name per (file group, T), whoever writes it. A task that Spark runs again, or twice at once, meets the name of its
first run; `publish` then loses, and the file that stands is reported instead, after a look whether it holds the same
keys. So there are never two files of one file group and T, which readers would refuse or count twice.

Memory: at most one row group of rows per open file.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...conflict import NEW_KEYS
from ...errors import CommitError, RolledBackError, StorageError
from ...hudi.files import NOTE, PARTITION_METADATA, BaseName, base_file_name, join, note_of, partition_metadata
from ...hudi.merge import widened
from ...hudi.table import RECORD_KEY
from ...hudi.timeline import NO_PREVIOUS_COMMIT, WriteStat
from ...storage import Outcome, put_secured
from ..liveness import announce, delete_data_file, is_no_part, stands
from ..log import FileFacts, Hashed, encoded, hashed_keys, keys_in, of_footer, without
from .file_spec import FileSpec, group_id, refuse_if_over, token
from .meta_columns import SEQNO, FileRows, RowNumbers

__all__ = ["BaseFileWriter", "FileSpec", "RowNumbers", "group_id", "refuse_if_over", "token"]

_MIN_KEY, _MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
# Days and times are in the calendar that Parquet's specification names. Spark 3 believes that only of a file that says it is
# of Spark 3 or later, and refuses those before October 1582 in any other (Apache Spark, `DataSourceUtils`).
_CALENDAR = {"org.apache.spark.version": "4.0.0"}
_LEVEL = {"zstd": 3}  # Spark's own; Arrow's default is 1
_SAMPLED_ROWS = 4096
_UNIQUE = 0.9  # of the rows have a value that no other one has
_SMALL_BYTES = 4096


class BaseFileWriter:
    """Writes ``<partition>/<file_id>_<token>_<T>.parquet``; a context manager that publishes at its end.

    Args:
        io: CREATE for a new file group, MERGE for the next version of one; ``prev_commit`` is T of the version before.
        trusted: the caller has put every row into its partition; spares the check.
        keep_hashes: collect `wide_hashes` of the new keys in `key_hashes`, eight bytes a row.
        replaces: path of the version before, whose keys say which rows are inserted unless `counts` does.
        begun: for a group whose rows an earlier write of the transaction has staged: path of the slice that it found, ""
            for none. What the commit tells of its rows counts from there.

    After the block `stat` says what stands. An exception inside the block leaves the marker and nothing else.
    """

    def __init__(
        self,
        spec: FileSpec,
        *,
        partition: str,
        file_id: str,
        token: str = "0-0-0",  # noqa: S107 - a write token is a part of a file name, no secret
        io: Literal["CREATE", "MERGE"] = "CREATE",
        prev_commit: str | None = None,
        numbers: RowNumbers | None = None,
        trusted: bool = False,
        keep_hashes: bool = False,
        replaces: str | None = None,
        begun: str | None = None,
    ) -> None:
        self._spec, self.partition, self._file_id, self._io = spec, partition, file_id, io
        self._replaces, self._begun = replaces if begun is None else begun or None, begun
        self._prev_commit = prev_commit
        self.name = base_file_name(BaseName(file_id, token, spec.instant))
        self.path = join(partition, self.name)
        self.stat: WriteStat | None = None
        self._shape = FileRows(
            spec,
            partition=partition,
            name=self.name,
            numbers=numbers or RowNumbers(int(token.partition("-")[0])),
            trusted=trusted,
            keep_hashes=keep_hashes or begun is not None,
        )
        self._rows = 0
        self._counts: tuple[int, int, int] | None = None
        self._inserted: pa.Array | None = None
        self._footer: list[pq.FileMetaData] = []
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._ending = False
        self._parquet: pq.ParquetWriter | None = None
        self._stack = ExitStack()

    def __enter__(self) -> BaseFileWriter:
        spec = self._spec
        refuse_if_over(spec.store, spec.instant)
        if self._io == "CREATE":
            _announce_partition(spec, self.partition)
        self._marker = announce(spec.store, spec.instant, self.path, self._io)
        self._object = self._stack.enter_context(spec.store.create(self.path))
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        try:
            if kind is None and self.stat is None:
                self.publish()
        finally:
            self._close_quietly()

    def abandon(self) -> None:
        """Leave without publishing; the marker stays for whoever cleans up."""
        self._close_quietly()

    @property
    def bytes_written(self) -> int:
        """Bytes that have left memory so far."""
        return self._object.stream.tell() if self._parquet is not None else 0

    @property
    def key_hashes(self) -> list[npt.NDArray[np.uint64]] | None:
        """Hashes of the new keys so far, where they were asked for."""
        return self._shape.key_hashes

    # Rows --------------------------------------------------------------------------------------------------------

    def write(self, rows: pa.Table) -> None:
        """Add rows, with or without meta columns; a row whose meta columns are null or missing is new.

        All calls hand in the same columns. Rows are looked at when a row group is full, so errors may come later.

        Raises:
            InputError: a column is missing, unknown or of another type, a new row has no key, or it belongs to
                another partition.
        """
        if not rows.num_rows:
            return
        self._rows += rows.num_rows
        self._buffer.append(rows)
        self._buffered += rows.num_rows
        if self._buffered >= self._spec.row_group_rows:
            self._flush(keep_rest=True)

    @property
    def waiting_rows(self) -> int:
        """Rows in memory that no row group holds yet."""
        return self._buffered

    def flush(self) -> None:
        """Write the waiting rows as a row group now, though it is not full: memory is needed elsewhere."""
        if self._buffer:
            self._flush(keep_rest=False)

    def counts(self, *, inserts: int, updates: int, deletes: int, inserted: pa.Array | None = None) -> None:
        """Say what became of the rows; otherwise every new row counts as inserted, in MERGE as updated.

        ``inserted``: the keys that are new in the table.
        """
        self._counts, self._inserted = (inserts, updates, deletes), inserted

    # File --------------------------------------------------------------------------------------------------------

    def _flush(self, *, keep_rest: bool) -> None:
        size = self._spec.row_group_rows
        pending = pa.concat_tables(self._buffer, promote_options="default").combine_chunks()
        whole = pending.num_rows // size * size if keep_rest else pending.num_rows
        for start in range(0, whole, size):
            group = self._shape.completed(pending.slice(start, min(size, whole - start)))
            parquet = self._open_parquet(group)
            if group.schema != parquet.schema:  # texts came in a dictionary in one call and plain in another
                group = widened(group, parquet.schema)
            parquet.write_table(group, row_group_size=size)
        rest = pending.slice(whole)
        self._buffer, self._buffered = ([rest] if rest.num_rows else []), rest.num_rows

    def _open_parquet(self, first: pa.Table) -> pq.ParquetWriter:
        if self._parquet is None:
            # In a file of a few rows a codec saves nothing, and its contexts cost more than all the rest of the writing.
            small = self._ending and first.nbytes < _SMALL_BYTES
            codec = "none" if small else self._spec.codec
            unique = {} if small else _encodings_of_unique(first)
            leaves = _leaves(first.schema)
            # Parquet's statistics leave NaN out, and a dictionary has one zero where Spark looks for both: a filter that
            # is pushed down to floats would miss rows that it is true for. Spark's own files have none of NaN.
            floats = {leaf for leaf, kind in leaves.items() if pa.types.is_floating(kind)}
            exact = [leaf for leaf in leaves if leaf not in floats]
            self._parquet = pq.ParquetWriter(
                self._object.stream,
                first.schema,
                compression=codec,
                compression_level=_LEVEL.get(codec),
                store_schema=False,  # else dictionary types of the meta columns return to pyarrow's readers
                use_dictionary=[leaf for leaf in exact if leaf not in unique] if floats or unique else True,
                write_statistics=exact if floats else True,
                column_encoding=unique or None,
                coerce_timestamps="us",
                write_page_checksum=True,
                metadata_collector=self._footer,
            )
        return self._parquet

    def finish(self) -> None:
        """The bytes are complete, but nobody sees them yet. `publish` does this by itself."""
        self._ending = True
        self.flush()
        parquet = self._parquet or self._open_parquet(self._shape.schema.empty_table())
        if parquet.is_open:
            inserts, updates, deletes = self._settled_counts()
            note: dict[str, Any] = {
                "digest": self._shape.digest,
                "inserts": inserts,
                "updates": updates,
                "deletes": deletes,
                "checksums": True,
            }
            if self._shape.key_column:
                note["key"] = self._shape.key_column
            footer = {NOTE: json.dumps(note), **_CALENDAR}
            if self._shape.java_span is not None:
                footer |= dict(zip((_MIN_KEY, _MAX_KEY), self._shape.java_span, strict=True))
            parquet.add_key_value_metadata(footer)
            parquet.close()

    def publish(self) -> WriteStat:
        """The file stands under its name, this one or one with the same rows of another run of the same task.

        Raises:
            RolledBackError: the transaction has ended meanwhile.
            CommitError: another run wrote other rows under this name; the transaction must be run again.
            StorageError: the store gave no answer, or refused.
        """
        self.finish()
        spec = self._spec
        self._object.stream.flush()
        size = self._object.stream.tell()
        if not stands(spec.store, self._marker):
            raise self._withheld()
        refuse_if_over(spec.store, spec.instant)
        put = self._object.publish()
        # What is there, ours or of another run, may be on no disk.
        secured = put if put.done else spec.store.secure(self.path)
        if not stands(spec.store, self._marker):
            # Stopped after the look above, for so long that the sweep went by before the file was there; or after the
            # file was there, which another run of this task has reported and the transaction has committed (trap 19).
            if put.outcome is Outcome.DONE and is_no_part(spec.store, spec.instant, self.path):
                delete_data_file(spec.store, self.path, instant=spec.instant)
            raise self._withheld()
        if put.outcome is Outcome.DONE:
            self.stat = self._stat(self._rows, size, *self._settled_counts(), self._footer[0])
        elif secured.done:
            self.stat = self._existing()
        else:
            raise StorageError(
                f"{self.path} could not be published: {secured.cause or put.cause or 'the store gave no answer'}; nothing "
                "landed, run the write again",
                path=self.path,
            )
        self._close_quietly()
        return self.stat

    def _withheld(self) -> RolledBackError:
        return RolledBackError(
            f"the marker of {self.path} is gone: transaction {self._spec.instant} was ended by somebody else and its "
            "file is withheld. Run the write again",
            instant=self._spec.instant,
            path=self.path,
        )

    def _settled_counts(self) -> tuple[int, int, int]:
        new = self._shape.new_rows
        return self._counts or ((new, 0, 0) if self._io == "CREATE" else (0, new, 0))

    def _existing(self) -> WriteStat:
        with self._spec.store.open(self.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            footer = pq.read_metadata(stream)
        note = note_of(footer)
        if note.get("digest") != self._shape.digest or footer.num_rows != self._rows:
            raise CommitError(
                f"{self.path} was written twice with different rows, because the source gave other rows when Spark ran "
                "a task again; nothing landed. Write from a source that gives the same rows each time (store it first)",
                path=self.path,
                instant=self._spec.instant,
            )
        return self._stat(footer.num_rows, size, note["inserts"], note["updates"], note["deletes"], footer)

    def _stat(
        self, rows: int, size: int, inserts: int, updates: int, deletes: int, footer: pq.FileMetaData
    ) -> WriteStat:
        return WriteStat(
            file_id=self._file_id,
            path=self.path,
            partition=self.partition,
            prev_commit=self._prev_commit or NO_PREVIOUS_COMMIT,
            num_writes=rows,
            num_inserts=inserts,
            num_updates=updates,
            num_deletes=deletes,
            total_write_bytes=size,
            file_size=size,
            errors=0,
            facts=self._facts(footer),
            whole=None if self._begun is None else self._counted_from_begin(rows),
        )

    def _counted_from_begin(self, rows: int) -> tuple[int, int, int]:
        inserted = self._inserted_keys
        inserts, old = len(inserted.hashes) if inserted else 0, self._old_keys
        return inserts, self._shape.new_rows - inserts, (len(old.hashes) if old else 0) - (rows - inserts)

    def _facts(self, footer: pq.FileMetaData) -> FileFacts | None:
        wanted = self._spec.wanted
        if not (wanted.keys or wanted.unique_constraints or wanted.statistics):
            return None
        values = self._shape.constrained()
        if wanted.keys:
            keys = self._inserted_keys
            if keys is not None:
                values[NEW_KEYS] = keys_in(self.partition, keys)
        statistics = encoded(of_footer(footer, wanted.statistics)) if wanted.statistics else b""
        return FileFacts(statistics, values)

    @cached_property
    def _inserted_keys(self) -> Hashed | None:
        if self._inserted is not None and self._begun is None:
            return hashed_keys(self._inserted)
        changed = self._shape.new_keys()
        return changed if changed is None or self._replaces is None else without(changed, self._old_keys)

    @cached_property
    def _old_keys(self) -> Hashed | None:
        if self._replaces is None:
            return None
        with self._spec.store.open(self._replaces) as stream:
            old = pq.ParquetFile(stream).read([RECORD_KEY], use_threads=False).column(RECORD_KEY)
        return hashed_keys(old.combine_chunks())

    def _close_quietly(self) -> None:
        self._buffer = []
        self._stack.close()


def _announce_partition(spec: FileSpec, partition: str) -> None:
    """JVM readers find a partition only by this file, so it stands before the first data file."""
    path = join(partition, PARTITION_METADATA)
    if spec.store.head(path) is None:
        put = put_secured(spec.store, path, partition_metadata(spec.instant, partition))
        if not put.done:
            raise StorageError(
                f"{path} could not be written: {put.cause}; nothing landed, run the write again", path=path
            )


def _encodings_of_unique(first: pa.Table) -> dict[str, str]:
    """Encodings of the columns whose values are nearly all different: a dictionary would be larger than they are."""
    sample = first.slice(0, _SAMPLED_ROWS)
    found = dict.fromkeys((SEQNO, RECORD_KEY), "DELTA_BYTE_ARRAY")
    for field in sample.schema:
        if field.name in found or not sample.num_rows:
            continue
        if pa.types.is_dictionary(field.type):  # of the file before; large where its writer gave it up on the way
            if sum(len(chunk.dictionary) for chunk in first.column(field.name).chunks) > _UNIQUE * first.num_rows:
                found[field.name] = "DELTA_BYTE_ARRAY"
            continue
        whole_number = pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
        if not (whole_number or pa.types.is_string(field.type)):
            continue
        if pc.count_distinct(sample.column(field.name)).as_py() > _UNIQUE * sample.num_rows:
            found[field.name] = "DELTA_BINARY_PACKED" if whole_number else "DELTA_BYTE_ARRAY"
    return found


def _leaves(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Parquet columns by path, which is how encodings are chosen per column."""

    def below(path: str, kind: pa.DataType) -> dict[str, pa.DataType]:
        if pa.types.is_struct(kind):
            parts = {f"{path}.{f.name}": f.type for f in kind}
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            parts = {f"{path}.list.element": kind.value_type}
        elif pa.types.is_map(kind):
            parts = {f"{path}.key_value.key": kind.key_type, f"{path}.key_value.value": kind.item_type}
        else:
            return {path: kind}
        return {leaf: found for each, inner in parts.items() for leaf, found in below(each, inner).items()}

    return {leaf: kind for f in schema for leaf, kind in below(f.name, f.type).items()}
