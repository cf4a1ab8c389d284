"""The streams as ``hoodie.properties`` keep them beside the log, so that a table whose log was lost gets them back.

The log is the authority. A writer brings the properties up to it before its first event of a stream, so the properties know
every stream and column that an event was written for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..errors import CorruptTableError
from ..hudi.table import STREAMS_KEY, TableConfig
from .declaration import IGNORE_DEFAULTS, Stream

DECLARED_KEY = "lakelatch.streams.declared"
# A write option that Hudi takes from the table's properties, unless a job sets its own. Of an unknown value each of its
# clients says that there is no such constant, before it plans, compacts, clusters or writes; its readers do not look at it.
_NOT_BY_JVM = {"hoodie.write.markers.type": "ONLY_LAKELATCH_WRITES_AND_COMPACTS_TABLES_WITH_STREAMS"}


@dataclass(frozen=True, slots=True)
class Declared:
    """The streams of a table, the buckets that all their writers share, and the newest time before the first event."""

    streams: tuple[Stream, ...]
    bucket_count: int
    since: str


def with_streams(config: TableConfig, streams: Iterable[Stream], bucket_count: int, *, since: str) -> TableConfig:
    """Return the properties for a table with these streams: a null keeps the old value, and the JVM neither writes nor
    compacts it.

    Args:
        since: the newest time of the table. One that the properties have is kept.
    """
    before = declared_in(config)
    content = {"bucket_count": bucket_count, "since": before.since if before else since}
    declared = json.dumps(content | {"streams": [each.to_json() for each in streams]}, sort_keys=True)
    guarded = config.merging_columns()
    raw = {**guarded.raw, **_NOT_BY_JVM, STREAMS_KEY: "true", DECLARED_KEY: declared}
    return replace(guarded, partial_update_mode=IGNORE_DEFAULTS, raw=raw)


def declared_in(config: TableConfig) -> Declared | None:
    """Return the streams in the properties; None for a table without any, or of a version that did not keep them there.

    Raises:
        ConfigError: a newer version has written them.
        CorruptTableError: they cannot be read.
    """
    stored = config.raw.get(DECLARED_KEY)
    return None if stored is None else _parsed(stored)


@lru_cache(maxsize=64)
def _parsed(stored: str) -> Declared:
    try:
        content = json.loads(stored)
        return Declared(
            tuple(map(Stream.from_json, content["streams"])), int(content["bucket_count"]), str(content["since"])
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise CorruptTableError(
            f"{DECLARED_KEY} of .hoodie/hoodie.properties cannot be read ({e}), by which the table's streams come back when its "
            "log is lost. Restore the file from a copy; nothing was written",
            path=".hoodie/hoodie.properties",
        ) from e


def newest_of(known: Sequence[Stream], others: Sequence[Stream]) -> tuple[Stream, ...]:
    """Return the streams of two states of one table. Of a stream in both, the one with more columns is the later one."""
    found = {each.name: each for each in known}
    for each in others:
        if each.name not in found or len(each.columns) > len(found[each.name].columns):
            found[each.name] = each
    return tuple(found.values())
