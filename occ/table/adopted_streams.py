"""The streams of a table that is adopted: as its old log, its properties or the caller declare them.

Without its declaration an event counts for nothing, or replaces where it should add. So a table with streams is adopted with
the declaration of every event in its log files, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from ...errors import ConfigError, UnsupportedTableError
from ...hudi.files import note_of
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice
from ...storage import Store
from ...streams import Stream, declared_in, joined, newest_of, refuse_undeclared
from ..entries import Settings
from .stream import refuse_at_creation


def with_streams_of(
    store: Store,
    config: TableConfig,
    settings: Settings,
    schema: pa.Schema | None,
    given: Sequence[Stream],
    slices: Sequence[FileSlice],
) -> Settings:
    """Return the settings with the table's streams and buckets.

    Args:
        settings: what the old log said, as far as it could be read, and the caller.
        given: the caller's declarations, for a table that a version made which kept them in the log alone.

    Raises:
        ConfigError: the caller declares streams, or buckets, that are known otherwise.
        UnsupportedTableError: the table has streams, and nothing says how they merge.
    """
    declared = declared_in(config)
    known = newest_of(settings.streams, declared.streams if declared else ())
    if given and known:
        raise ConfigError(
            f"{store.url} knows its streams ({', '.join(each.name for each in known)}) by its log or its properties; leave out "
            "`streams`. Nothing was changed"
        )
    if not (known or given):
        if not config.for_streams:
            for slice_ in slices:
                refuse_undeclared(store, (), slice_.logs)
            return settings
        raise UnsupportedTableError(
            f"{store.url} has streams, and neither a log nor its properties say which: without their mergers and ordering "
            "columns events would be lost. Nothing was changed. Declare them as they were: lakelatch.adopt(url, streams={...}, "
            "bucket_count=...)",
            table=store.url,
            feature="streams",
        )
    buckets = settings.bucket_count
    if declared and buckets not in (None, declared.bucket_count):
        raise ConfigError(
            f"{store.url} has {declared.bucket_count} buckets, as its properties say, and bucket_count={buckets} was asked for: "
            "each writer would look for the rows of another in the wrong files. Leave it out. Nothing was changed",
            setting="bucket_count",
        )
    settings = replace(settings, bucket_count=declared.bucket_count if declared else buckets)
    if given:
        if schema is None:
            raise ConfigError(f"{store.url} has no columns yet, so no streams; leave out `streams`")
        refuse_at_creation(given, schema, config, store.url, settings)
        for each in given:
            known = joined(known, each, since="", table=store.url)
    return replace(settings, streams=known)


def refuse_other_merges(
    store: Store, config: TableConfig, streams: Sequence[Stream], slices: Sequence[FileSlice], foreign: Collection[str]
) -> None:
    """Raise `UnsupportedTableError` if a slice has events that no stream declares, or that another engine has merged.

    Args:
        foreign: T of the commits that the log does not know. Without a log: those after the table had its first stream, with
            base files that this library has not written.
    """
    declared = declared_in(config)
    for each in slices:
        refuse_undeclared(store, streams, each.logs)
        since = declared.since if declared else ""
        later = each.base is not None and bool(since) and each.instant > since and not _is_ours(store, each)
        if each.base is not None and (each.instant in foreign or later):
            raise UnsupportedTableError(
                f"{store.url}: commit {each.instant} of another engine has merged events of streams into {each.path}, where late "
                "ones count, and a sum is what one event contributed. Nothing was changed. Take it back with Hudi, before a "
                f"clean removes the log files: `set hoodie.write.markers.type=DIRECT; call rollback_to_instant(table => ..., "
                f"instant_time => '{each.instant}')`",
                table=store.url,
                instant=each.instant,
                feature="streams",
            )


def _is_ours(store: Store, each: FileSlice) -> bool:
    import pyarrow.parquet as pq

    with store.open(each.path) as stream:
        return bool(note_of(pq.read_metadata(stream)))
