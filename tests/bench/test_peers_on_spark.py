"""Delta, Iceberg and Hudi on Spark: their works pass the oracle, a stale change is a loss, and what is absent is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.bench import contenders, rows, servers
from lakelatch.bench.systems import load, on_spark
from lakelatch.bench.systems.peers_on_spark import DeltaOnSpark, HudiOnSpark, IcebergOnSpark
from lakelatch.bench.works import Aborted
from lakelatch.errors import ConfigError, LakeLatchError

from ..servers import missing
from ..thorough import THOROUGH

CLASSES = {"delta-spark": DeltaOnSpark, "iceberg-spark": IcebergOnSpark, "hudi-spark": HudiOnSpark}
PEERS = tuple(CLASSES)
EACH = {
    "about": "rows of several writers in the same files",
    "partitions": 2,
    "keys": 4,
    "balance": 10,
    "roles": [
        {"name": "appends", "work": "append", "count": 1},
        {"name": "transfers", "work": "transfer", "count": 1},
    ],
}
SHARED = EACH | {
    "roles": [
        {"name": "deletes", "work": "delete", "count": 1},
        {"name": "upserts", "work": "upsert", "count": 1, "spread": 2},
    ]
}
OWN = {"about": "own partitions", "partitions": 0, "roles": [{"name": "w", "work": "replace", "pick": "own"}]}


def require(peer: str) -> None:
    try:
        server = getattr(load(peer), "server", "")
    except ConfigError as e:
        missing(str(e))
    if words := servers.missing(server):
        missing(words)


# A JVM starts in ten seconds, on a busy machine in thirty, and each run has four of them.
@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.jvm
@pytest.mark.skipif(not THOROUGH, reason="starts dozens of JVMs: make thorough")
@pytest.mark.parametrize("facts", [EACH, SHARED, OWN], ids=["transfers", "upserts", "replaces"])
@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_on_spark_passes_the_oracle_with_all_its_works(lab, peer, facts):
    require(peer)
    (run,) = lab(facts=facts, writers=2, operations=2, peers=[f"{peer}/best"], ours=False).runs
    assert "failed" not in run, run["failed"]
    assert run["failed_operations"] == 0, run["errors"]
    assert run["done"] == 4


class _Note:
    def attempt(self) -> None: ...
    def think(self) -> None: ...
    def saw(self, found: pa.Table) -> None: ...
    def landed(self, commit: str, losses: list[tuple[str, str]]) -> None: ...


def _stale(peer: str, place: str, address: str) -> tuple[str, list[dict[str, object]]]:
    """Changes two rows, of which another writer changes one between the reading and the writing."""
    kind = load(peer)
    system = kind({**kind.configurations[0].settings, "server": address})
    system.create(place, rows.first_rows(2, 1, 10))
    mine, theirs = (system.open(place, name, 0) for name in ("mine", "theirs"))

    def change(found: pa.Table, by: str) -> pa.Table:
        names = found[rows.KEY].to_pylist()
        return rows.rows_of(names, ["p0"] * len(names), [99] * len(names), by)

    def late(found: pa.Table) -> pa.Table:
        theirs.modify([("p0", "k-1")], lambda there: change(there, "theirs"), _Note())
        return change(found, "mine")

    try:
        mine.modify([("p0", "k-0"), ("p0", "k-1")], late, _Note())
        told = ""
    except Aborted as e:
        told = e.reason
    return told, sorted(system.rows(place).to_pylist(), key=lambda row: str(row[rows.KEY]))


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.jvm
@pytest.mark.skipif(not THOROUGH, reason="starts three JVMs: make thorough")
@pytest.mark.parametrize("peer", PEERS)
def test_a_change_of_a_row_that_is_no_longer_what_was_read_is_a_loss_as_a_whole(peer, tmp_path):
    require(peer)
    kind = getattr(load(peer), "server", "")
    with servers.started(kind or "zookeeper") as server, on_spark.alone() as pool:
        told, there = pool.submit(_stale, peer, str(tmp_path / "t"), server.url).result()
    assert told == "a row was changed after it had been read"
    assert [(row[rows.KEY], row[rows.VALUE], row[rows.BY]) for row in there] == [
        ("first-0", 0, "first"),
        ("k-0", 10, "first"),
        ("k-1", 99, "theirs"),
    ]


@pytest.mark.parametrize("peer", PEERS)
def test_without_its_jars_a_peer_is_left_out_in_a_sentence(peer, tmp_path, monkeypatch):
    monkeypatch.setenv(on_spark.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    found, skipped = contenders(peers=[peer])
    assert [each.system for each in found] == ["lakelatch"]
    (words,) = skipped
    assert words.startswith(f"skipped {peer}: {peer} needs ")
    assert words.endswith(" and PySpark 3.5.9; scripts/ensure_jvm.sh peers fetches it")
    jars = [f"{name}-{version}.jar" for name, version in CLASSES[peer].artifacts.items() if name != on_spark.SPARK]
    assert jars
    assert all(jar in words for jar in jars)


def test_the_script_fetches_the_jars_that_the_adapters_name():
    script = Path(__file__).parents[2].joinpath("scripts/ensure_jvm.sh").read_text()
    for system in CLASSES.values():
        for name, version in system.artifacts.items():
            assert (f"SPARK={version}" if name == on_spark.SPARK else f":{name}:{version}\n") in script, name


def test_constants_of_a_statement_are_quoted():
    table = rows.rows_of(["a'b\\"], ["p0"], [-3], "w")
    assert on_spark.values_sql(table) == (
        "SELECT * FROM VALUES ('a\\'b\\\\', 'p0', -3L, 'w') AS new(id, part, value, by)"
    )


def test_tables_on_spark_are_measured_in_local_folders_only():
    with pytest.raises(ConfigError, match="on a local folder only, not at s3://bucket/x"):
        DeltaOnSpark({}).create("s3://bucket/x", rows.first_rows(1, 1, 0))


def test_what_fails_in_the_process_of_a_table_is_told_in_this_one(tmp_path, monkeypatch):
    monkeypatch.setenv(on_spark.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(LakeLatchError, match="there is no PySpark in"):
        DeltaOnSpark({}).rows(str(tmp_path))
