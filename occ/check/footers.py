"""The check of data files' contents: footers, key ranges and log files always, all rows in a deep check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, LakeLatchError
from ...hudi.files import BaseFile, Listing, note_of
from ...hudi.table import META_COLUMNS, TableConfig, java_span, may_be_span
from ...hudi.timeline import FileSlice, WriteStat
from ...storage import Store
from ..entries import RANGES, decode_ranges, ranges_path
from .findings import RESTORE, Findings

if TYPE_CHECKING:
    from ...streams import Stream


RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
COMMIT_TIME, RECORD_KEY = META_COLUMNS[0], META_COLUMNS[2]


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts in one file's footer: ``rows`` is None if it cannot be read; problems are (kind, sentence).

    ``keys``: its smallest and largest record key, if it has them. ``summed``: its note says that pages have checksums.
    ``unread``: the reason why the store refused the read, which is no fault of the file.
    """

    path: str
    rows: int | None
    problems: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()
    summed: bool = False
    unread: str = ""


def check_footers(
    store: Store,
    config: TableConfig,
    jobs: list[tuple[BaseFile, WriteStat | None, str]],
    out: Findings,
    *,
    run_all: RunAll,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Footer]:
    """Check all footers and return them by path. A job is a file, its statistics in the commit, and the commit's C or ""."""
    found: dict[str, Footer] = {}
    for done, footer in enumerate(run_all(lambda job: inspect(store, config, *job), jobs), 1):
        for kind, message in footer.problems:
            out.add(kind, footer.path, message, RESTORE)
        if footer.unread:
            out.unchecked.append(footer.unread)
        found[footer.path] = footer
        if progress:
            progress(done, len(jobs))
    return found


def inspect(store: Store, config: TableConfig, base: BaseFile, stat: WriteStat | None, completed: str = "") -> Footer:
    """Read and judge one file's footer. Runs on any thread; a fault of the file is returned, not raised."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.open(base.path) as stream:
            meta = pq.read_metadata(stream)
        problems, keys = tuple(_problems(meta, config, base, stat, completed)), tuple(key for key in _said(meta) if key)
    except (pa.ArrowException, OSError, LakeLatchError, ValueError) as e:
        if store.head(base.path) is None:
            # Removed since the listing; `check_named` judges whether it may be.
            return Footer(base.path, None)
        if _withheld(e):
            return Footer(base.path, None, unread=f"{base.path}, which could not be read: {_first(e)}")
        return Footer(
            base.path, None, (("file-torn", f"{base.path} ({base.size} bytes) is no whole Parquet file: {_first(e)}"),)
        )
    return Footer(base.path, meta.num_rows, problems, keys, summed=bool(note_of(meta).get("checksums")))


def _withheld(error: BaseException) -> bool:
    """Return whether the store failed, for a permission or a device, rather than the file's content."""
    return isinstance(error, LakeLatchError) or (isinstance(error, OSError) and error.errno is not None)


def _said(meta: Any) -> tuple[str, str]:
    """Return the smallest and largest record key that the writer noted."""
    footer = meta.metadata or {}
    low, high = (footer.get(f"hoodie_{which}_record_key".encode(), b"") for which in ("min", "max"))
    return low.decode("utf-8", "replace"), high.decode("utf-8", "replace")


def _problems(
    meta: Any, config: TableConfig, base: BaseFile, stat: WriteStat | None, completed: str
) -> Iterator[tuple[str, str]]:
    if stat is not None and stat.num_writes != meta.num_rows:
        yield "row-count", f"{base.path} has {meta.num_rows} rows, its commit says {stat.num_writes}"
    if not config.populate_meta_fields:
        return
    names = [meta.schema.column(n).path for n in range(meta.num_columns)]
    if missing := [name for name in META_COLUMNS if name not in names]:
        yield "meta-columns", f"{base.path} lacks {', '.join(missing)}"
        return
    low, high = _span(meta, names.index(RECORD_KEY))
    said = _said(meta)
    if low is not None and high is not None and said != ("", "") and not may_be_span(said, (low, high)):
        yield "key-range", _other_range(base, said, (low, high))
    _, latest = _span(meta, names.index(COMMIT_TIME))
    # Compared with C rather than T: a file that a rebase merged again holds rows of commits that began after its own.
    if latest is not None and completed and latest > max(completed, base.instant):
        yield (
            "commit-time",
            f"{base.path} has a row of {latest}, later than the commit {base.instant} that wrote the file",
        )


