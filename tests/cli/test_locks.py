"""``lakelatch locks``: show, watch, set and check."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lakelatch
from lakelatch.cli.locks.check import figure, print_verdict
from lakelatch.locks import open_provider
from lakelatch.locks.checkup import Finding, Verdict
from lakelatch.testing.contention import PATIENCE_S

from ..servers.zookeeper_server import zookeeper
from .conftest import rows

LATCH = [sys.executable, "-m", "lakelatch.cli"]


def write(table: lakelatch.Table, value: int) -> None:
    with table.transaction("upsert") as txn:
        for group in txn.snapshot.file_slices():
            txn.rewrite(group).write(rows(value))


# --- show and watch -----------------------------------------------------------------------------------------------


def test_describe_tells_who_ended_leases_and_the_last_token(run, table):
    lease = table.session.lease("stuck")
    run("locks", "break", table.url, "--token", str(lease.token), "--reason", "no sign of life")
    shown = run.json("locks", "show", table.url)
    assert shown["holder"] is None
    assert shown["generation"] == table.settings.generation
    assert shown["last_token"] == table.session.log.state.token > 0
    assert [(each["token"], each["reason"]) for each in shown["breaks"]] == [(lease.token, "no sign of life")]
    assert f"token {lease.token} was ended by " in run("locks", "show", table.url).stdout


def test_watch_prints_each_change_until_interrupted(table):
    command = [*LATCH, "locks", "watch", table.url, "--json", "--every-s", "0.05"]
    # A shell's background job ignores SIGINT, and so would its children.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=listen) as watcher:
        assert watcher.stdout is not None
        assert json.loads(watcher.stdout.readline())["holder"] is None
        with table.session.lease("watched"):
            held = json.loads(watcher.stdout.readline())
        assert held["holder"]["reason"] == "A: watched"
        assert json.loads(watcher.stdout.readline())["holder"] is None
        table.set_lock("none://")
        lines = [json.loads(watcher.stdout.readline())]
        while lines[-1]["lock"] != "none://":  # the change itself takes the lock for a moment, which may be seen
            lines.append(json.loads(watcher.stdout.readline()))
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(PATIENCE_S) == 130


# --- set ----------------------------------------------------------------------------------------------------------


def test_set_gives_the_table_another_lock(run, table, tmp_path: Path):
    out = run("locks", "set", table.url, str(tmp_path / "locks")).stdout
    assert f"lock file://{tmp_path}/locks (it was table)" in out
    write(table, 7)
    assert table.settings.lock == f"file://{tmp_path}/locks"
    set_ = run.json("locks", "set", table.url, "none://")
    assert set_["settings"]["lock"] == "none://"
    assert "no lock (none://)" in run("locks", "show", table.url).stdout


def test_set_takes_hudis_options(run, table, tmp_path: Path):
    path = table.url.removeprefix("file://")
    provider = "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    run("locks", "set", table.url, "--option", provider, "--option", "hoodie.write.lock.wait_time_ms=60000")
    write(table, 8)
    assert table.settings.lock == f"file://{path}/.hoodie?jvm=lock"
    assert table.settings.lock_wait_s == 60.0
    refused = run("locks", "set", table.url, "none://", code=2).stderr
    assert "shared with JVM writers (jvm=" in refused
    run("locks", "set", table.url, "none://", "--jvm-writers-stopped")
    properties = tmp_path / "writer.properties"
    properties.write_text(f"hoodie.datasource.write.operation=upsert\nhoodie.table.name=x\n{provider}\n")
    assert run.json("locks", "set", table.url, "--options-file", str(properties))["settings"]["lock"].endswith(
        "jvm=lock"
    )


def test_create_takes_hudis_options(run, tmp_path: Path):
    url = str(tmp_path / "t")
    given = ["--option", "hoodie.write.lock.provider=FileSystemBasedLockProvider"]
    made = run.json(
        "create", url, "--record-key", "id", *given, "--option", f"hoodie.write.lock.filesystem.path={tmp_path}"
    )
    assert made["settings"]["lock"] == f"file://{tmp_path}?jvm=lock"
    assert "not both" in run("create", url + "2", "--record-key", "id", "--lock", "table", *given, code=2).stderr


@pytest.mark.server
@pytest.mark.process
def test_create_adopt_and_set_derive_the_same_key_from_hudis_options(run, tmp_path: Path):
    with zookeeper(tmp_path / "zookeeper") as node:
        place = {"url": f"127.0.0.1:{node.port}", "base_path": "/hudi"}
        given = [f"--option=hoodie.write.lock.zookeeper.{name}={value}" for name, value in place.items()]
        url = str(tmp_path / "flights")
        made = run.json("create", url, "--record-key", "id", "--name", "Trips", *given)["settings"]["lock"]
        assert made == f"zk://127.0.0.1:{node.port}/hudi?key=Trips"
        assert run.json("locks", "set", url, *given)["settings"]["lock"] == made
        shutil.rmtree(tmp_path / "flights/.hoodie/.lakelatch")
        assert run.json("adopt", url, *given)["settings"]["lock"] == made


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["redis://u:secret@h/0"], "holds a password"),
        (["nosuch://x"], "known are"),
        ([], "name the lock"),
        (["none://", "--option", "hoodie.write.lock.provider=x"], "not both"),
        (["--option", "hoodie.write.lock.provider"], "has no '='"),
        (["--option", "hoodie.write.lock.provder=x"], "does not have: hoodie.write.lock.provder"),
        (["--option", "hoodie.write.lock.provider=HiveMetastoreBasedLockProvider"], "Hive Metastore"),
        (["--options-file", "/nosuch"], "cannot be read"),
        (["--options-file", os.devnull], "has no hoodie.write.lock"),
    ],
)
def test_set_refuses_what_cannot_work(run, table, arguments: list[str], message: str):
    slots = table.session.log.next_slot
    refused = run("locks", "set", table.url, *arguments, code=2).stderr
    assert message in refused
    assert "secret" not in refused
    table.session.log.catch_up()
    assert (table.session.log.next_slot, table.settings.lock) == (slots, "table")


# --- check --------------------------------------------------------------------------------------------------------


def check(*arguments: str, code: int, **environment: str) -> dict:
    done = subprocess.run(
        [*LATCH, "locks", "check", *arguments, "--seconds", "0.5", "--json"],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, env=os.environ | environment, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_check_finds_a_good_lock_good_and_leaves_nothing_held(tmp_path: Path):
    url = f"file://{tmp_path}/locks?key=in-use"
    with open_provider(url) as locks, locks.acquire("x", wait_s=0) as lease:
        verdict = check(url, code=0)
        lease.ensure_held(fresh=True)  # it has used keys of its own
    assert verdict["kept"]
    lease = re.search(r"leases of (\d+) s are tried", verdict["findings"][0]["seen"])  # 3, or more on a slow machine
    assert lease is not None
    assert verdict["url"] == f"file://{tmp_path}/locks?lease={lease[1]}s"
    assert len(verdict["findings"]) == 8
    figures = verdict["figures"]
    assert figures["handoffs_per_s"] > 0
    assert 0 < figures["acquire_ms_p50"] <= figures["acquire_ms_p99"]
    with open_provider(verdict["url"]) as locks:
        for name in ("run", "alone", "contend", "lift", "release", "timeout", "break", "loss"):
            holder = locks.inspect(f"lakelatch-check-{name}")
            assert holder is None or name == "timeout", "a dead holder's lease has not ended yet"


_LIES = """
import random
from lakelatch.locks import open_provider

