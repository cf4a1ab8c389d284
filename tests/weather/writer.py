"""A process that writes until its input ends, and says on its output what it was told of each operation.

    python -m tests.weather.writer URL NAME SEED CLOCK      the file CLOCK says by how many seconds its clock is wrong

Each line is ``{"at", "took", "op", "n", "told", ...}``: ``told`` is "landed", "failed" (by the library's promise nothing
landed), "unknown", or "raw" where no error of this library came. Moments are of the monotonic clock, which all processes share.
A writer counts one row up, moves amounts between two accounts, of one table and of two, and appends rows under new numbers.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.environment import SystemEnvironment

ACCOUNTS, TOTAL = 4, 400  # and as much in the other table
PATIENCE_S = 20.0  # of one operation's retries


class WrongClock(SystemEnvironment):
    """The system's, whose wall clock somebody sets while we run; the monotonic clock goes on."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def now(self) -> float:
        return super().now() + float(self._path.read_text() or 0)


def main(url: str, name: str, seed: str, clock: str) -> None:
    luck, env = random.Random(seed), WrongClock(clock)
    tables: Tables | None = None
    number = 0
    while True:
        number += 1
        op = luck.choices(("append", "count", "transfer", "move", "look"), (4, 2, 2, 2, 2))[0]
        began, facts = time.monotonic(), dict[str, Any]()
        print(json.dumps({"at": began, "op": op, "n": number, "told": "begins"}), flush=True)
        try:
            if tables is None:
                tables = lakelatch.open(url, writer=name, env=env), lakelatch.open(f"{url}-two", writer=name, env=env)
            facts = WORKS[op](tables, name, number, luck)
            told = "landed"
        except lakelatch.CommitStateUnknownError as e:
            told, facts = "unknown", {"error": str(e)}
        except lakelatch.LakeLatchError as e:
            told, facts = "failed", {"error": f"{type(e).__name__}: {e}"}
        except Exception as e:
            told, facts = "raw", {"error": f"{type(e).__name__}: {e}"}
        now = time.monotonic()
        print(json.dumps({"at": now, "took": now - began, "op": op, "n": number, "told": told} | facts), flush=True)
        # As an application does that has other things to do; after an error it waits before it tries something else.
        time.sleep(luck.uniform(0.0, 0.2) if told == "landed" else 0.5)


Tables = tuple[lakelatch.Table, lakelatch.Table]


def append(tables: Tables, name: str, number: int, luck: random.Random) -> dict[str, Any]:
    tables[0].insert([{"id": f"{name}-{number}", "part": luck.choice("xy"), "v": number}], timeout_s=PATIENCE_S)
    return {}


def count(tables: Tables, name: str, number: int, luck: random.Random) -> dict[str, Any]:
    def work(txn: lakelatch.Transaction) -> int:
        (row,) = txn.read(partitions=[{"part": "counter"}]).to_arrow().to_pylist()
        txn.upsert([row | {"v": row["v"] + 1}])
        return row["v"] + 1

    return {"value": tables[0].run(work, timeout_s=PATIENCE_S).value}


def transfer(tables: Tables, name: str, number: int, luck: random.Random) -> dict[str, Any]:
    one, other = luck.sample(range(ACCOUNTS), 2)

    def work(txn: lakelatch.Transaction) -> None:
        rows = {each["id"]: each for each in txn.read(partitions=[{"part": "bank"}]).to_arrow().to_pylist()}
        amount = luck.randint(0, rows[f"a{one}"]["v"])
        changed = {f"a{one}": -amount, f"a{other}": amount}
        txn.upsert([rows[key] | {"v": rows[key]["v"] + change} for key, change in changed.items()])

    tables[0].run(work, timeout_s=PATIENCE_S)
    return {}


def move(tables: Tables, name: str, number: int, luck: random.Random) -> dict[str, Any]:
    """A transfer from an account of one table to one of the other."""
    keys = [f"a{luck.randrange(ACCOUNTS)}" for _ in tables]
    one, other = luck.sample((0, 1), 2)

    def work(txn: lakelatch.SeveralTransaction) -> None:
        rows = [
            next(
                row for row in txn[each].read(partitions=[{"part": "bank"}]).to_arrow().to_pylist() if row["id"] == key
            )
            for each, key in zip(tables, keys, strict=True)
        ]
        amount = luck.randint(0, max(rows[one]["v"], 0))
        for at, change in ((one, -amount), (other, amount)):
            txn[tables[at]].upsert([rows[at] | {"v": rows[at]["v"] + change}])

    lakelatch.run(work, *tables, timeout_s=PATIENCE_S)
    return {}


def look(tables: Tables, name: str, number: int, luck: random.Random) -> dict[str, Any]:
    """What a reader of both sees: the sum of all accounts, the counter, and the newest append of each writer."""
    cut = lakelatch.read_together(*tables)
    rows, others = (cut.read(each).to_arrow().to_pylist() for each in tables)
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


WORKS = {"append": append, "count": count, "transfer": transfer, "move": move, "look": look}


def first_rows() -> list[dict[str, Any]]:
    """The rows that stand before the first operation; of the other table the accounts alone."""
    accounts = [{"id": f"a{number}", "part": "bank", "v": TOTAL // ACCOUNTS} for number in range(ACCOUNTS)]
    return [*accounts, {"id": "counter", "part": "counter", "v": 0}]


if __name__ == "__main__":
    main(*sys.argv[1:])
