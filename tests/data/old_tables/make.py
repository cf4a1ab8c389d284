"""Makes these tables, with the version of lakelatch that `README.md` names: see there."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa

import lakelatch

HERE = Path(__file__).parent
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("at", pa.decimal128(9, 2))])


def rows(day: str, n: int, *keys: str) -> pa.Table:
    return pa.table({"id": keys, "day": [day] * len(keys), "n": [n] * len(keys), "at": [n] * len(keys)}, schema=SCHEMA)


def work(table: lakelatch.Table) -> None:
    """Every kind of instant and of log block that a table of this type has."""
    table.upsert(rows("𝒜😀", 1, "a", "b", "😀"))
    table.upsert(rows("2", 1, "c", "d"))
    before = table.timeline().commits[-1].requested
    table.savepoint(comment="wörter 😀")
    table.upsert(rows("2", 9, "c"))
    table.restore(before)
    table.upsert(rows("𝒜😀", 2, "a", "e"))
    table.delete([{"id": "b", "day": "𝒜😀"}])
    table.upsert(rows("2", 3, "c"), batch=("wörter 😀", 7))
    if table.config.merge_on_read:
        table.compact_logs(min_logs=2)
        table.upsert(rows("2", 4, "d"))
        table.compact()
        table.upsert(rows("2", 5, "d"))
        table.delete([{"id": "d", "day": "2"}])
    table.overwrite(rows("3", 1, "f"))
    table.upsert(rows("2", 6, "x"))
    if table.settings.bucket_count is None:
        table.insert(rows("3", 1, "g"))
        table.cluster()
    table.clean(retain_commits=1)
    table.change_settings(lease_s=20.0)


def main() -> None:
    plain = {"record_key": "id", "partition_by": "day", "schema": SCHEMA, "writer": "wörter 😀"}
    kinds = {
        "cow": {},
        "mor": {"type": "merge_on_read", "ordering_field": "at"},
        "buckets": {"type": "merge_on_read", "bucket_count": 2, "table_version": 9},
    }
    for name, how in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            with lakelatch.create(f"{folder}/t", **plain, **how) as table:
                work(table)
            with zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
                for path in sorted(Path(folder, "t").rglob("*")):
                    if path.is_file() and "/.lakelatch/locks/" not in path.as_posix() and "tmp" not in path.name:
                        packed.write(path, path.relative_to(Path(folder, "t")))
        print(name, (HERE / f"{name}.zip").stat().st_size, file=sys.stderr)


if __name__ == "__main__":
    main()