class Lies:
    def __init__(self, url, env):
        self.locks = open_provider("file://" + url.partition("://")[2], env=env)
        self.url = url
    def __getattr__(self, name):
        return getattr(self.locks, name)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.locks.close()
    def acquire(self, key, **options):
        return self.locks.acquire(key + str(random.random()), **options)  # never busy

def open_lies(url, *, env):
    if "?" in url:
        from lakelatch.errors import ConfigError
        raise ConfigError("no options")
    return Lies(url, env)
"""


def install_lies(tmp_path: Path, code: str) -> str:
    """A PYTHONPATH with a provider for lies://."""
    site = tmp_path / "site"
    (site / "lies-1.dist-info").mkdir(parents=True)
    (site / "lies_locks.py").write_text(code)
    (site / "lies-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lies\nVersion: 1\n")
    (site / "lies-1.dist-info" / "entry_points.txt").write_text(
        "[lakelatch.lock_providers]\nlies = lies_locks:open_lies\n"
    )
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_check_of_a_provider_that_raises_anything_is_a_verdict_all_the_same(tmp_path: Path):
    code = _LIES.replace(
        "return self.locks.acquire(key + str(random.random())",
        """if "contend" in key or "lift" in key:
            raise RuntimeError("not today")
        return self.locks.acquire(key""",
    )
    verdict = check(f"lies://{tmp_path}/locks", code=2, PYTHONPATH=install_lies(tmp_path, code))
    assert (verdict["verdict"], verdict["kept"]) == ("untried", None)
    seen = {finding["promise"].partition(",")[0]: (finding["kept"], finding["seen"]) for finding in verdict["findings"]}
    assert seen["one holder at a time"][0] is None
    assert "RuntimeError: not today" in seen["one holder at a time"][1]
    assert seen["tokens grow with every grant"] == (None, "nothing was granted between processes")
    assert seen["tokens start above a number that is asked for"] == (None, "RuntimeError: not today")
    assert seen["a release answers what became of the lease"][0] is True


