"""A process that writes until its input ends, and says on its output what it was told of each operation.

    python -m tests.weather.writer URL NAME SEED CLOCK ROLE [COORDINATOR TOKEN_FILE]

The file CLOCK says by how many seconds its clock is wrong; ROLE is "writer", "beside" beside JVM writers,
or "keeper" of one that runs table services.
Each line is ``{"at", "took", "op", "n", "told", ...}``: ``told`` is "landed", "failed" (by the library's promise nothing
landed), "unknown", or "raw" where no error of this library came. Moments are of the monotonic clock, which all processes share.

A writer counts one row up, moves amounts between two accounts, of one table and of two, appends rows under new numbers, deletes
its old ones in a transaction that takes long, claims values that are unique, and sends numbered events of a stream that sums,
each until it is acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.environment import SystemEnvironment
from lakelatch.occ.coordination import CoordinatorServer

OTHERS = ("two", "claims", "sums")  # tables beside the first, by the ends of their URLs
KEPT = 30  # a writer deletes what it appended so many operations ago
ACCOUNTS, TOTAL = 4, 400  # and as much in the other table
PATIENCE_S = 20.0  # of one operation's retries


class WrongClock(SystemEnvironment):
    """The system's, whose wall clock somebody sets while we run; the monotonic clock goes on."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def now(self) -> float:
        try:
            return super().now() + float(self._path.read_text() or 0)
        except OSError:  # no descriptor is left to read it with
            return super().now()


