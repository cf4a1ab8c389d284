"""A lock server of the lab's own that fails: the table stays right, and the server is gone with the lab."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from lakelatch.bench import servers
from lakelatch.bench.servers import Outages
from lakelatch.errors import ConfigError, LakeLatchError
from lakelatch.testing.contention import until

from ..thorough import some

COUNTER = {
    "about": "one row",
    "keys": 1,
    "settings": {"lease_s": 3.0},
    "roles": [{"name": "writer", "work": "increment"}],
}


def reachable(url: str) -> bool:
    host, _, port = url.partition("://")[2].partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.server
@pytest.mark.parametrize("kind", some(["redis", "zookeeper"], 1))
def test_no_increment_is_lost_or_doubled_while_the_lock_server_restarts(lab, kind):
    if words := servers.missing(kind):
        pytest.skip(words)
    server = {"kind": kind, "every_s": 0.05, "down_s": 0.05, "times": 2}
    (run,) = lab(facts={**COUNTER, "server": server}, operations=12).runs
    assert "failed" not in run, run["failed"]
    assert run["strikes"] in (1, 2)  # they may be ready while it is down for the second time
    assert run["done"] == 24
    assert "lock" not in run["settings"]  # a port of that run


@pytest.mark.server
@pytest.mark.parametrize("kind", ["redis", "zookeeper", "postgres"])
def test_the_server_is_gone_with_the_lab_however_that_ends(kind):
    if words := servers.missing(kind):
        pytest.skip(words)
    with servers.started(kind) as server:
        assert reachable(server.url)
    # A server's own children may hold its port until they see that it was killed.
    until(lambda: not reachable(server.url), "the server outlives its block")
    program = (
        "from lakelatch.bench import servers; import os, signal\n"
        f"with servers.started({kind!r}) as server:\n"
        "    print(server.url, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    url = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400).stdout.strip()
    assert url
    until(lambda: not reachable(url), "the server outlives its lab")


@pytest.mark.thorough
@pytest.mark.server
def test_a_run_that_is_over_before_the_server_fails_has_no_rate(lab):
    if words := servers.missing("redis"):
        pytest.skip(words)
    (run,) = lab(facts={**COUNTER, "server": {"kind": "redis", "every_s": 3600}}, operations=1).runs
    assert run["failed"] == "the run was over before its lock server had failed; measure for longer"


def test_an_absent_server_and_a_system_without_its_locks_are_left_out_in_a_sentence(lab, faulty, monkeypatch, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    facts = {**COUNTER, "server": {"kind": "redis", "every_s": 1}}
    absent = "the lab starts a server of its own, and redis-server is not installed here"
    results = lab(facts=facts)
    assert (results.runs, results.skipped) == ([], [f"own: {absent}"])
    with pytest.raises(ConfigError, match="redis-server is not installed here"), servers.started("redis"):
        pass
    (programs / "redis-server").touch(mode=0o755)
    results = lab(facts=facts, peers=[f"{faulty}:Right"], ours=False)
    assert results.skipped == [f"{faulty}:Right takes no lock from a server, so own would not befall it"]


def test_another_lock_is_refused_where_the_lab_starts_one(lab):
    with pytest.raises(ConfigError, match="from a server that the lab starts; leave --lock out"):
        lab(facts={**COUNTER, "server": {"kind": "redis", "every_s": 1}}, locks=["none://"])


def test_a_server_that_does_not_start_says_why(tmp_path):
    kind = servers.Kind("x", b"", b"never", str, lambda folder, port: ["sh", "-c", "echo no such | option"])
    server = servers.Server(kind, tmp_path)
    server.start()
    try:
        with pytest.raises(LakeLatchError, match=r"x://127.0.0.1:\d+ does not start: no such | option"):
            server.wait_ready(wait_s=0.2)
    finally:
        server.stop()
        server.stop()


def test_outages_come_when_they_are_due_and_none_begins_after_the_end():
    class Server:
        """Serves two looks after its start."""

        def __init__(self):
            self.told, self.looks = [], 0

        def start(self):
            self.told.append("start")
            self.looks = 0

        def stop(self):
            self.told.append("stop")

        def serves(self):
            self.looks += 1
            return self.looks > 1

    server = Server()
    outages = Outages(server, every_s=2.0, down_s=0.5, until_s=6.0)
    for half in range(40):
        outages.look(half / 2)
    assert outages.begun == [2.0, 5.5]  # 2.5 started, 3.5 served
    assert server.told == ["stop", "start"] * 2
    twice = Outages(Server(), every_s=0.1, down_s=0.1, times=2)
    for each in range(100):
        twice.look(float(each))
    assert len(twice.begun) == 2
