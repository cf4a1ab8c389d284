"""The plan or result of a table service, as values: the content of plans, and the instants that Hudi's readers see.

    clean       the files that go, and the first commit that stays readable
    savepoint   the files that stay, and the commit whose state they are
    restore     the commit that the table went back to; the entry itself has the undone instants
    archive     the names of the instants that leave the active timeline
    clustering  the files that are read, by the file group that takes their rows
    compaction  the base file and the log files of each file group; a log compaction also which commits it takes over

A content is a dictionary of plain values. A small one is in the log entry, a large one in a side object that is
written and read back first, and that the entry names with its hash. ``slices`` are names of data files by partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import CorruptTableError
from ...hudi.files import BaseFile, FileGroupId, LogFile, join
from ...hudi.timeline import (
    Instant,
    encode_clean,
    encode_clean_plan,
    encode_clustering_plan,
    encode_compaction_plan,
    encode_restore,
    encode_savepoint,
    parse,
    to_epoch_ms,
)
from ...storage import Store
from .entry_rules import content_of
from .side_objects import INLINE_BYTES, hash_of, put_aside, read_aside

if TYPE_CHECKING:
    from .entries import Begin, Commit

Content = dict[str, Any]


def hold(store: Store, instant: str, content: Content, *, inline_bytes: int = INLINE_BYTES) -> dict[str, Any]:
    """The form of a content in a log entry: all of it, or its place if it takes more than ``inline_bytes``."""
    body = json.dumps(content, separators=(",", ":")).encode()
    if len(body) <= inline_bytes:
        return {"content": content}
    # Named by its hash, so that two contents under one T do not meet in one object.
    path, digest = put_aside(store, f"{instant}-{hash_of([body])[:16]}.json", [body])
    return {"side": path, "sha256": digest}


def held(store: Store, kept: Mapping[str, Any]) -> Content:
    """The reverse of `hold`. Raises `CorruptTableError` if the side object is gone or altered."""
    if "content" in kept:
        content: Content = kept["content"]
        return content
    body = read_aside(store, kept["side"], kept["sha256"])
    if body is None:
        raise CorruptTableError(
            f"{store.url}: {kept['side']} is missing or altered, which says what a table service does. Restore it; a plan "
            "that is pending ends with `lakelatch services cancel`",
            path=kept["side"],
        )
    try:
        return content_of(body)
    except ValueError as e:
        raise CorruptTableError(f"{store.url}: {kept['side']} cannot be understood: {e}", path=kept["side"]) from e


def groups_of(content: Mapping[str, Any]) -> frozenset[FileGroupId]:
    """The file groups that a content's slices belong to."""
    paths = (join(partition, name) for partition, names in content.get("slices", {}).items() for name in names)
    return frozenset(file.group for path in paths if (file := BaseFile.at(path, 0) or LogFile.at(path, 0)))


def by_partition(paths: Iterable[str]) -> dict[str, list[str]]:
    """Names of files by partition, sorted."""
    slices: dict[str, list[str]] = {}
    for path in sorted(paths):
        partition, _, name = path.rpartition("/")
        slices.setdefault(partition, []).append(name)
    return slices


def paths_of(content: Mapping[str, Any]) -> list[str]:
    """The reverse of `by_partition`, of a content's slices."""
    return [join(partition, name) for partition, names in content["slices"].items() for name in names]


def extent(content: Mapping[str, Any]) -> int:
    """The number of files, or archived instants, that a content names."""
    return len(content["archived"] if "archived" in content else paths_of(content))


def instant_body(store: Store, commit: Commit) -> bytes:
    """The completed instant of a clean, savepoint or restore: a function of its log entry."""
    assert commit.metadata is not None
    content = held(store, commit.metadata["held"])
    took_ms = to_epoch_ms(commit.completion) - to_epoch_ms(commit.instant)
    match commit.action:
        case "clean":
            return encode_clean(content, started=commit.instant, took_ms=took_ms)
        case "savepoint":
            return encode_savepoint(content, at_ms=to_epoch_ms(commit.instant))
        case "restore":
            return encode_restore(undone_by(commit), started=commit.instant, took_ms=took_ms)
    raise AssertionError(commit.action)


def plan_body(store: Store, begin: Begin) -> bytes:
    """The requested instant of a plan, to be put whole in one write: a partial one breaks JVM readers."""
    assert begin.plan is not None
    content = held(store, begin.plan)
    if begin.action == "clean":
        return encode_clean_plan(content, uri=store.uri)
    if begin.action in ("compaction", "logcompaction"):
        return encode_compaction_plan(content)
    return encode_clustering_plan(content, uri=store.uri)


def undone_by(commit: Commit) -> list[Instant]:
    """The instants that leave the timeline with this commit, newest first."""
    found = [instant for name in commit.undone if (instant := parse(name, layout=2))]
    return sorted(found, key=lambda instant: instant.order, reverse=True)
