"""Makes this corpus, with the version of lakelatch that `README.md` names: see there."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lakelatch.conflict import EVERYWHERE, NOWHERE, ReadSet, Region, Reservation, Scan, Term, WriteSet
from lakelatch.environment import Process
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.log_encoding import _block, delete_block, parquet_block
from lakelatch.occ.entries import (
    Batch,
    Begin,
    Changed,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    Landed,
    LogEntry,
    Loss,
    Open,
    Setting,
    Settings,
    encode,
)
from lakelatch.streams import Default, Stream

HERE = Path(__file__).parent
T, C = "20260101120000001", "20260131235959999"
STRANGE = 'wörter 😀 𝒜𐍈 "\\\u2028'  # beyond the BMP, and what JSON escapes
GROUP = FileGroupId("day=𝒜😀", "00000001-0000-4000-8000-000000000000-0")
AREA = Region(frozenset({"day=1", "day=𝒜😀"}))


def one_by_one(entry: LogEntry, **optional: object) -> list[LogEntry]:
    """The entry without optional fields, with each of them alone, and with all."""
    return [entry, *(replace(entry, **{name: value}) for name, value in optional.items()), replace(entry, **optional)]


def entries() -> list[LogEntry]:
    process = Process("hóst", "boot-😀", 4711, "12345.67")
    begin = Begin(T, "commit", "UPSERT", STRANGE, process)
    plan = {"content": {"slices": {GROUP.partition: ["a.parquet"]}, "earliest": {"T": T, "C": C, "action": "commit"}}}
    side = {"side": ".hoodie/.lakelatch/sides/x-😀.json", "sha256": "ab" * 32}
    begins = one_by_one(
        begin,
        process=None,
        priority=-7,
        plan=plan,
        reserved=Reservation(AREA, frozenset({GROUP})),
        first=12,
        asked="0123456789abcdef" * 2,
    )
    begins += [
        replace(begin, action=action, plan=kept, planned_at=5, executes=executes)
        for action, kept, executes in itertools.product(
            ("clean", "compaction", "clustering", "logcompaction", "archive", "savepoint", "restore"),
            (plan, side),
            (False, True),
        )
    ]
    begins += [replace(begin, reserved=Reservation(EVERYWHERE)), replace(begin, reserved=Reservation(NOWHERE))]
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "größe", "type": ["null", "long"]}]})
    stat = {
        "file_id": GROUP.file_id,
        "path": f"{GROUP.partition}/x.parquet",
        "partition": GROUP.partition,
        "prev_commit": "null",
        "num_writes": 3,
        "columns": {"größe": [1, 2, 0, 3]},
    }
    logged = stat | {"path": f"{GROUP.partition}/.x.log.1_0-0-0", "log_files": ["x.log"], "base_file": None}
    metadata = {
        "operation": "UPSERT",
        "schema": schema,
        "extra": {"k😀": STRANGE},
        "stats": [stat, logged],
        "replaced": {GROUP.partition: [GROUP.file_id]},
        "compacted": True,
        "unique": {"e": {"spans": {"00": ["00", "ff"]}, "hashes": "AAAA"}},
    }
    commit = Commit(T, C, "commit", "UPSERT", STRANGE, 17, metadata={"operation": None, "schema": None})
    commits = one_by_one(
        commit,
        region=AREA,
        schema=schema,
        metadata=metadata,
        side={"path": side["side"], "sha256": side["sha256"]},
        blind=True,
        undone=(f"{T}_{C}.commit", f"{T}_{C}.deltacommit"),
        named=C,
        echo=f"{T}_{C}.commit",
        batch=Batch(STRANGE, 2**63 - 1),
    )
    commits += [
        replace(
            commit, action=action, operation=action.upper(), metadata={"operation": None, "schema": None, "held": held}
        )
        for action, held in itertools.product(("clean", "savepoint", "restore", "archive"), (plan, side))
    ]
    commits += [
        replace(commit, region=EVERYWHERE),
        replace(commit, metadata=None, side={"path": side["side"], "sha256": "0"}),
    ]
    where = (Term("größe", ">", 3), Term("n", "in", ("a", "😀")), Term("n", "is null"))
    scan = Scan(AREA, where, frozenset({GROUP}))
    loss = Loss("20260101120000002", "UPSERT", STRANGE, "row", files=1, rows=2, bytes=3, took_s=1.25, rounds=4)
    losses = one_by_one(
        loss,
        overlap=(STRANGE,),
        writes=WriteSet(frozenset({GROUP}), AREA, frozenset({GROUP})),
        reads=ReadSet(AREA, blind=True, condition=(scan,), scans=(scan, Scan(EVERYWHERE)), lookups=(scan,)),
        changed={GROUP: Changed(1, 2, 3, 4)},
        isolation="serializable",
        merges=True,
        same_rows=9,
        early=True,
        cut=True,
    )
    ends = [End(kind, T, STRANGE, reason) for kind in ("rollback", "abort") for reason in ("", STRANGE)]
    ends += [End("abort", T, "w", "lost", lost=each) for each in losses]
    stream = Stream("s😀", ("a", "größe"), "at")
    settings = one_by_one(
        Settings(),
        lock="redis://h/😀?key=x&lease=10s",
        strategy="priority",
        isolation="serializable",
        bucket_count=8,
        unique_keys=False,
        unique_constraints=(("e",), ("größe", "n")),
        statistics=("größe", "n"),
        merge=(("a", "sum"), ("b😀", "max")),
        ties="first",
        lease_s=7.5,
        lock_wait_s=1,
        yield_wait_s=0.25,
        reservation_s=31536000,
        early_conflict_detection="async",
        rebase=False,
        group_commit=True,
        heartbeat_interval_s=5.0,
        heartbeat_timeout_s=20,
        archive_above=None,
        log_epochs=1,
        min_version=2,
        target_file_bytes=1 << 30,
        small_file_bytes=0,
        generation=3,
    )
    settings += [Settings(statistics="all"), Settings(merge="partial_update"), Settings(archive_above=2)]
    settings += [
        Settings(bucket_count=1, streams=each)
        for each in (
            (stream,),
            (
                replace(
                    stream, on_delete="ignore", null="write", foreign_readers=False, defaults=(Default("a", "😀", T),)
                ),
                Stream("t", ("b",), "bt", on_delete="row", merge=(("b", "sum"),)),
            ),
        )
    ]
    opening = Open(T, 3, Settings(bucket_count=2), slot=4)
    opens = one_by_one(
        opening,
        settings=Settings(lock="none://"),
        open=tuple(replace(each, slot=9) for each in begins),
        last=replace(commits[-3], slot=8),
        schema=schema,
        batches=(Landed(Batch(STRANGE, 0), T), Landed(Batch("b", 1), C)),
    )
    groups: list[LogEntry] = [
        GroupBegin(tuple(begins[:3])),
        GroupBegin((begin,)),
        GroupCommit(tuple(commits[:4])),
        GroupCommit((commit,)),
    ]
    return [*begins, *commits, *ends, *(Setting(each, STRANGE) for each in settings), Close(), *opens, *groups]


def blocks() -> bytes:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "größe😀", "type": "long"}]})
    keys = [("k😀", GROUP.partition, 7), ("𝒜", "", None)]
    return b"".join(
        [
            parquet_block(T, schema, b"PAR1 stands for a file"),
            parquet_block(T, schema, b"", merged=[T, C]),
            delete_block(T, schema, keys, (pa.int64(),)),
            delete_block(T, schema, [(key, partition, None) for key, partition, _ in keys]),
            delete_block(T, schema, [("k", "p", ("a😀", 3))], (pa.string(), pa.int64()), merged=[C]),
            delete_block(T, schema, []),
            _block(0, {0: C, 1: T, 3: "0"}, b""),  # takes back the blocks of T; only Hudi's own writers make it
        ]
    )


def main() -> None:
    bodies = [encode(entry, slot // 10, slot, f"{slot:032x}") for slot, entry in enumerate(entries())]
    (HERE / "entries.jsonl").write_bytes(b"".join(body + b"\n" for body in bodies))
    (HERE / "blocks.log").write_bytes(blocks())


if __name__ == "__main__":
    main()
