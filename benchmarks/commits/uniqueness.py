"""Measure the cost of telling in each commit which keys they insert and which values are unique: CPU seconds and bytes.

With and without run in turn in one process, and the median of each is shown; the two differ in nothing else.

python -m benchmarks.commits.uniqueness [--rows 1000000] [--commits 300] [--rounds 5] [--folder F]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakelatch
from lakelatch.conflict import Party, ReadSet, WriteSet, resolve
from lakelatch.conflict.write_set import NEW_KEYS
from lakelatch.hudi.files import FileGroupId
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.entries.value_hashes import Hashed, from_entry, to_entry, together

from .._report import machine, show

SCHEMA = pa.schema([("id", pa.string()), ("email", pa.string())] + [(f"v{n}", pa.float64()) for n in range(8)])


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rows(count: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    numbers = dice.permutation(count) + seed * 10_000_000
    keys = [f"{n:032x}" for n in (numbers.astype(object) * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128]
    values = [pa.array(dice.random(count)) for _ in range(8)]
    return pa.table([pa.array(keys), pa.array([f"user{n}@example.org" for n in numbers]), *values], schema=SCHEMA)


class Tables:
    """One table for each way of setting them, in one folder."""

    def __init__(self, folder: str, **ways: dict[str, Any]) -> None:
        self.folder = folder
        self.tables = {
            name: lakelatch.create(f"{folder}/{uuid.uuid4()}", record_key="id", schema=SCHEMA, **settings)
            for name, settings in ways.items()
        }
        self.cpu: dict[str, list[float]] = {name: [] for name in ways}

    def commit(self, name: str, batch: pa.Table) -> None:
        began = cpu_s()
        with self.tables[name].transaction("upsert") as txn:
            txn.new_file().write(batch)
        self.cpu[name].append(cpu_s() - began)

    def facts(self, per: int = 1, unit: float = 1.0) -> dict[str, Any]:
        medians = {name: statistics.median(spent) / per * unit for name, spent in self.cpu.items()}
        bare = medians["without"]
        return {name: f"{value:.3f} ({100 * (value / bare - 1):+.1f} %)" for name, value in medians.items()}

    def beside_mib(self, name: str) -> float:
        root = Path(self.tables[name].url.removeprefix("file://"))
        return sum(p.stat().st_size for p in (root / SIDES).glob("*")) / 2**20

    def data_mib(self, name: str) -> float:
        root = Path(self.tables[name].url.removeprefix("file://"))
        return sum(p.stat().st_size for p in root.glob("*.parquet")) / 2**20

    def close(self) -> None:
        for table in self.tables.values():
            table.close()


def large(folder: str, count: int, rounds: int) -> None:
    tables = Tables(
        folder,
        without={"unique_keys": False},
        keys={},
        keys_and_email={"unique_constraints": ["email"]},
        statistics={"statistics": "all"},
    )
    for number in range(rounds + 1):
        batch = rows(count, number)
        for name in tables.tables:
            tables.commit(name, batch)
        if not number:
            for spent in tables.cpu.values():
                spent.clear()
    show(f"cpu_s of a commit of {count} new rows", tables.facts())
    bytes_ = {name: f"{tables.beside_mib(name) / (rounds + 1):.1f}" for name in ("keys", "keys_and_email")}
    show("MiB beside the log, each commit", bytes_ | {"its data file": f"{tables.data_mib('keys') / (rounds + 1):.1f}"})
    tables.close()


def small(folder: str, commits: int, rounds: int) -> None:
    tables = Tables(folder, without={"unique_keys": False}, keys={})
    batches = [rows(1, n) for n in range(commits)]
    for number in range(rounds):
        for name, table in tables.tables.items():
            began = cpu_s()
            for batch in batches:
                with table.transaction("upsert") as txn:
                    txn.new_file().write(batch)
            if number:
                tables.cpu[name].append(cpu_s() - began)
    show(f"cpu_ms of a commit of 1 new row, {commits} in a row", tables.facts(commits, 1000))
    tables.close()


def party(number: int, hashes: Any) -> Party:
    group = FileGroupId("p", str(number))
    values = together([("p", {NEW_KEYS: Hashed("0", "f", hashes)})])
    # As another writer reads it: from the entry.
    stored = from_entry(None, to_entry(values, lambda _: {})) if len(hashes) < 100 else values  # type: ignore[arg-type]
    return Party(f"{number:017d}", f"{number:017d}", "UPSERT", "w", WriteSet(frozenset({group}), unique=stored))


def check(count: int) -> None:
    dice = np.random.default_rng(1)
    cases = {
        "one candidate with as many": [party(1, dice.integers(0, 2**64, count, np.uint64))],
        "10000 candidates with 10 each": [party(n, dice.integers(0, 2**64, 10, np.uint64)) for n in range(10_000)],
    }
    for name, others in cases.items():
        mine = party(10**9, dice.integers(0, 2**64, count, np.uint64))
        few = party(10**9, dice.integers(0, 2**64, 10, np.uint64))
        spent = {}
        for own, ours in (("of all own keys", mine), ("of 10 own keys", few)):
            for turn in ("first", "again"):
                began = cpu_s()
                verdict = resolve(ours, ReadSet(), others)
                assert verdict.lost is None
                spent[f"{own}, {turn}"] = f"{(cpu_s() - began) * 1e3:.1f}"
        show(f"cpu_ms to decide, {name}", spent)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--commits", type=int, default=300)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--folder", default="")
    given = options.parse_args()
    show("machine", machine())
    check(given.rows)
    with tempfile.TemporaryDirectory(dir=given.folder or None) as folder:
        small(folder, given.commits, given.rounds)
        large(folder, given.rows, given.rounds)


if __name__ == "__main__":
    main()