def test_check_finds_out_a_lock_that_is_none(tmp_path: Path):
    verdict = check(f"lies://{tmp_path}/locks", code=1, PYTHONPATH=install_lies(tmp_path, _LIES))
    kept = {finding["promise"]: finding["kept"] for finding in verdict["findings"]}
    assert not kept["one holder at a time, between processes"]
    assert not kept["tokens grow with every grant"]
    assert not kept["a waiter that gives up names the holder"]
    assert (verdict["verdict"], verdict["kept"]) == ("breaks", False)


def test_check_of_what_cannot_be_reached_ends_soon_and_says_so(tmp_path: Path):
    (tmp_path / "file").touch()
    verdict = check(f"file://{tmp_path}/file/locks", code=2)
    assert (verdict["verdict"], verdict["kept"]) == ("untried", None)
    assert len(verdict["findings"]) == 1
    assert str(tmp_path) in verdict["findings"][0]["seen"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5259.6, "5,260"),
        (0.12345, "0.123"),
        (0, "0"),
        (999.6, "1,000"),
        (1e-7, "0.0000001"),
        (123456789, "123,000,000"),
    ],
)
def test_a_figure_has_three_digits_that_count_and_no_powers_of_ten(value: float, text: str):
    assert figure(value) == text


def test_check_prints_a_verdict_for_people(run, capsys):
    verdict = Verdict("file:///x", [Finding("one holder", True, "3 holds")], {"wait_ms_p50": 0.12345}, ["No lease."])
    print_verdict(verdict)
    out = capsys.readouterr().out
    assert "yes   one holder  3 holds" in out
    assert "wait ms p50  0.123" in out
    assert out.startswith("file:///x keeps its promises\n")
    assert "not promised: No lease.\n" in out
    verdict.findings.append(Finding("tokens grow", False, "7 after 7"))
    print_verdict(verdict)
    assert "NO    tokens grow  7 after 7" in (out := capsys.readouterr().out)
    assert "does NOT keep its promises: 1 of 2 broken" in out
    verdict.findings[-1] = Finding("tokens grow", None, "no answer")
    print_verdict(verdict)
    assert "not tried  tokens grow  no answer" in (out := capsys.readouterr().out)
    assert "file:///x could not be tried: 1 of 2 promises are open" in out
    assert "within one process" in run("locks", "check", "memory://x", code=2).stderr
