"""Data files of a simulation: lists as JSON instead of rows as Parquet, written by the steps of `BaseFileWriter`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from lakelatch.errors import ConstraintError, RolledBackError, StorageError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.file_names import BaseName, base_file_name, join
from lakelatch.hudi.timeline.commit_metadata import WriteStat
from lakelatch.hudi.timeline.snapshot import FileSlice
from lakelatch.occ.entries.value_hashes import FileFacts
from lakelatch.occ.liveness.late_files import is_no_part
from lakelatch.occ.liveness.markers import Io, Marker, announce_all, stands
from lakelatch.occ.services import clustering, compaction
from lakelatch.occ.services.execution import Execution
from lakelatch.occ.services.rewriting import slices_of
from lakelatch.occ.staging.file_spec import refuse_if_over
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.workspace.attempt import Attempt
from lakelatch.occ.workspace.unique_constraints import Checker
from lakelatch.storage import Store

from .history import State, Value
from .row_tables import NAME as ROWS
from .store import Gone


def encode(content: State) -> bytes:
    return json.dumps([[*root, *value] for root, value in sorted(content.items())]).encode()


@functools.lru_cache(maxsize=4096)
def decode(body: bytes) -> State:
    """The lists in a file, by root. Not to be changed: it is kept."""
    return {
        FileGroupId(partition, file_id): Value(tuple(names), count, balance, tuple((key, email) for key, email in rows))
        for partition, file_id, names, count, balance, rows in json.loads(body)
    }


def read(store: Store, path: str) -> State:
    with store.open(path) as stream:
        return decode(stream.read())


def content_of(bodies: Callable[[str], bytes], each: FileSlice) -> State:
    """The lists of a file slice; each log file appends a name to all of them."""
    names = tuple(json.loads(bodies(log.path)) for log in each.logs)
    content = decode(bodies(each.path))
    if not names:
        return content
    return {
        root: old._replace(names=(*old.names, *names), count=old.count + len(names)) for root, old in content.items()
    }


def read_slice(store: Store, each: FileSlice) -> State:
    def body(path: str) -> bytes:
        with store.open(path) as stream:
            return stream.read()

    return content_of(body, each)


def put(txn: Transaction, partition: str, file_id: str, value: Value) -> None:
    """A data file with a list of its own that belongs to the commit."""
    txn.add([write(txn, partition, file_id, {FileGroupId(partition, file_id): value})])


def write(
    txn: Transaction | Attempt,
    partition: str,
    file_id: str,
    content: State,
    *,
    prev: str = "",
    number: int = 0,
    facts: FileFacts | None = None,
) -> WriteStat:
    """A data file, by the steps of `BaseFileWriter`."""
    store = txn.session.store
    path = join(partition, base_file_name(BaseName(file_id, f"0-{number}-0", txn.instant)))
    record = txn.session.records.get(txn.instant)

    def lives() -> bool:
        return record is not None and record.lives()

    if not lives():
        if record is not None:
            record.arrived()
        refuse_if_over(store, txn.instant)
    io: Io = "MERGE" if prev else "CREATE"
    if record is not None:
        record.markers.append(Marker(txn.instant, path, io))
    (marker,) = announce_all(store, txn.instant, [(path, io)])
    with store.create(path) as new:
        new.stream.write(encode(content))
        size = new.stream.tell()
        if record is not None:
            record.arrived()
        if not lives():
            if not stands(store, marker):
                raise RolledBackError("its marker is gone", instant=txn.instant)
            refuse_if_over(store, txn.instant)
        published = new.publish()
        secured = published if published.done else store.secure(path)
        if not lives() and not stands(store, marker):
            if published.done and is_no_part(store, txn.instant, path):
                store.delete(path)
            raise RolledBackError("its marker is gone", instant=txn.instant)
        if not secured.done:
            raise StorageError(f"{path} could not be published", path=path)
    return WriteStat(
        file_id, path, partition, prev or "null", num_writes=1, file_size=size, total_write_bytes=size, facts=facts
    )


def compare(checker: Checker, constraint: tuple[str, ...]) -> None:
    """`Checker.check`, of files that hold lists. Takes no time, so that schedules stay what they are."""
    stored = checker.store._objects.stored  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for path in (*(stat.path for stat in checker.stats), *(each.path for each in checker.others)):
        if path not in stored:
            raise Gone(f"{path} is not there", path=path)
        for value in decode(stored[path].body).values():
            for key, email in value.rows:
                if found.setdefault(email, key) != key:
                    raise ConstraintError(f"{email} in {key} and {found[email]}", constraint=constraint)


def merge_logs(execution: Execution) -> None:
    """`compaction.run`, of files that hold lists."""
    if execution.session.config.name == ROWS:
        return compaction.run(execution)
    for group in execution.content["groups"]:
        names = [*group["logs"], *([group["base"]] if group["base"] else ())]
        (each,) = slices_of(group["partition"], names)
        content = execution.attempt.seen(lambda each=each: read_slice(execution.session.store, each))  # type: ignore[misc]
        execution.workspace.add([write(execution.attempt, each.partition, each.file_id, content, prev=each.instant)])
    return None


def join_files(execution: Execution) -> None:
    """`clustering.run`, of files that hold lists."""
    if execution.session.config.name == ROWS:
        return clustering.run(execution)
    for group in execution.content["groups"]:
        slices, content = slices_of(group["partition"], group["files"]), State()
        for each in slices:
            content |= execution.attempt.seen(lambda each=each: read_slice(execution.session.store, each))  # type: ignore[misc]
        execution.workspace.add([write(execution.attempt, group["partition"], group["file_id"], content)])
        execution.workspace.drop_file_groups(slices)
    return None
