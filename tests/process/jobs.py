"""What child processes do. Each function is one job; it runs in a process of its own."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from forge import until
from world import SCHEMA, add, insert, make, overwrite, rows

import lakelatch
import lakelatch.occ.table.create
from lakelatch.occ.landing import Coordinator
from lakelatch.occ.session.table_lock import TableLease
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.server import Access, Address, Application, Limits, Server, Watched
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import At, Call, Crash, Fault, FaultStore, Pause


def modules_needed(folder: str) -> list[str]:
    """What is imported by the work of the other jobs."""
    make(Path(folder))
    for name in ("left", "right"):
        make(Path(folder).with_name("several") / name)
    pay(str(Path(folder).with_name("several")))
    change(folder)
    give_up(folder)
    clean(folder)
    for service in ("savepoint", "cluster", "clean"):
        serve(folder, service)
    return [name for name in sys.modules if name != "__main__"]


def _crash(number: int | None, after: bool) -> list[Fault]:
    return [Crash(At(number), after=after)] if number else []


def _calls(store: FaultStore) -> list[list[Any]]:
    return [[call.number, call.op, call.path, call.writes] for call in store.calls]


def change(
    folder: str, acknowledged: str = "", number: int | None = None, after: bool = False, operation: str = "upsert"
) -> list[list[Any]]:
    """One transaction, killed at a call; returns its calls. ``acknowledged`` appears once it is told that it landed."""
    store = FaultStore(LocalStore(folder), *_crash(number, after))
    with Table(store, writer="killed") as table:
        with table.transaction(operation) as txn:
            if operation == "upsert":
                add(txn, "a")
                insert(txn, "c", "c0")
            else:
                overwrite(txn, "a", "a9")
        if acknowledged:
            Path(acknowledged).touch()
    return _calls(store)


def pay(
    folder: str, acknowledged: str = "", killed: str = "", number: int | None = None, after: bool = False
) -> dict[str, list[list[Any]]]:
    """A transfer between two tables, killed at a call to one of them; returns the calls to each."""
    stores = {
        name: FaultStore(LocalStore(f"{folder}/{name}"), *(_crash(number, after) if name == killed else ()))
        for name in ("left", "right")
    }
    left, right = (Table(store, writer="killed") for store in stores.values())
    with left, right:
        with lakelatch.transaction(left, right) as txn:
            add(txn[left], "a", -5)
            add(txn[right], "a", 5)
        if acknowledged:
            Path(acknowledged).touch()
    return {name: _calls(store) for name, store in stores.items()}


def transfer_until_killed(folder: str, seed: float) -> None:
    """Transfers between two tables, one after the other."""
    luck = random.Random(seed)
    with lakelatch.open(f"{folder}/left") as left, lakelatch.open(f"{folder}/right") as right:

        def work(txn: lakelatch.SeveralTransaction) -> None:
            amount, part = luck.randint(1, 9), luck.choice("ab")
            add(txn[left], part, -amount)
            add(txn[right], part, amount)

        while True:
            lakelatch.run(work, left, right, attempts=1000)


def give_up(folder: str, number: int | None = None, after: bool = False) -> list[list[Any]]:
    """A transaction that its writer aborts, killed at a call."""
    store = FaultStore(LocalStore(folder), *_crash(number, after))
    with Table(store, writer="killed") as table:
        txn = table.transaction()
        add(txn, "a")
        insert(txn, "c", "c0")
        txn.workspace.close_files()
        txn.abort()
    return _calls(store)


def clean(folder: str, number: int | None = None, after: bool = False, go: str = "") -> list[list[Any]] | list[str]:
    """A cleaning, killed at a call; with ``go`` it starts when that file is there and returns whom it rolled back."""
    store = FaultStore(LocalStore(folder), *_crash(number, after))
    with Table(store, writer="cleaner") as table:
        if go:
            until(Path(go).exists, what="the start")
            return table.rollback_failed_writes()
        table.rollback_failed_writes()
    return _calls(store)


def serve(folder: str, service: str, number: int | None = None, after: bool = False) -> list[list[Any]]:
    """A table service, killed at a call."""
    store = FaultStore(LocalStore(folder), *_crash(number, after))
    with Table(store, writer="server") as table:
        match service:
            case "clean":
                table.clean(retain_commits=1)
            case "archive":
                table.archive(keep_min=2, keep_max=2)
            case "cluster":
                table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)
            case "compact":
                table.compact()
            case "savepoint":
                table.savepoint()
            case "restore":
                table.restore(table.timeline().commits[-3].requested)
    return _calls(store)


def create(folder: str, number: int | None = None, after: bool = False) -> list[list[Any]]:
    """Make an empty table, killed at a call."""
    made: list[FaultStore] = []

    def open_store(url: str, **_options: Any) -> FaultStore:
        made.append(FaultStore(LocalStore(url), *_crash(number, after)))
        return made[-1]

    import_module("lakelatch.occ.table.table").open_store = open_store  # type: ignore[attr-defined]
    lakelatch.create(folder, record_key="id", partition_by="part", schema=SCHEMA).close()
    return _calls(made[0])


def stop_before_entry(folder: str, part: str = "a") -> dict[str, Any]:
    """Stops itself (SIGSTOP) under the lock, right before its commit entry; returns what it was told after that."""
    store = FaultStore(LocalStore(folder))
    with Table(store, writer="stopped") as table:
        txn = table.transaction()
        add(txn, part)
        store.add(Pause(_entry, call=lambda: os.kill(os.getpid(), signal.SIGSTOP)))
        try:
            result = txn.commit()
        except lakelatch.LakeLatchError as e:
            return {"error": type(e).__name__, "landed": e.landed, "instant": txn.instant}
        assert result is not None
        return {"error": None, "instant": result.instant}


def _entry(call: Call) -> bool:
    return call.op == "put_if_absent" and "/log/" in call.path


def begin_and_die(folder: str) -> None:
    """Leaves an open transaction with files behind."""
    with Table(LocalStore(folder), writer="dead") as table:
        txn = table.transaction()
        add(txn, "a")
        insert(txn, "c", "c0")
        txn.workspace.close_files()
        os.kill(os.getpid(), signal.SIGKILL)


def begin_and_wait(folder: str, ready: str, go: str) -> str:
    """A slow writer: commits when ``go`` is there."""
    with Table(LocalStore(folder), writer="slow") as table:
        with table.transaction() as txn:
            add(txn, "a")
            Path(ready).touch()
            until(Path(go).exists, what="the word to go on")
        assert txn.result is not None
        return txn.result.instant


def count(folder: str, go: str, times: int, stop: str = "") -> tuple[int, int]:
    """Adds one to a row so often, and on until ``stop`` is there; returns how often, and how many attempts it took."""
    until(Path(go).exists, what="the start")
    done = attempts = 0
    with lakelatch.open(folder) as table:
        while done < times or (stop and not Path(stop).exists()):
            attempts += table.run(lambda txn: add(txn, "a"), attempts=100).attempts
            done += 1
    return done, attempts


def count_watched(folder: str, go: str, times: int, inside: str, stop: str) -> tuple[int, int]:
    """The same; anyone who may append its commit creates a file, and removes it before it gives the lock back."""
    landing: list[bool] = []
    token_at, release = TableLease.token_at, TableLease.release

    def enter(lease: TableLease, state: Any) -> int:
        token = token_at(lease, state)
        if not landing:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # FileExistsError: two at once
            landing.append(True)
        return token

    def leave(lease: TableLease) -> Any:
        if landing:
            landing.clear()
            os.unlink(inside)
        return release(lease)

    TableLease.token_at, TableLease.release = enter, leave  # type: ignore[method-assign]
    return count(folder, go, times, stop)


def change_lock(folder: str, url: str, number: int | None = None, after: bool = False) -> list[list[Any]]:
    """Give the table another lock, killed at a call."""
    store = FaultStore(LocalStore(folder), *_crash(number, after))
    with Table(store, writer="changer") as table:
        table.set_lock(url)
    return _calls(store)


def coordinate(folder: str, port: int, token: str) -> None:
    """A coordinator, until it is killed."""
    with lakelatch.open(folder) as table, lakelatch.open(folder, writer="coordinator") as leading:
        watched, coordinators = {"table": Watched("table", table)}, {"table": Coordinator(leading.session)}
        application = Application(watched, Access(token), limits=Limits(markers_s=1e6), coordinators=coordinators)
        Server(application, Address(port=port)).run_here()


def insert_asking(folder: str, go: str, name: str, coordinator: str, token: str, stop: str) -> list[tuple[str, float]]:
    """Inserts row after row until ``stop`` is there; returns the keys of those that it was told have landed, and when."""
    told: list[tuple[str, float]] = []
    asks = lakelatch.CoordinatorServer(coordinator, token=token, table="table") if coordinator else None
    until(Path(go).exists, what="the start")
    with lakelatch.open(folder, writer=name, coordinator=asks) as table:
        while not Path(stop).exists():
            key = f"{name}-{len(told)}"
            table.run(lambda txn, key=key: insert(txn, name, key), operation="insert", attempts=100)
            told.append((key, time.monotonic()))
    return told


def random_work(folder: str, go: str, seed: int, times: int) -> dict[str, list[Any]]:
    """Random transactions; returns what each commit (by T) was about, for a serial replay."""
    chance = random.Random(seed)
    done: dict[str, list[Any]] = {}
    until(Path(go).exists, what="the start")
    with lakelatch.open(folder, writer=f"random {seed}") as table:
        for number in range(times):
            part = chance.choice("ab")
            kind = chance.choice(["add", "add", "put", "insert", "insert", "overwrite"])
            step: list[Any] = [kind, part, f"{part}-{seed}-{number}", chance.randrange(1, 100)]
            if kind == "put":
                step[2] = f"{part}-shared-{chance.randrange(3)}"
            operation = {"insert": "insert", "overwrite": "insert_overwrite"}.get(kind, "upsert")
            result = table.run(lambda txn, step=step: _do(txn, *step), operation=operation, attempts=100)
            if result.commit is not None:
                done[result.commit.instant] = step
    return done


def _do(txn: Transaction, kind: str, part: str, key: str, value: int) -> None:
    if kind == "add":
        txn.depends_on(f"part={part}")
        add(txn, part, value)
    elif kind == "put":
        _put(txn, part, key, value)
    elif kind == "insert":
        insert(txn, part, key, v=value)
    else:
        overwrite(txn, part, key, v=value)


def _put(txn: Transaction, part: str, key: str, value: int) -> None:
    """Set the row of a key, a new one if there is none."""
    txn.depends_on(f"part={part}")
    for group in txn.snapshot.file_slices(f"part={part}"):
        there = dict(zip(*txn.read_slice(group, columns=["id", "v"]).to_pydict().values(), strict=True))
        if key in there:
            txn.rewrite(group).write(rows(part, there | {key: value}))
            return
    insert(txn, part, key, v=value)
