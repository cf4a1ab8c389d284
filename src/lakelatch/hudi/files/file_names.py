"""Names of data files, in both directions.

    base file   <fileId>_<writeToken>_<T>.parquet
    log file    .<fileId>_<time>.log.<version>_<writeToken>   (time: T of the deltacommit; version 6: of the base file)

A file id is a UUID and ``-0``; with a bucket index the first eight characters are the bucket's number. A write token
is ``<task partition>-<stage>-<attempt>``.

Source: files that Hudi 0.14 to 1.2 wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

PARTITION_METADATA = ".hoodie_partition_metadata"

# Neither part may hold an underscore: it separates them, and readers split at it.
_BASE = re.compile(r"([^_./][^_/]*)_([^_./][^_/]*)_([0-9]+)\.([a-z]+)")
_LOG = re.compile(r"\.([^_./][^_/]*)_([0-9]+)\.log\.([0-9]{1,9})(?:_([^_/.]+))?(\.cdc)?")
_PART = re.compile(r"[^_./][^_/]*")
_BASE_EXTENSIONS = frozenset({"parquet", "orc", "hfile", "lance"})


class FileGroupId(NamedTuple):
    """A file group: relative partition path ("" when unpartitioned) and file id."""

    partition: str
    file_id: str

    def __str__(self) -> str:
        return f"{self.partition}/{self.file_id}" if self.partition else self.file_id


@dataclass(frozen=True, slots=True)
class BaseName:
    """The parts of a base file's name; ``instant`` is T of the commit that wrote it."""

    file_id: str
    write_token: str
    instant: str
    extension: str = "parquet"


@dataclass(frozen=True, slots=True)
class LogName:
    """The parts of a log file's name; ``instant`` is T of its deltacommit, in version 6 that of its base file."""

    file_id: str
    instant: str
    version: int
    write_token: str = ""
    cdc: bool = False


def base_file_name(name: BaseName) -> str:
    """Return the name of the base file with these parts."""
    assert _PART.fullmatch(name.file_id), name
    assert _PART.fullmatch(name.write_token), name
    return f"{name.file_id}_{name.write_token}_{name.instant}.{name.extension}"


def log_file_name(name: LogName) -> str:
    """Return the name of the log file with these parts."""
    assert _PART.fullmatch(name.file_id), name
    token = f"_{name.write_token}" if name.write_token else ""
    return f".{name.file_id}_{name.instant}.log.{name.version}{token}{'.cdc' if name.cdc else ''}"


def parse_base_name(name: str) -> BaseName | None:
    """Return the parts of a base file's name, or None for any other file."""
    parts = base_name_parts(name)
    return None if parts is None else BaseName(*parts)


def base_name_parts(name: str) -> tuple[str, str, str, str] | None:
    """Return file id, write token, T and extension as plain texts, or None; a listing parses a hundred thousand names."""
    found = _BASE.fullmatch(name)
    if found is None or found[4] not in _BASE_EXTENSIONS:
        return None
    file_id, token, instant, extension = found.groups()
    return file_id, token, instant, extension


def parse_log_name(name: str) -> LogName | None:
    """Return the parts of a log file's name, or None for any other file."""
    found = _LOG.fullmatch(name)
    return LogName(found[1], found[2], int(found[3]), found[4] or "", bool(found[5])) if found else None


def new_file_id(uuid: str, *, bucket: int | None = None) -> str:
    """Return a file id made of a 36-character UUID; with ``bucket``, one in that bucket."""
    assert len(uuid) == 36, uuid
    if bucket is None:
        return f"{uuid}-0"
    assert 0 <= bucket < 10**8, bucket
    return f"{bucket:08}{uuid[8:]}-0"


def bucket_of(file_id: str) -> int | None:
    """Return the bucket that a file id names, or None. Any UUID may look like a bucket: ask only of a bucketed table."""
    prefix = file_id[:8]
    return int(prefix) if len(prefix) == 8 and prefix.isascii() and prefix.isdigit() else None


def write_token(task_partition: int, stage: int, attempt: int) -> str:
    """Return the write token of one task attempt."""
    return f"{task_partition}-{stage}-{attempt}"


def partition_metadata(requested: str, partition: str) -> bytes:
    """Return the content of `PARTITION_METADATA`; the JVM finds a partition only by that file."""
    depth = partition.count("/") + 1 if partition else 0
    return f"#partition metadata\ncommitTime={requested}\npartitionDepth={depth}\n".encode()


def lies_outside(path: str) -> bool:
    """Return True if a path leads out of the table, or into a hidden folder, where no data file belongs."""
    # A quick test first, because a hundred thousand paths may be checked, and nearly all of them are fine.
    if ".." in path or "\0" in path or path[:1] in "./":
        parts = path.split("/")
        return "\0" in path or ".." in parts or path[:1] == "/" or (path[:1] == "." and len(parts) > 1)
    return False


def join(partition: str, name: str) -> str:
    """Return the path of a file relative to the table's root."""
    return f"{partition}/{name}" if partition else name
