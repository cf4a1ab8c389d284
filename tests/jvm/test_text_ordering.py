"""Merge-on-read tables that a text orders: their log files hold Avro, because the JVM mixes up the texts of Parquet blocks."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.hudi.files import parquet_block
from lakelatch.hudi.table import META_COLUMNS, with_meta_columns

from ..occ.mor import Mor, at, data_block
from ..thorough import some
from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

_INNER = pa.struct([("day", pa.date32()), ("n", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("version", pa.string()), ("n", pa.int32()), ("x", pa.float64()), ("flag", pa.bool_()),
        ("bytes", pa.binary()), ("money", pa.decimal128(12, 2)), ("day", pa.date32()), ("time", pa.timestamp("us", "UTC")),
        ("inner", _INNER), ("list", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def row(key: str, version: int, n: int) -> dict[str, Any]:
    if n % 2:
        return {"id": key, "version": f"v{version}", "n": n}
    return {
        "id": key, "version": f"v{version}", "n": n, "x": n / 3, "flag": True, "bytes": b"\x00\xff", "money": Decimal("-1.25"),
        "day": dt.date(1969, 12, 31), "time": dt.datetime(1969, 1, 2, 3, 4, 5, 6, dt.UTC),
        "inner": {"day": dt.date(2026, 1, n + 1), "n": None}, "list": [1, None, -(2**62)],
    }  # fmt: skip


def rows(versions: dict[str, int], n: int) -> pa.Table:
    return pa.Table.from_pylist([row(key, version, n) for key, version in versions.items()], SCHEMA)


# The last row of a batch is the newest, or the oldest of them.
NEWEST_LAST = {"a": 3, "b": 7, "c": 4, "d": 6, "e": 5, "f": 9}
OLDEST_LAST = {"a": 8, "b": 6, "c": 9, "d": 7, "e": 5, "f": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("version", some([8, 9], 1))
def test_every_reader_sees_the_newest_text(tmp_path: Path, version: int) -> None:
    path = tmp_path / "t"

    def agree(expected: dict[str, int]) -> None:
        (answer,) = ask_jvm([{"path": str(path), "kind": "snapshot"}], tmp_path)
        assert in_order(answer["rows"]) == in_order(by_us(path)) == in_order(by_hudi_rs(path))
        assert {each["id"]: int(each["version"][1:]) for each in answer["rows"]} == expected

    with lakelatch.create(
        str(path), record_key="id", ordering_field="version", type="merge_on_read", table_version=version, schema=SCHEMA
    ) as table:
        table.insert(rows(dict.fromkeys("abcdef", 5), 0))
        table.upsert(rows(NEWEST_LAST, 1))
        agree(wanted := {"a": 5, "b": 7, "c": 5, "d": 6, "e": 5, "f": 9})
        table.upsert(rows(OLDEST_LAST, 2))
        agree(wanted := wanted | {"a": 8, "c": 9, "d": 7})
        table.delete([{"id": "f", "version": "v8"}, {"id": "e", "version": "v6"}])
        del wanted["e"]
        agree(wanted)
        assert table.compact_logs(min_logs=2)
        agree(wanted)
        assert table.compact()
        agree(wanted)


@pytest.mark.thorough
def test_the_jvm_takes_the_last_text_of_a_parquet_block_for_that_of_every_row(tmp_path: Path) -> None:
    """Hudi 1.2.0; with Avro it does not. Where this fails, a later Hudi needs no Avro any more."""
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.string())])

    def made(name: str) -> Mor:
        mor = Mor(tmp_path / name, version=9, columns=schema)
        listed = [{"id": key, "part": "a", "v": f"v{version}"} for key, version in NEWEST_LAST.items()]
        mor.base(at(1), at(2), "a", [each | {"v": "v5"} for each in listed])
        if name == "avro":
            mor.log(at(3), at(4), "a", data_block(at(3), listed, schema=schema))
            return mor
        meta = {key: [at(3)] * len(listed) for key in META_COLUMNS}
        meta |= {"_hoodie_record_key": list(NEWEST_LAST), "_hoodie_partition_path": ["part=a"] * len(listed)}
        body = io.BytesIO()
        pq.write_table(pa.table(meta | pa.Table.from_pylist(listed, schema).to_pydict()), body, store_schema=False)
        mor.log(at(3), at(4), "a", parquet_block(at(3), with_meta_columns(schema, mor.config.name), body.getvalue()))
        return mor

    tables = [made("avro").folder, made("parquet").folder]
    avro, parquet = ask_jvm([{"path": str(each), "kind": "snapshot"} for each in tables], tmp_path)
    assert (
        in_order(avro["rows"])
        == in_order(by_us(tables[0]))
        == in_order(by_us(tables[1]))
        == in_order(by_hudi_rs(tables[1]))
    )
    assert {each["id"]: each["v"] for each in parquet["rows"]} == {key: f"v{v}" for key, v in NEWEST_LAST.items()}
