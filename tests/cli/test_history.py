"""``lakelatch why``, ``watch``, ``settings`` and ``doctor``, and shell completion."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys

import pytest

import lakelatch
from lakelatch.occ.entries.entries import End
from lakelatch.testing.contention import PATIENCE_S

from .conftest import rows

LATCH = [sys.executable, "-m", "lakelatch.cli"]


def loser(table: lakelatch.Table) -> str:
    return next(entry.instant for entry in table.session.log.entries() if isinstance(entry, End))


def test_why_tells_the_story_of_a_loser(run, table):
    lost = loser(table)
    told = run("why", table.url, lost).stdout
    for word in (
        "upsert by A: lost",
        "all in vain",
        "both changed 5 rows",
        "both changed the same file group",
        "winner",
    ):
        assert word in told
    facts = run.json("why", table.url, lost)
    assert facts == json.loads(json.dumps(table.why(lost).to_json()))
    assert (facts["outcome"], facts["overlap"][0]["rows_min"]) == ("lost", 5)
    assert {way["change"] for way in facts["ways"]} >= {"order", "reservation"}


def test_why_of_one_that_landed_says_so(run, table):
    landed = table.timeline().commits[-1]
    assert f"landed at {landed.completed}" in run("why", table.url, landed.requested).stdout


def test_watch_tells_what_happened_after_a_time_and_stops_at_its_limit(run, table):
    first = table.timeline().commits[1].completed
    lines = run("watch", table.url, "--after", first, "--limit", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["begin", "begin", "commit"]
    told = [
        json.loads(line) for line in run("watch", table.url, "--after", first, "-n", "4", "--json").stdout.splitlines()
    ]
    assert [each["event"] for each in told] == ["begin", "begin", "commit", "abort"]
    assert told[3]["winner"] == told[2]["instant"]


def test_watch_goes_on_until_interrupted(table):
    after = table.timeline().commits[-1].completed
    command = [*LATCH, "watch", table.url, "--json", "--every-s", "0.05", "--after", after]
    # A shell's background job ignores SIGINT, and so would its children.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen
    ) as watcher:
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        with table.transaction("upsert") as txn:
            txn.upsert(rows(9))
        found = [json.loads(watcher.stdout.readline()) for _ in range(2)]
        assert [(each["event"], each["instant"]) for each in found] == [("begin", txn.instant), ("commit", txn.instant)]
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(PATIENCE_S) == 130
        assert watcher.stderr.read() == "interrupted\n"


def test_settings_are_printed_with_defaults_marked_and_changed_for_all(run, table):
    told = run("settings", table.url).stdout.splitlines()
    assert [line.split() for line in told if line.startswith("isolation")] == [["isolation", "snapshot", "default"]]
    assert [line.split() for line in told if line.startswith("heartbeat_timeout_s")] == [["heartbeat_timeout_s", "5"]]
    facts = run.json(
        "settings", table.url, "isolation=serializable", "lock_wait_s=2.5", "statistics=v,id", "rebase=False"
    )
    table.session.log.catch_up()
    assert facts["settings"] == json.loads(json.dumps(table.settings.plain()))
    assert facts["settings"].keys() == lakelatch.Settings.declared().keys()
    assert {"isolation", "lock_wait_s", "statistics", "rebase"} <= set(facts["changed"])
    assert "generation" not in facts["changed"]
    assert run.json("settings", table.url, "statistics=none")["settings"]["statistics"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("isolation", "write NAME=VALUE"),
        ("=x", "write NAME=VALUE"),
        ("color=red", "no such setting: color"),
        ("lock_wait_s=soon", "must be a number of seconds"),
        ("log_epochs=2.5", "must be a whole number"),
        ("generation=3", "no such setting"),
        ("isolation={0}%s", "no isolation level"),
        ("lock=telepathy://x", "telepathy"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_nothing_changes(run, table, change, words):
    before = table.session.log.catch_up().settings
    assert words in run("settings", table.url, change, code=2).stderr
    assert table.session.log.catch_up().settings == before


def test_describe_tells_the_buckets(run, tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", bucket_count=3):
        pass
    assert "bucket index of 3" in run("describe", str(tmp_path / "t")).stdout


def test_shells_complete_commands():
    unknown = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # else the shell that runs this counts
    done = subprocess.run(
        [*LATCH, "--show-completion", "bash"], capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=unknown
    )  # fmt: skip
    assert "complete -o default -F _lakelatch_completion lakelatch" in done.stdout


def test_doctor_is_content_with_a_sound_table_and_says_what_is_set(run, table):
    told = run("doctor", table.url).stdout
    assert "heartbeat_timeout_s=5.0" in told
    assert "nothing is unsafe, nothing is slow" in told
    facts = run.json("doctor", table.url, "--check")
    assert facts["safe"]
    assert facts["findings"] == []
    assert facts["check"]["findings"] == []
    assert facts["facts"]["lost"] == 1


def test_doctor_exits_with_1_when_something_is_unsafe(run, table):
    run("settings", table.url, "unique_keys=false")
    told = run("doctor", table.url, code=1).stdout
    assert "UNSAFE double-keys" in told
    mend = next(line.split()[1:] for line in told.splitlines() if line.startswith("    lakelatch"))
    run(*mend)
    assert run.json("doctor", table.url)["safe"]


def test_doctor_exits_with_1_when_check_finds_damage(run, table):
    (slice_,) = table.snapshot().file_slices()
    with open(table.url.removeprefix("file://") + "/" + slice_.path, "r+b") as file:
        file.truncate(100)
    assert run.json("doctor", table.url)["safe"]
    facts = run.json("doctor", table.url, "--check", code=1)
    assert not facts["safe"]
    assert "UNSAFE damaged" in run("doctor", table.url, "--check", code=1).stdout
