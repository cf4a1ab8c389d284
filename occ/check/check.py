"""The verification of a table. It reads all that can be compared, and changes nothing.

Works on Hudi tables of versions 6, 8 and 9 from any writer; `Report.unchecked` names the parts that cannot be judged. May run
beside writers: files are listed first, so the transaction of each listed file has begun by the time the timeline and the log
are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...environment import SYSTEM, Environment
from ...errors import LakeLatchError, StorageError
from ...hudi.files import BaseFile, FileGroupId, Listing, list_data_files
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice, Replacement, TimelineView, build
from ..entries import Settings
from .commit_log import LogReport, check_log, check_publication, check_several
from .files import (
    Named,
    check_buckets,
    check_lineage,
    check_listed,
    check_named,
    check_remains,
    data_files,
    fate,
    named_files,
)
from .findings import Findings, Report
from .folders import check_folders, check_no_files
from .footers import Footer, RunAll, check_footers, check_key_ranges, check_keys, check_logs
from .timeline import History, check_archived, check_clock, check_properties, check_timeline, newest_schema
from .unique_values import check_unique, check_values

if TYPE_CHECKING:
    from ...storage import Store

Progress = Callable[[str, int, int], None]


def check(
    store: Store,
    *,
    deep: bool = False,
    run_all: RunAll = map,
    progress: Progress | None = None,
    env: Environment = SYSTEM,
) -> Report:
    """Verify the table at the store's root.

    Args:
        store: the store at the table's root.
        deep: also read all rows of the present state, verify their pages' checksums, and find repeated keys and repeated
            values under unique constraints, and rows that break a check.
        run_all: like `map`; a thread pool's reads several footers at once.
        progress: called with a label, the number of items done and the total.
        env: its clock decides which commits are from the future.

    Raises:
        TableNotFoundError: there is no table.
        UnsupportedTableError: a table version that this library cannot read.
        StorageError: the store failed.
    """
    out = Findings()
    try:
        config = check_properties(store, out)
    except StorageError:
        if check_no_files(store, out):
            raise
        config = None
    # After the properties: without a table there, the folders must not be searched.
    if not check_no_files(store, out) and config is not None:
        out.unchecked.append("everything else, because no reader comes past what is no file")
        return out.report(store.url)
    if config is None:
        out.unchecked.append("everything else, because the properties say how to read it")
        return out.report(store.url)
    listing = list_data_files(store)
    history = check_timeline(store, config, out)
    check_clock(history.timeline, env.now(), out)
    log = check_log(store, out)
    if log is not None:
        check_publication(store, history, log, out)
        check_several(store, log, out)
    check_archived(store, config, history.history, history.first_active, log.commits if log else (), out)
    named = named_files(history, log)
    check_named(store, listing, history, named, out)
    check_listed(listing, history, log, named, out)
    check_lineage(history, log, out)
    check_folders(store, listing, config, out)
    check_remains(store, history, log, out)
    slices = _newest(listing, history, log, out)
    footers = _check_contents(store, config, listing, (history, log, named), out, run_all, progress)
    check_key_ranges(store, listing, footers, out)
    check_logs(store, slices, out)
    # Last of the quick checks: writers at work have had time to remove files that only looked like leftovers.
    out.confirm(lambda path: store.head(path) is not None or bool(store.list(path, recursive=True)))
    if log is not None and log.settings is not None and log.settings.bucket_count:
        keys = {path: footer.keys for path, footer in footers.items()}
        check_buckets(store, config, slices, log.settings.bucket_count, keys, out, deep=deep)
    if deep and config.base_file_format == "PARQUET":
        settings = (log.settings if log is not None else None) or Settings()
        check_keys(store, config, settings.streams, slices, out, progress=_labelled(progress, "record keys"))
        check_unique(store, settings, slices, out)
        check_values(store, config, settings, slices, newest_schema(history.timeline, history.contents)[1], out)
    _add_facts(config, listing, history, log, slices, footers, out)
    _say_what_was_not_checked(store, config, deep, out)
    if deep:
        _say_what_was_not_read(footers, {path for each in slices for path in each.paths}, out)
    return out.report(store.url)


def _check_contents(
    store: Store,
    config: TableConfig,
    listing: Listing,
    known: tuple[History, LogReport | None, Named],
    out: Findings,
    run_all: RunAll,
    progress: Progress | None,
) -> dict[str, Footer]:
    """Open the Parquet files of present and past commits, not those of dead or open transactions."""
    history, log, named = known
    archived = {each.requested: each.completed or "" for each in (history.history or {}).values()}
    completion = archived | _completion(history, log)
    jobs: list[tuple[BaseFile, Any, str]] = []
    for base in listing.bases:
        if base.extension == "parquet" and fate(base.instant, history, log) in ("committed", "archived"):
            _, stat = named.stats.get(base.path, ("", None))
            jobs.append((base, stat, completion.get(base.instant, "")))
    return check_footers(store, config, jobs, out, run_all=run_all, progress=_labelled(progress, "data files"))


def _completion(history: History, log: LogReport | None) -> dict[str, str]:
    """Map T to C for all commits, published or not."""
    unpublished = {each.instant: each.completion for each in (log.commits if log else ())}
    return unpublished | {t: each.completed or each.requested for t, each in history.commits.items()}


def _newest(listing: Listing, history: History, log: LogReport | None, out: Findings) -> list[FileSlice]:
    """Return a reader's present file slices, with unpublished commits; one of two files of a group and commit is left out."""
    completion = _completion(history, log)
    contents = {**(log.contents if log else {}), **history.contents}
    replacements = tuple(
        Replacement(t, c, tuple(FileGroupId(p, each) for p, ids in contents[t].replaced.items() for each in ids))
        for t, c in completion.items()
        if t in contents and contents[t].replaced
    )
    once: dict[tuple[FileGroupId, str], BaseFile] = {}
    for base in listing.bases:
        once.setdefault((base.group, base.instant), base)
    unique = Listing(tuple(once.values()), listing.logs, listing.partitions)
    view = TimelineView(
        completion,
        history.first_active,
        replacements,
        history.timeline.first_landed,
        history.timeline.archived_files(),
    )
    try:
        return build(unique, view, history.timeline.config).file_slices()
    except LakeLatchError as e:  # its own check has reported the cause
        out.unchecked.append(f"the newest file slices: {e}")
        return []