class Tables:
    """The tables as one writer has them open."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = url, options

    def _open(self, end: str) -> lakelatch.Table:
        return lakelatch.open(f"{self._url}{end}", **self._options)

    @cached_property
    def main(self) -> lakelatch.Table:
        return self._open("")

    @cached_property
    def two(self) -> lakelatch.Table:
        return self._open("-two")

    @cached_property
    def claims(self) -> lakelatch.Table:
        return self._open("-claims")

    @cached_property
    def sums(self) -> lakelatch.Table:
        return self._open("-sums")


class Writer:
    """One writer.

    Attributes:
        owed: the number of the batch that is not acknowledged yet; 0 if none is.
    """

    def __init__(self, tables: Tables, name: str, luck: random.Random) -> None:
        self.tables, self.name, self.luck, self.owed = tables, name, luck, 0

    def append(self, number: int) -> dict[str, Any]:
        row = {"id": f"{self.name}-{number}", "part": self.luck.choice("xy"), "v": number}
        self.tables.main.insert([row], timeout_s=PATIENCE_S)
        return {}

    def count(self, number: int) -> dict[str, Any]:
        def work(txn: lakelatch.Transaction) -> int:
            (row,) = txn.read(partitions=[{"part": "counter"}]).to_arrow().to_pylist()
            txn.upsert([row | {"v": row["v"] + 1}])
            return row["v"] + 1

        return {"value": self.tables.main.run(work, timeout_s=PATIENCE_S).value}

    def transfer(self, number: int) -> dict[str, Any]:
        one, other = self.luck.sample(range(ACCOUNTS), 2)

        def work(txn: lakelatch.Transaction) -> None:
            rows = {each["id"]: each for each in _accounts(txn)}
            amount = self.luck.randint(0, rows[f"a{one}"]["v"])
            changed = {f"a{one}": -amount, f"a{other}": amount}
            txn.upsert([rows[key] | {"v": rows[key]["v"] + change} for key, change in changed.items()])

        self.tables.main.run(work, timeout_s=PATIENCE_S)
        return {}

    def move(self, number: int) -> dict[str, Any]:
        """A transfer from an account of one table to one of the other."""
        tables = (self.tables.main, self.tables.two)
        keys = [f"a{self.luck.randrange(ACCOUNTS)}" for _ in tables]
        one, other = self.luck.sample((0, 1), 2)

        def work(txn: lakelatch.SeveralTransaction) -> None:
            rows = [
                next(row for row in _accounts(txn[each]) if row["id"] == key)
                for each, key in zip(tables, keys, strict=True)
            ]
            amount = self.luck.randint(0, max(rows[one]["v"], 0))
            for at, change in ((one, -amount), (other, amount)):
                txn[tables[at]].upsert([rows[at] | {"v": rows[at]["v"] + change}])

        lakelatch.run(work, *tables, timeout_s=PATIENCE_S)
        return {}

    def purge(self, number: int) -> dict[str, Any]:
        """Delete own appends that are old, but the newest, in a transaction that takes a second while others append."""

        def work(txn: lakelatch.Transaction) -> list[str]:
            rows = txn.read(partitions=[{"part": "x"}, {"part": "y"}]).to_arrow().to_pylist()
            own = sorted(
                (each["v"], each["id"], each["part"]) for each in rows if each["id"].startswith(f"{self.name}-")
            )
            old = [{"id": key, "part": part} for v, key, part in own[:-1] if v < number - KEPT]
            time.sleep(1.0)
            if old:
                txn.delete(old)
            return [each["id"] for each in old]

        return {"purged": self.tables.main.run(work, timeout_s=PATIENCE_S).value}

    def claim(self, number: int) -> dict[str, Any]:
        """All writers are at similar numbers, so they want the same values; a value that is taken is no failure."""
        try:
            self.tables.claims.insert([{"id": f"{self.name}-{number}", "value": number // 2}], timeout_s=PATIENCE_S)
        except lakelatch.ConstraintError:
            return {"taken": True}
        return {}

    def event(self, number: int) -> dict[str, Any]:
        row = {"id": f"s{self.owed % 5}", "at": self.owed, "n": self.owed}
        self.tables.sums.stream("s").upsert([row], batch=(self.name, self.owed), timeout_s=PATIENCE_S)
        self.owed = 0
        return {}

    def look(self, number: int) -> dict[str, Any]:
        """What a reader of both sees: the sum of all accounts, the counter, and the newest append of each writer."""
        both = (self.tables.main, self.tables.two)
        cut = lakelatch.read_together(*both)
        rows, others = (cut.read(each).to_arrow().to_pylist() for each in both)
        newest: dict[str, int] = {}
        for each in rows:
            if each["part"] in "xy":
                writer = each["id"].rpartition("-")[0]
                newest[writer] = max(newest.get(writer, 0), each["v"])
        return {
            "sum": sum(each["v"] for each in (*rows, *others) if each["part"] == "bank"),
            "counter": next(each["v"] for each in rows if each["part"] == "counter"),
            "newest": newest,
        }

    def services(self, number: int) -> dict[str, Any]:
        found = dict[str, Any]()
        for each in (self.tables.main, self.tables.two, self.tables.claims, self.tables.sums):
            done = each.run_services(retain_commits=20, keep_min=30, keep_max=40, cluster=each is self.tables.main)
            for name in done.done:
                found[name] = found.get(name, 0) + 1
        return found


def _accounts(txn: lakelatch.Transaction) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = txn.read(partitions=[{"part": "bank"}]).to_arrow().to_pylist()
    return rows


ROLES = {
    "writer": {"append": 4, "count": 2, "transfer": 2, "move": 2, "look": 2, "claim": 1, "event": 2, "purge": 0.4},
    # Beside JVM writers: they know nothing of a commit over two tables.
    "beside": {"append": 4, "count": 2, "transfer": 2, "look": 2, "claim": 1, "event": 2, "purge": 0.4},
    "keeper": {"services": 1, "look": 0.2},
}


def _told(work: Callable[[int], dict[str, Any]], op: str, number: int, planned: dict[str, Any]) -> str:
    """Do it, and print what was told."""
    began, facts = time.monotonic(), dict[str, Any]()
    print(json.dumps({"at": began, "op": op, "n": number, "told": "begins"} | planned), flush=True)
    try:
        facts = work(number)
        told = "landed"
    except (lakelatch.CommitStateUnknownError, MemoryError) as e:  # without memory nobody can promise anything
        told, facts = "unknown", {"error": f"{type(e).__name__}: {e}"}
    except RuntimeError as e:
        told, facts = "unknown" if "can't start new thread" in str(e) else "raw", {"error": f"{type(e).__name__}: {e}"}
    except lakelatch.LakeLatchError as e:
        told, facts = "failed", {"error": f"{type(e).__name__}: {e}"}
    except Exception as e:
        told, facts = "raw", {"error": f"{type(e).__name__}: {e}"}
        traceback.print_exc()
    now = time.monotonic()
    print(
        json.dumps({"at": now, "took": now - began, "op": op, "n": number, "told": told} | planned | facts), flush=True
    )
    return told


def main(url: str, name: str, seed: str, clock: str, role: str, coordinator: str = "", token_file: str = "") -> None:
    luck = random.Random(seed)
    options: dict[str, Any] = {}
    if coordinator:
        options["coordinator"] = CoordinatorServer(coordinator, token_file=token_file, plain_http=True)
    tables = Tables(url, writer=name, env=WrongClock(clock), **options)
    writer = Writer(tables, name, luck)
    number = 0
    while True:
        number += 1
        op = luck.choices(list(ROLES[role]), list(ROLES[role].values()))[0]
        planned = {}
        if op == "event":
            writer.owed = writer.owed or number
            planned = {"batch": writer.owed}
        told = _told(getattr(writer, op), op, number, planned)
        # As an application does that has other things to do; after an error it waits before it tries something else.
        time.sleep(luck.uniform(0.0, 0.2) if told == "landed" else 0.5)
        if role == "keeper":
            time.sleep(2.0)


def first_rows() -> list[dict[str, Any]]:
    """The rows that stand before the first operation; of the other table the accounts alone."""
    accounts = [{"id": f"a{number}", "part": "bank", "v": TOTAL // ACCOUNTS} for number in range(ACCOUNTS)]
    return [*accounts, {"id": "counter", "part": "counter", "v": 0}]


if __name__ == "__main__":
    main(*sys.argv[1:])
