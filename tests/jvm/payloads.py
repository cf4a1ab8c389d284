"""Tables that JVM Hudi wrote with each of its payload classes: what they are, and the program that makes them.

    python -m tests.jvm.payloads [NAME ...]

writes `tests/data/payload_tables/tables.tar.xz` with JVM Hudi 1.2.0. Of each table it holds the folders ``NAME/1`` and
``NAME/3``, as they are after the first and after the last of `STEPS`, and in ``answers.json`` the JVM's rows after each step.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from .readers import JvmReader, Row

HOME = Path(__file__).parents[1] / "data" / "payload_tables"
ARCHIVE = HOME / "tables.tar.xz"
VERSIONS = (6, 8, 9)
TYPES = {"COW": "COPY_ON_WRITE", "MOR": "MERGE_ON_READ"}
COLUMNS = {"id": "string", "ts": "bigint", "a": "string", "b": "bigint", "Op": "string"}
_MYSQL = {
    "_event_seq": "string",
    "_event_bin_file": "string",
    "_event_pos": "bigint",
    "_change_operation_type": "string",
}
_POSTGRES = {"_event_lsn": "bigint", "_change_operation_type": "string"}
_MODELS = "org.apache.hudi.common.model."


class Payload(NamedTuple):
    """How a table is made: class, ordering field (of version 9 where it is another), columns, more options."""

    cls: str
    ordering: str = "ts"
    ordering_9: str = ""
    columns: dict[str, str] = {}  # noqa: RUF012 - never changed
    options: dict[str, str] = {}  # noqa: RUF012 - never changed


PAYLOADS = {
    "OverwriteWithLatestAvroPayload": Payload(_MODELS + "OverwriteWithLatestAvroPayload"),
    "DefaultHoodieRecordPayload": Payload(_MODELS + "DefaultHoodieRecordPayload"),
    "EventTimeAvroPayload": Payload(_MODELS + "EventTimeAvroPayload"),
    "PartialUpdateAvroPayload": Payload(_MODELS + "PartialUpdateAvroPayload"),
    "OverwriteNonDefaultsWithLatestAvroPayload": Payload(_MODELS + "OverwriteNonDefaultsWithLatestAvroPayload"),
    "AWSDmsAvroPayload": Payload(_MODELS + "AWSDmsAvroPayload"),
    "MySqlDebeziumAvroPayload": Payload(
        _MODELS + "debezium.MySqlDebeziumAvroPayload", "_event_seq", "_event_bin_file,_event_pos", _MYSQL
    ),
    "PostgresDebeziumAvroPayload": Payload(
        _MODELS + "debezium.PostgresDebeziumAvroPayload", "_event_lsn", columns=_POSTGRES
    ),
    # To Hudi 1.2.0 like a class of somebody's own: it has no merge mode for it.
    "ReverseOrderHoodieRecordPayload": Payload(_MODELS + "ReverseOrderHoodieRecordPayload"),
    "hoodie.payload.delete.field": Payload(
        _MODELS + "DefaultHoodieRecordPayload",
        options={"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"},
    ),
    "_hoodie_is_deleted": Payload(_MODELS + "DefaultHoodieRecordPayload", columns={"_hoodie_is_deleted": "boolean"}),
}


def _row(key: str, ts: int, a: str | None, b: int | None, op: str = "U") -> Row:
    events = {"_event_seq": f"000001.{ts:06d}", "_event_bin_file": "000001", "_event_pos": ts, "_event_lsn": ts}
    kind = {"I": "c", "U": "u", "D": "d"}[op]
    marks = {"_change_operation_type": kind, "_hoodie_is_deleted": op == "D"}
    return {"id": key, "ts": ts, "a": a, "b": b, "Op": op} | events | marks


# Updates, late events, ties, nulls over values and the reverse, deletes by marker, early and late, and a key that comes back.
STEPS = (
    [_row(f"k{n}", 5, "x", 1, "I") for n in range(1, 7)],
    [
        _row("k1", 9, "new", 2),
        _row("k2", 3, "late", 2),
        _row("k3", 9, "gone", 2, "D"),
        _row("k4", 9, None, 7),
        _row("k5", 5, "tie", 2),
        _row("k7", 1, "n", 1, "I"),
    ],
    [
        _row("k1", 7, "between", 3),
        _row("k2", 8, "newer", 3),
        _row("k3", 10, "back", 3),
        _row("k4", 8, "filled", None),
        _row("k6", 3, "gone late", 3, "D"),
        _row("k7", 1, None, 4),
    ],
)
NAMES = [f"{payload}-{version}-{kind}" for payload in PAYLOADS for version in VERSIONS for kind in TYPES]


def rows_of(name: str, step: int) -> list[Row]:
    """The rows of one of `STEPS` with the columns of that table."""
    columns = COLUMNS | PAYLOADS[name.split("-")[0]].columns
    return [{column: row[column] for column in columns} for row in STEPS[step]]


def requests(name: str, path: Path) -> list[dict[str, Any]]:
    """What the JVM is asked to write into a new table, step by step."""
    payload, version, kind = name.split("-")
    what = PAYLOADS[payload]
    options = {
        "hoodie.table.name": "t",
        "hoodie.write.table.version": version,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": (what.ordering_9 if version == "9" else "") or what.ordering,
        "hoodie.datasource.write.table.type": TYPES[kind],
        "hoodie.datasource.write.payload.class": what.cls,
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.index.type": "SIMPLE",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.compact.inline": "false",
        "hoodie.parquet.small.file.limit": "0",  # a new key makes a file group, and the others stay in log files
        "hoodie.index.bloom.num_entries": "10",
        "hoodie.bloom.index.filter.type": "SIMPLE",
    } | what.options
    schema = ", ".join(f"{column} {kind}" for column, kind in (COLUMNS | what.columns).items())
    write = {"kind": "upsert", "path": str(path), "schema": schema, "options": options}
    return [write | {"rows": rows_of(name, step)} for step in range(len(STEPS))]


def data(rows: list[Row]) -> list[Row]:
    """Rows without Hudi's meta columns, by key."""
    plain = [{k: v for k, v in row.items() if k not in _META} for row in rows]
    return sorted(plain, key=lambda row: row["id"])