def _span(meta: Any, column: int) -> tuple[str | None, str | None]:
    """Return the smallest and largest text of a column by its statistics; (None, None) if a row group has none."""
    lows, highs = [], []
    for group in range(meta.num_row_groups):
        statistics = meta.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return None, None
        lows.append(_text(statistics.min))
        highs.append(_text(statistics.max))
    return min(lows, default=None), max(highs, default=None)


def _first(error: BaseException) -> str:
    return str(error).partition(". ")[0].rstrip(".")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# --- deep --------------------------------------------------------------------------------------------------------


def check_keys(
    store: Store,
    config: TableConfig,
    streams: Sequence[Stream],
    slices: list[FileSlice],
    out: Findings,
    *,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Report broken pages of base files, and record keys that occur twice in a partition, log files merged.

    Reads all columns of the base files, one row group at a time, and the keys of log files. Memory: eight bytes per row of a
    partition.
    """
    import numpy as np

    from ...hudi.table import wide_hashes

    by_partition: dict[str, list[FileSlice]] = defaultdict(list)
    for each in slices:
        if each.base is None or each.base.extension == "parquet":
            by_partition[each.partition].append(each)
    done, total = 0, sum(len(those) for those in by_partition.values())
    for partition, those in by_partition.items():
        hashes = []
        for each in those:
            keys = _keys(store, config, each.base, out, whole=True) if each.base else None
            keys = _with_logs(store, config, streams, each, keys)
            hashes.append(wide_hashes(keys) if keys is not None else np.zeros(0, np.uint64))
            done += 1
            if progress:
                progress(done, total)
        ordered = np.sort(np.concatenate(hashes))
        suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(suspects):
            _name_duplicates(store, config, streams, partition, those, suspects, out)


def _name_duplicates(
    store: Store,
    config: TableConfig,
    streams: Sequence[Stream],
    partition: str,
    slices: list[FileSlice],
    suspects: Any,
    out: Findings,
) -> None:
    """Compare the keys with equal hashes, since different keys may share one, and report the repeated ones."""
    import numpy as np

    from ...hudi.table import shown, wide_hashes

    where: dict[str, list[str]] = defaultdict(list)
    for each in slices:
        keys = _with_logs(store, config, streams, each, _keys(store, config, each.base, out) if each.base else None)
        for key in keys.filter(np.isin(wide_hashes(keys), suspects)).to_pylist() if keys is not None else ():
            where[key].append(each.base.path if each.base else min(each.paths))
    twice = {key: paths for key, paths in sorted(where.items()) if len(paths) > 1}
    if twice:
        files = sorted({path for paths in twice.values() for path in paths})
        out.add(
            "duplicate-keys",
            files[0],
            f"{len(twice)} record keys stand more than once in partition {partition or '(the root)'}: "
            f"{shown(list(twice))}, in {', '.join(files[:3])}{' and more' if len(files) > 3 else ''}",
            "rewrite the partition, keeping one row for each key",
        )


def _with_logs(store: Store, config: TableConfig, streams: Sequence[Stream], slice_: FileSlice, keys: Any) -> Any:
    """Return a slice's keys, log files merged; the base file's ``keys`` (None: unknown) if they cannot be merged."""
    import pyarrow as pa

    from ...streams import slice_rows

    if not slice_.logs or not config.populate_meta_fields or (slice_.base is not None and keys is None):
        return keys
    try:
        rows = slice_rows(store, config, streams, slice_, columns=(), meta=False)
    except (pa.ArrowException, OSError, LakeLatchError):  # `check_logs` reports damaged log files
        return keys
    return pa.concat_arrays(rows.column(RECORD_KEY).cast(pa.string()).chunks or [pa.array([], pa.string())])


def _keys(store: Store, config: TableConfig, base: BaseFile, out: Findings, *, whole: bool = False) -> Any:
    """Return the record keys of a file; None if they cannot be read. ``whole``: decode all other columns too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...hudi.table import record_keys

    columns = [RECORD_KEY] if config.populate_meta_fields else list(config.record_key_fields)
    try:
        with store.open(base.path) as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            pieces = [file.schema_arrow.empty_table().select(columns)]
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number, None if whole else columns, use_threads=False)
                rows.validate(full=True)
                pieces.append(rows.select(columns))
        keys = record_keys(pa.concat_tables(pieces), columns)
    except (pa.ArrowException, OSError, LakeLatchError, KeyError, ValueError) as e:
        if store.head(base.path) is None or out.at("file-torn", base.path) or out.at("meta-columns", base.path):
            return None
        if _withheld(e) and not isinstance(e, InputError):
            out.unchecked.append(f"the rows of {base.path}, which could not be read: {_first(e)}")
        else:
            out.add("file-torn", base.path, f"the rows of {base.path} cannot be read: {_first(e)}", RESTORE)
        return None
    if whole and config.populate_meta_fields:
        _check_range(file.metadata, base, keys, out)
    return keys


