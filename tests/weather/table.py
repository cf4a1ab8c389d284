"""The table before the weather and after it, as a process on one of its hosts.

python -m tests.weather.table create URL LOCK      LOCK may be "": the lock that a table has by default
python -m tests.weather.table rows URL             prints ``{"rows", "others", "damage"}`` when nothing is open any more
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.occ.check import check

from .writer import first_rows

COLUMNS = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
LEASE_S = 5.0
_SETTINGS = {"lease_s": LEASE_S, "lock_wait_s": 15.0, "yield_wait_s": 10.0,
             "heartbeat_interval_s": 1.0, "heartbeat_timeout_s": 10.0}  # fmt: skip


def create(url: str, lock: str) -> None:
    for each in (url, f"{url}-two"):
        _create(each, lock)


def _create(url: str, lock: str) -> None:
    named = {"lock": lock} if lock else {}
    with lakelatch.create(
        url, record_key="id", partition_by="part", schema=COLUMNS, isolation="serializable", **named, **_SETTINGS
    ) as table:
        table.insert(first_rows())


def rows(url: str) -> None:
    both = (url, f"{url}-two")
    for each in both:  # in both first: the home of a commit over both may be either
        with lakelatch.open(each) as table:
            table.rollback_failed_writes(wait=True)
    found, damage = list[Any](), list[str]()
    for each in both:
        with lakelatch.open(each) as table:
            found.append(table.read().to_arrow().to_pylist())
            damage += [one.message for one in check(table.store, deep=True).findings if one.severity == "damage"]
    print(json.dumps({"rows": found[0], "others": found[1], "damage": damage}))


if __name__ == "__main__":
    {"create": create, "rows": rows}[sys.argv[1]](*sys.argv[2:])