_META = {
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
}


def make(names: list[str], folder: Path) -> None:
    """Let the JVM write these tables into the folder, as the archive holds them."""
    reader, answers = JvmReader(folder), {}
    try:
        for name in names:
            path, kept = folder / "at_work", folder / "tables" / name
            steps = requests(name, path)
            found = reader.ask(steps[:1], folder)
            shutil.copytree(path, kept / "1", ignore=shutil.ignore_patterns("*.crc"))
            found += reader.ask(steps[1:], folder)
            shutil.copytree(path, kept / "3", ignore=shutil.ignore_patterns("*.crc"))
            shutil.rmtree(path)
            assert all("rows" in each for each in found), (name, found)
            answers[name] = [data(each["rows"]) for each in found]
            print(name, flush=True)
    finally:
        reader.close()
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(steps)}" for name, steps in answers.items())
    (folder / "tables" / "answers.json").write_text("{\n" + text + "\n}\n", encoding="utf-8")


def pack(folder: Path) -> None:
    """The archive, with nothing of this machine in it."""

    def bare(each: tarfile.TarInfo) -> tarfile.TarInfo:
        each.uid = each.gid = each.mtime = 0
        each.uname = each.gname = ""
        return each

    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:xz", preset=9) as archive:
        for each in sorted(folder.rglob("*")):
            archive.add(each, str(each.relative_to(folder)), recursive=False, filter=bare)
    ARCHIVE.write_bytes(body.getvalue())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="payload-tables-") as where:
        make(sys.argv[1:] or NAMES, Path(where))
        pack(Path(where) / "tables")
