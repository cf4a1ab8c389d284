"""The table before the weather and after it, as a process on one of its hosts.

python -m tests.weather.table create URL LOCK [hudi]      LOCK may be "": the lock that a table has by default; hudi: JVM
    writers share the first table and its lock
python -m tests.weather.table rows URL      prints ``{"tables": {"": rows, "-two": rows, ...}, "damage"}`` once nothing is open
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pyarrow as pa
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.occ.check import check

from .writer import OTHERS, first_rows

COLUMNS = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
LEASE_S = 5.0
_SETTINGS = {"lease_s": LEASE_S, "lock_wait_s": 15.0, "yield_wait_s": 10.0,
             "heartbeat_interval_s": 1.0, "heartbeat_timeout_s": 10.0}  # fmt: skip


def create(url: str, lock: str, neighbours: str = "none") -> None:
    named = _SETTINGS | ({"lock": lock} if lock else {})
    shared = {} if neighbours == "none" else {"neighbours": neighbours, "lock": f"{lock}?key=table"}
    for each, more in ((url, shared), (f"{url}-two", {})):
        with lakelatch.create(
            each, record_key="id", partition_by="part", schema=COLUMNS, isolation="serializable", **named | more
        ) as table:
            table.insert(first_rows())
    claims = "id string, value bigint"
    lakelatch.create(f"{url}-claims", record_key="id", schema=claims, unique_constraints=["value"], **named).close()
    sums = {"columns": "n", "ordering": "at", "merge": {"n": "sum"}, "default": {"n": 0}, "foreign_readers": False}
    lakelatch.create(
        f"{url}-sums", record_key="id", schema="id string, at bigint, n bigint", streams={"s": sums}, **named
    ).close()


def rows(url: str) -> None:
    every = {end: f"{url}{end}" for end in ("", *(f"-{each}" for each in OTHERS))}
    for each in every.values():  # in all first: the home of a commit over two may be either
        with lakelatch.open(each) as table:
            table.rollback_failed_writes(wait=True)
    found, damage = dict[str, Any](), list[str]()
    for end, each in every.items():
        with lakelatch.open(each) as table:
            found[end] = table.read().to_arrow().to_pylist()
            damage += [one.message for one in check(table.store, deep=True).findings if one.severity == "damage"]
            if not table.streams and _sorted(_by_hudi(each)) != _sorted(found[end]):
                damage.append(f"hudi-rs reads other rows of {each}")
    print(json.dumps({"tables": found, "damage": damage}))


def _by_hudi(url: str) -> list[dict[str, Any]]:
    """The rows as the Rust reader of Hudi has them."""
    options = {}
    if url.startswith("s3:"):
        options = {"aws_endpoint": os.environ["AWS_ENDPOINT"], "aws_allow_http": "true"}
    batches = HudiTableBuilder.from_base_uri(url).with_storage_options(options).build().read()
    found = pa.Table.from_batches(batches).to_pylist()
    return [{key: value for key, value in each.items() if not key.startswith("_hoodie")} for each in found]


def _sorted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda each: str(each["id"]))


if __name__ == "__main__":
    {"create": create, "rows": rows}[sys.argv[1]](*sys.argv[2:])