def _check_range(meta: Any, base: BaseFile, keys: Any, out: Findings) -> None:
    """Report a footer whose smallest and largest key are not those of the rows, in either order."""
    import pyarrow.compute as pc

    said, spans = _said(meta), [("", "")]
    if len(keys):
        found = pc.min_max(keys)
        spans = [(found["min"].as_py(), found["max"].as_py())]
        spans.append(java_span(keys, spans[0]))
    if said != ("", "") and any(mine not in fits for mine, fits in zip(said, zip(*spans, strict=True), strict=True)):
        out.add("key-range", base.path, _other_range(base, said, spans[0]), RESTORE)


def _other_range(base: BaseFile, said: tuple[str, str], found: tuple[str, str]) -> str:
    return (
        f"{base.path} says that its keys go from {said[0]!r} to {said[1]!r}, they go from {found[0]!r} to {found[1]!r}"
    )


def check_key_ranges(store: Store, listing: Listing, footers: Mapping[str, Footer], out: Findings) -> None:
    """Report stored ranges that differ from a file's footer: an upsert would miss rows there and insert them again.

    An object that is torn, or names deleted files, is harmless.
    """
    there = {f"{RANGES}/{name}" for name in store.names(RANGES)}
    if not there:
        return
    bases: dict[str, list[BaseFile]] = defaultdict(list)
    for base in listing.bases:
        bases[base.partition].append(base)
    for partition, files in bases.items():
        path = ranges_path(partition)
        body = store.body(path) if path in there else None
        ranges = (decode_ranges(partition, body) if body is not None else None) or {}
        for base in files:
            size, low, high = ranges.get(base.path.rpartition("/")[2], (-1, b"", b""))
            footer = footers.get(base.path)
            # Writers ignore such an entry.
            if size != base.size or footer is None or len(footer.keys) != 2:
                continue
            if footer.keys != (low.decode(), high.decode()):
                out.add(
                    "key-range-kept",
                    path,
                    f"{path} keeps other keys of {base.path} than its footer has, so upserts pass over rows there and write "
                    "them a second time",
                    f"delete {path}, which only saves time, and look for duplicate keys (`lakelatch check --deep`)",
                )


def check_logs(store: Store, slices: Iterable[FileSlice], out: Findings) -> None:
    """Read the frame of each block in the newest file slices, without decoding rows; report torn ones."""
    for log in (log for each in slices for log in each.logs):
        # With Arrow, which a table without log files needs no.
        from ...hudi.files import Torn, read_blocks

        try:
            stored = store.get(log.path)
            blocks = read_blocks(stored.body, log.path) if stored else []
        except LakeLatchError as e:
            out.unchecked.append(f"a log file: {e}")
            continue
        for torn in (block for block in blocks if isinstance(block, Torn)):
            message = f"{log.path} is torn from byte {torn.start} to {torn.end}: no reader counts what was there"
            out.add("log-torn", log.path, message, RESTORE)
