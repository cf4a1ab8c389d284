"""The part of `check` that opens data files: footers always, key columns for a deep check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LatchError
from .avro import WriteStat
from .findings import RESTORE, Findings
from .key_order import may_be_span
from .listing import BaseFile
from .properties import TableConfig
from .schema import META_COLUMNS
from .snapshot import FileSlice

if TYPE_CHECKING:
    from ..storage import Store

RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
COMMIT_TIME, RECORD_KEY = META_COLUMNS[0], META_COLUMNS[2]


@dataclass(frozen=True, slots=True)
class Footer:
    """What one file's footer says: ``rows`` None when it cannot be read; problems as (kind, sentence).

    ``keys``: its smallest and its largest record key, where it tells them.
    """

    path: str
    rows: int | None
    problems: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()


def check_footers(
    store: Store,
    config: TableConfig,
    jobs: list[tuple[BaseFile, WriteStat | None, str]],
    out: Findings,
    *,
    run_all: RunAll,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Footer]:
    """What the footer of every file says, by path. A job is a file, what its commit says of it, and the commit's C."""
    found: dict[str, Footer] = {}
    for done, footer in enumerate(run_all(lambda job: inspect(store, config, *job), jobs), 1):
        for kind, message in footer.problems:
            out.add(kind, footer.path, message, RESTORE)
        found[footer.path] = footer
        if progress:
            progress(done, len(jobs))
    return found


def inspect(store: Store, config: TableConfig, base: BaseFile, stat: WriteStat | None, completed: str = "") -> Footer:
    """Look at one file. Runs on any thread; raises nothing for what is wrong with the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.open(base.path) as stream:
            meta = pq.read_metadata(stream)
    except (pa.ArrowException, OSError, LatchError) as e:
        if store.head(base.path) is None:
            return Footer(base.path, None)  # removed since it was listed; whether it may be is asked elsewhere
        return Footer(
            base.path, None, (("file-torn", f"{base.path} ({base.size} bytes) is no whole Parquet file: {_first(e)}"),)
        )
    keys = tuple(key for key in _said(meta) if key)
    return Footer(base.path, meta.num_rows, tuple(_problems(meta, config, base, stat, completed)), keys)


def _said(meta: Any) -> tuple[str, str]:
    """The smallest and the largest record key as the writer noted them."""
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
    said_low, said_high = _said(meta)
    known = low is not None and high is not None and (said_low or said_high)
    if known and not may_be_span((said_low, said_high), (str(low), str(high))):
        yield (
            "key-range",
            f"{base.path} says that its keys go from {said_low!r} to {said_high!r}, they go from {low!r} to {high!r}",
        )
    _, latest = _span(meta, names.index(COMMIT_TIME))
    # Not above C rather than T: a file that a rebase moved holds rows of commits that began after its own.
    if latest is not None and latest > max(completed, base.instant):
        yield (
            "commit-time",
            f"{base.path} has a row of {latest}, later than the commit {base.instant} that wrote the file",
        )


def _span(meta: Any, column: int) -> tuple[str | None, str | None]:
    """Smallest and largest text of a column by its statistics, (None, None) where a row group has none."""
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
    slices: list[FileSlice],
    out: Findings,
    *,
    progress: Callable[[int, int], None] | None,
) -> None:
    """No record key stands twice in one partition. Reads the key columns; keeps eight bytes a row of a partition."""
    import numpy as np

    from .keys import wide_hashes

    by_partition: dict[str, list[BaseFile]] = defaultdict(list)
    for each in slices:
        if each.base is not None and each.base.extension == "parquet":
            by_partition[each.partition].append(each.base)
    done, total = 0, sum(len(bases) for bases in by_partition.values())
    for partition, bases in by_partition.items():
        hashes = []
        for base in bases:
            keys = _keys(store, config, base, out)
            hashes.append(wide_hashes(keys) if keys is not None else np.zeros(0, np.uint64))
            done += 1
            if progress:
                progress(done, total)
        ordered = np.sort(np.concatenate(hashes))
        suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(suspects):
            _name_duplicates(store, config, partition, bases, suspects, out)


def _name_duplicates(
    store: Store, config: TableConfig, partition: str, bases: list[BaseFile], suspects: Any, out: Findings
) -> None:
    """Look again at the rows with equal hashes: different keys may share one."""
    import numpy as np

    from .keys import shown, wide_hashes

    where: dict[str, list[str]] = defaultdict(list)
    for base in bases:
        keys = _keys(store, config, base, out)
        if keys is not None:
            for key in keys.filter(np.isin(wide_hashes(keys), suspects)).to_pylist():
                where[key].append(base.path)
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


def _keys(store: Store, config: TableConfig, base: BaseFile, out: Findings) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .keys import record_keys

    columns = [RECORD_KEY] if config.populate_meta_fields else list(config.record_key_fields)
    try:
        with store.open(base.path) as stream:
            rows = pq.ParquetFile(stream).read(columns, use_threads=False)
        return record_keys(rows, columns)
    except (pa.ArrowException, OSError, LatchError) as e:
        if store.head(base.path) is not None and not out.has("file-torn"):
            out.add("file-torn", base.path, f"the record keys of {base.path} cannot be read: {_first(e)}", RESTORE)
        return None
