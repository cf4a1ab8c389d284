"""The import of commits that other engines have completed on the timeline: into entries of the log, and what stops it.

With neighbours the timeline comes first: a completed instant, put under the table's lock, is the commit, and its log
entry follows. The holder of the lock imports what the log does not know before it decides anything.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...conflict import NOWHERE, Kind, Region, kind_of
from ...errors import CorruptTableError, RolledBackError, TableError, UnsupportedTableError
from ...hudi.files import BaseFile
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    CommitMetadata,
    Instant,
    decode_commit,
    decode_container,
    file_name,
    is_time,
    skipped,
)
from ..entries import Batch, Begin, Commit, Import, Landed
from .epochs import read_all
from .publisher import attach
from .state import LogState

if TYPE_CHECKING:
    from ...storage import Store

_log = logging.getLogger("lakelatch.log")

ENGINE = "another engine"  # the writer of a commit that was imported


def completed_name(instant: Instant) -> str:
    """The name of a completed instant of another engine, whose action need not be known here."""
    return f"{instant.requested}_{instant.completed}.{instant.action}"


def imported(
    store: Store,
    found: Mapping[Instant, bytes],
    state: LogState,
    standing: Callable[[Collection[str], str], tuple[Landed, ...]],
) -> Import:
    """Return the entry that takes these completed instants into the log, in the order of C.

    Args:
        found: with their content.
        standing: returns the batches that become the newest of these sources again, by the commits up to that C.

    Raises:
        UnsupportedTableError: one of them is neither a commit nor a restore.
        TableError: one is of a transaction that the log has ended: its writer was paused, and published late.
        CorruptTableError: an instant cannot be read.
    """
    members = []
    for each in sorted(found, key=lambda instant: instant.order):
        name = completed_name(each)
        if (ended := state.ended.get(each.requested)) is not None:
            raise TableError(
                f"{store.url}: {name} is on the timeline, although the log says of it {ended!r}: its writer lost the lock, was "
                "taken for dead, and published all the same. Nothing was written. Its files may be gone; `lakelatch check` "
                "names them, and `lakelatch adopt URL LOCK` goes on without it once the writers have stopped",
                table=store.url,
                instant=each.requested,
            )
        if each.action not in COMMIT_ACTIONS and each.action != "restore":
            raise UnsupportedTableError(
                f"{store.url}: another engine has completed {name}, and what a {each.action} changes cannot be imported while "
                "writers are at work. Nothing was written. Stop the writers; `lakelatch adopt URL LOCK` takes it over",
                table=store.url,
                instant=each.requested,
            )
        if each.action == "restore":
            members.append(_restore_of(store, each, found[each], state, standing))
        else:
            content = decode_commit(found[each], name=name, layout=2, table=store.url)
            members.append(_entry_of(store, each, content, state))
    return Import(tuple(members))


def _restore_of(
    store: Store,
    instant: Instant,
    body: bytes,
    state: LogState,
    standing: Callable[[Collection[str], str], tuple[Landed, ...]],
) -> Commit:
    """The entry of a restore. It names what it has taken back as far as the log has it: only that could come again.

    What was open then has not landed: its writer finds its pending instant gone, and the next cleaning ends it.
    """
    taken = set(decode_container(body, "HoodieRestoreMetadata", name=file_name(instant))["instantsToRollback"])
    commits = [each for each in read_all(store) if isinstance(each, Commit) and each.action in COMMIT_ACTIONS]
    known = [name for each in commits for name in each.published if name.partition("_")[0] in taken]
    sources = {each.batch.source for each in state.batches if each.instant in taken}
    completed = instant.completed or instant.requested
    return Commit(
        instant.requested,
        completed,
        "restore",
        "RESTORE",
        ENGINE,
        state.token,
        metadata={"operation": "RESTORE"},
        undone=tuple(reversed(known)),
        standing=standing(sources, completed) if sources else (),
        imported=True,
    )


def _entry_of(store: Store, instant: Instant, content: CommitMetadata, state: LogState) -> Commit:
    begin: Begin | None = state.open.get(instant.requested)
    operation = content.operation or (begin.operation if begin else "UNKNOWN")
    commit = Commit(
        instant.requested,
        instant.completed or "",
        instant.action,
        operation,
        begin.writer if begin else ENGINE,
        state.token,
        _claimed(operation, content),
        _spelled(content.schema, state) if content.schema else None,
        batch=Batch.told_in(content.extra),
        imported=True,
    )
    return attach(store, commit, content)


def _claimed(operation: str, content: CommitMetadata) -> Region:
    """The region that an overwrite has claimed, as far as its metadata tells."""
    if kind_of(operation) is not Kind.OVERWRITE:
        return NOWHERE
    if operation.upper() == "INSERT_OVERWRITE_TABLE":
        return Region(whole_table=True)
    return Region(frozenset(content.replaced) | frozenset(stat.partition for stat in content.stats))


def _spelled(schema: str, state: LogState) -> str:
    """The schema as the log spells it, so that equal ones compare equal; another engine orders and names things its way."""
    known = state.schema
    return known if known and _columns(known) == _columns(schema) else _ours(schema)


@functools.lru_cache(maxsize=64)
def _columns(schema: str) -> object:
    from ...hudi.table import META_COLUMNS, from_avro

    return [field for field in from_avro(schema) if field.name not in META_COLUMNS]


@functools.lru_cache(maxsize=64)
def _ours(schema: str) -> str:
    import json

    import pyarrow as pa

    from ...hudi.table import META_COLUMNS, from_avro, to_avro

    columns = pa.schema([field for field in from_avro(schema) if field.name not in META_COLUMNS])
    name = str(json.loads(schema).get("name", "record")).removesuffix("_record")
    return to_avro(columns, name)


def refuse_skipped(
    store: Store,
    folder: str,
    new: Mapping[str, CommitMetadata],
    since: Callable[[str], list[tuple[Instant, CommitMetadata]]],
    *,
    merge_on_read: bool,
) -> None:
    """Raise `CorruptTableError` if one commit hides rows of another that it has not read, and either of them is new.

    That is what is left when a holder of the lock was paused longer than its lease, on either side. ``new``: by T.
    ``since`` returns the commits whose T is not below the given one.
    """
    # A log file is made from no version, and what hides it is newer than it: no older commit has to be read for it.
    bases = (stat for each in new.values() for stat in each.stats if BaseFile.at(stat.path, 0))
    oldest = min([*new, *(stat.prev_commit for stat in bases if is_time(stat.prev_commit))])
    if len(commits := since(oldest)) < 2:
        return
    found = skipped(commits, lambda name: store.body(f"{folder}/{name}"), merge_on_read=merge_on_read)
    if one := next((each for each in found if each.lost in new or each.kept in new), None):
        raise CorruptTableError(
            f"{store.url}: {one} ({one.path}): a writer held the lock while it was paused, or took none. Nothing was written "
            "now. The rows of the file are not in the table's newest version, and stay in the file until a cleaning takes it: "
            f"`lakelatch adopt URL LOCK` goes on without them, and `lakelatch rescue URL {one.lost}` writes them again",
            table=store.url,
            lost=one.lost,
            kept=one.kept,
            path=one.path,
        )


def refuse_planned_rollback(store: Store, folder: str, instant: str, rollbacks: Iterable[Instant]) -> None:
    """Raise `RolledBackError` if another engine plans to roll this transaction back, or does it now."""
    for each in rollbacks:
        name = file_name(replace(each, state="requested", completed=None))
        try:
            body = store.body(f"{folder}/{name}")
            target = _target(decode_container(body, "HoodieRollbackPlan", name=name)) if body else None
        except CorruptTableError:
            # Its writer died while it wrote the plan: the JVM passes over such a plan too, and makes another.
            _log.warning("%s: the rollback plan %s is torn, and passed over", store.url, name)
            continue
        if target == instant:
            raise rolled_back(store, instant, f"the rollback {each.requested} of another engine names it")


def rolled_back(store: Store, instant: str, why: str) -> RolledBackError:
    """The error of a transaction that may not publish any more, since another engine treats it as failed."""
    return RolledBackError(
        f"{store.url}: {instant} does not land: {why}. Nothing of it landed; a retry is safe, and Table.run makes it. If its "
        "writer was alive, the other engine takes live writers for failed ones: it needs "
        "hoodie.write.concurrency.mode=optimistic_concurrency_control and hoodie.clean.failed.writes.policy=LAZY",
        table=store.url,
        instant=instant,
    )


def _target(plan: Mapping[str, object]) -> object:
    named = plan.get("instantToRollback")
    return named.get("commitTime") if isinstance(named, Mapping) else None
