"""Other systems: each adapter's works pass the oracle, and what is absent or cannot do a work is left out with a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from lakelatch.bench import contenders, servers
from lakelatch.bench.systems import bare_locks, known, load
from lakelatch.errors import ConfigError

from ..servers.dynamodb_server import CREDENTIALS, dynamodb_local
from ..servers.redis_server import redis_server
from ..servers.zookeeper_server import zookeeper
from ..thorough import THOROUGH

LONG = pytest.mark.skipif(not THOROUGH, reason="as with another peer of its kind: make thorough")
EACH = {
    "about": "each work once",
    "per_process": 2,
    "partitions": 3,
    "keys": 6,
    "balance": 10,
    "roles": [
        {"name": "appends", "work": "append", "count": 1},
        {"name": "upserts", "work": "upsert", "count": 1, "spread": 2},
        {"name": "transfers", "work": "transfer", "count": 1},
        {"name": "deletes", "work": "delete", "count": 1},
    ],
}


@pytest.mark.parametrize(
    "peer",
    [
        "delta-rs",
        *(pytest.param(name, marks=LONG) for name in ("pyiceberg", "ducklake")),
        *(pytest.param(name, marks=[pytest.mark.server, LONG]) for name in ("pyiceberg-postgres", "ducklake-postgres")),
    ],
)
def test_a_peer_passes_the_oracle_with_all_its_works(lab, peer):
    pytest.importorskip(load(peer).package)
    if words := servers.missing(getattr(load(peer), "server", "")):
        pytest.skip(words)
    (run,) = lab(facts=EACH, writers=4, operations=3, peers=[f"{peer}/best"], ours=False).runs
    assert "failed" not in run, run["failed"]
    assert run["failed_operations"] == 0, run["errors"]
    assert run["done"] >= 9
    whole = {
        "about": "x",
        "partitions": 0,
        "per_process": 2,
        "roles": [{"name": "w", "work": "replace", "pick": "own"}],
    }
    (run,) = lab(facts=whole, operations=3, peers=[f"{peer}/best"], ours=False).runs
    assert run["done"] == 6


@pytest.mark.thorough
def test_delta_passes_the_oracle_of_streams(lab):
    pytest.importorskip("deltalake")
    wide = {"about": "x", "keys": 6, "roles": [{"name": "stream", "work": "event"}]}
    (run,) = lab(facts=wide, operations=8, peers=["delta-rs/best"], ours=False).runs
    assert "failed" not in run, run["failed"]
    assert run["done"] == 16


@pytest.mark.thorough
@pytest.mark.server
def test_bare_locks_are_compared_on_one_server(lab, tmp_path):
    with redis_server(tmp_path / "redis") as server:
        runs = lab(
            "handoff", operations=30, locks=[server.url],
            peers=["redis-py/best", "python-redis-lock", "filelock/best"],
        ).runs  # fmt: skip
        assert [run.get("failed") for run in runs] == [None] * 4
        assert [run["done"] for run in runs] == [60] * 4
        assert all(run["lock_wait_ms"]["max"] > 0 for run in runs)
        # Ours keeps the last token of its key, so that tokens go on growing.
        left = [key.decode() for key in server.client.keys("*") if b"latch-bench-" in key and b"signal" not in key]
        assert not [key for key in left if not key.startswith("lakelatch:")], left


@LONG
@pytest.mark.server
def test_kazoo_leaves_nothing_on_its_server(lab, tmp_path):
    with zookeeper(tmp_path / "zk") as node:
        runs = lab("handoff", operations=10, locks=[f"zk://127.0.0.1:{node.port}/bench"], peers=["kazoo"]).runs
        assert [run.get("failed") for run in runs] == [None] * 2
        client = KazooClient(hosts=f"127.0.0.1:{node.port}")
        client.start()
        try:
            assert not [each for each in client.get_children("/bench") if each.startswith("lakelatch-bench")]
        finally:
            client.stop()
            client.close()


@LONG
@pytest.mark.server
def test_python_dynamodb_lock_excludes_and_leaves_no_item(lab, tmp_path, monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with dynamodb_local(tmp_path, memory=True) as server:
        (run,) = lab("lock", operations=20, locks=[server.url()], peers=["python-dynamodb-lock/best"], ours=False).runs
        assert (run.get("failed"), run["done"]) == (None, 40)
        assert server.client.scan(TableName="locks-python-dynamodb-lock")["Items"] == []


def test_a_bare_lock_without_a_server_says_which_to_name(lab):
    (run,) = lab("handoff", peers=["redis-py/best"], ours=False).runs
    assert run["failed"] == "RedisPy needs a server: say --lock redis://..."


def test_a_bare_lock_that_makes_no_client_cannot_be_made():
    class Nothing(bare_locks._BareLock):
        pass

    with pytest.raises(TypeError, match="client"):
        Nothing({})


def test_ours_and_peers_take_turns_in_all_their_configurations():
    pytest.importorskip("deltalake")
    found, skipped = contenders(locks=["table", "none://"], isolations=["snapshot", "serializable"], peers=["delta-rs"])
    assert not skipped
    labels = [each.label for each in found]
    assert len(labels) == len(set(labels)) == 6
    assert labels[-2:] == ["delta-rs", "delta-rs default"]


def test_an_absent_package_is_skipped_in_a_sentence(monkeypatch):
    monkeypatch.delitem(sys.modules, "lakelatch.bench.systems.delta", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    found, skipped = contenders(peers=["delta-rs"])
    assert [each.system for each in found] == ["lakelatch"]
    assert skipped == ["skipped delta-rs: delta-rs needs deltalake, which is not installed here"]


def test_a_configuration_that_there_is_not_is_refused_with_those_that_there_are():
    pytest.importorskip("deltalake")
    with pytest.raises(ConfigError, match="delta-rs has no configuration 'fast'; it has best, default"):
        contenders(peers=["delta-rs/fast"])


def test_what_a_system_cannot_do_is_left_out_with_a_sentence(lab, faulty):
    results = lab("services", peers=[f"{faulty}:Right"], ours=False, writers=3)
    assert results.runs == []
    assert results.skipped == [f"{faulty}:Right cannot serve"]


def test_a_third_party_adds_a_peer_by_entry_point(tmp_path: Path, monkeypatch, faulty):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lakelatch.bench_peers]\ntheirs = {faulty}:Right\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "theirs" in known()
    assert load("theirs").configurations[0].words == "a file"


def test_peers_are_measured_on_local_folders_only():
    for peer in ("delta-rs", "pyiceberg", "ducklake"):
        pytest.importorskip(load(peer).package)
        with pytest.raises(ConfigError, match="on a local folder only, not at s3://"):
            load(peer)({}).create("s3://bucket/x", None)


def test_each_peer_has_words_for_its_best_and_for_its_default():
    for peer in known():
        try:
            names = [each.name for each in load(peer).configurations]
        except ConfigError:
            continue  # not installed
        assert names[0] == "best"
        assert len(json.dumps([each.words for each in load(peer).configurations])) > 20