def _add_facts(
    config: TableConfig,
    listing: Listing,
    history: History,
    log: LogReport | None,
    slices: list[FileSlice],
    footers: dict[str, Footer],
    out: Findings,
) -> None:
    bases = [each.base for each in slices if each.base is not None]
    out.facts.update(
        {
            "name": config.name,
            "table_version": config.version,
            "table_type": config.table_type,
            "base_file_format": config.base_file_format,
            "commits": len(history.timeline.commits),
            "instants": len(history.timeline.completed) + len(history.timeline.pending),
            "partitions": len({each.partition for each in slices}),
            "file_slices": len(slices),
            "data_files": len(listing.bases) + len(listing.logs),
            "bytes": sum(each.size for each in data_files(listing)),
            "rows": sum(footers[each.path].rows or 0 for each in bases if each.path in footers)
            if config.base_file_format == "PARQUET"
            else None,
            "log_entries": log.entries if log is not None else None,
            "open_transactions": sorted(t for t, what in log.outcome.items() if what == "open")
            if log is not None
            else [],
        }
    )


def _say_what_was_not_checked(store: Store, config: TableConfig, deep: bool, out: Findings) -> None:
    if config.base_file_format != "PARQUET":
        out.unchecked.append(f"the inside of {config.base_file_format} files")
    if config.merge_on_read:
        out.unchecked.append("the rows of log files (those told are of the base files)")
    if config.metadata_partitions or store.folders(".hoodie/metadata"):
        out.unchecked.append("the metadata table")
    if not deep:
        out.unchecked.append(
            "the rows themselves, their checks, and record keys and unique values that stand twice (--deep reads them)"
        )


def _say_what_was_not_read(footers: dict[str, Footer], read: set[str], out: Findings) -> None:
    if older := len(footers.keys() - read):
        out.unchecked.append(f"the rows of {older} files that only time travel sees; their footers were")
    if bare := sum(not footer.summed for path, footer in footers.items() if path in read and footer.rows is not None):
        out.unchecked.append(
            f"the values of {bare} files whose writer does not say that their pages have checksums: all were decoded, but "
            "a byte that has changed may still be a value"
        )


def _labelled(progress: Progress | None, label: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(label, done, total)
