"""A table that Hudi's JVM writers and ours write at the same time, for the tests that do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.occ.check import check
from lakelatch.occ.doctor.hudi_writers import writer_options

from .cases import WRITE_OPTIONS
from .readers import Row, ask_jvm, by_hudi_rs

COLUMNS = pa.schema([("id", "string"), ("part", "string"), ("v", "int64")])
KINDS = {
    "copy-on-write, simple index": {},
    "merge-on-read, simple index": {"type": "merge_on_read", "table_version": 9},
    "copy-on-write, buckets": {"bucket_count": 2, "table_version": 9},
    "merge-on-read, buckets": {"type": "merge_on_read", "bucket_count": 2},
}


class Shared:
    """A table, its JVM writer and ours."""

    def __init__(self, folder: Path, *, lock: str = "", start: bool = True, **kind: Any) -> None:
        self.folder, self.path = folder, folder / "table"
        lock = lock or f"file://{self.path}/.hoodie?jvm=lock&jvm_expire=5m"
        self.table = lakelatch.create(
            str(self.path), record_key="id", partition_by="part", schema=COLUMNS, lock=lock, neighbours="hudi", **kind
        )
        if start:
            self.table.upsert([row(who, part, number, 0) for who in "jp" for part in "ab" for number in range(3)])
        self.options = WRITE_OPTIONS | writer_options(self.table.config, self.table.settings)
        self.options |= {
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.table.name": self.table.config.name,
            "hoodie.write.lock.wait_time_ms_between_retry": "100",
            "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
            "hoodie.write.lock.client.num_retries": "300",
        }
        if self.table.config.merge_on_read:
            self.options |= {
                "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                "hoodie.compact.inline": "true",
                "hoodie.compact.inline.max.delta.commits": "2",
            }

    def jvm(self, rows: list[Row], **more: str) -> dict[str, Any]:
        """The answer of the JVM to a write: all rows then, or its error."""
        options = self.options | {key.replace("__", "."): value for key, value in more.items()}
        (answer,) = ask_jvm([{"kind": "upsert", "path": str(self.path), "rows": rows, "options": options}], self.folder)
        return answer

    def agreed(self) -> dict[str, int]:
        """All rows, as ours, hudi-rs and the JVM read them."""
        (answer,) = ask_jvm([{"kind": "snapshot", "path": str(self.path)}], self.folder)
        self.table.session.log.look(now=True)  # a reader's handle may be a second old
        with lakelatch.open(str(self.path)) as fresh:
            told = [
                self.table.read().to_arrow().to_pylist(),
                fresh.read().to_arrow().to_pylist(),
                by_hudi_rs(self.path),
            ]
        found = [sorted((each["id"], each["v"]) for each in rows) for rows in (*told, answer["rows"])]
        named = dict(zip(("the handle", "a fresh one", "hudi-rs", "the JVM"), found, strict=True))
        assert found[0] == found[1] == found[2] == found[3], f"readers disagree: {named}"
        assert len(dict(found[0])) == len(found[0]), "a key stands twice"
        return dict(found[0])

    def sound(self) -> None:
        # Hadoop's local file system leaves checksums of files that it has deleted.
        fine = "other-files", "clean-twice"
        found = [each for each in check(self.table.store, deep=True).findings if each.kind not in fine]
        assert found == [], found


def row(who: str, part: str, number: int, value: int) -> Row:
    return {"id": f"{who}{number}{part}", "part": part, "v": value}
