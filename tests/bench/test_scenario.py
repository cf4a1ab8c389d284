"""Scenario files: ours work with our tables, and what is wrong in a file of one's own is said before anything is made."""

from __future__ import annotations

import tomllib

import pytest

from lakelatch.bench import load, names
from lakelatch.bench.scenario import of
from lakelatch.errors import ConfigError

from ..thorough import THOROUGH

GOOD = 'about = "x"\nkeys = 4\n[[roles]]\nname = "w"\nwork = "append"\n'


# Each kind of work, and one of each two that differ in who works with whom, in the fault, and in the pace.
@pytest.mark.parametrize(
    "name", ["bank", "services", "killed", "streams", *(["partitions", "paused", "bursts"] if THOROUGH else [])]
)
def test_our_tables_pass_the_oracle_of_each_scenario(lab, name, tmp_path):
    """Without time to think, and with a fault in every third operation where there is one."""
    facts = tomllib.loads((load_folder() / f"{name}.toml").read_text())
    for role in facts["roles"]:
        role.pop("think_s", None)
        role["rate"] = role.get("rate", 0) * 20
        if "fault" in role:
            role["fault"] |= {"every": 3, "pause_s": 0.2}
    # A dead writer's transaction is rolled back soon, so that nobody waits for it.
    facts["settings"] = {"heartbeat_interval_s": 0.2, "heartbeat_timeout_s": 1.0} | facts.get("settings", {})
    (run,) = lab(facts=facts, operations=5).runs
    assert "failed" not in run, run["failed"]
    assert run["strikes"] == sum("fault" in role for role in facts["roles"])
    # A killed writer's operation has no outcome; the one after goes on with the next.
    assert run["done"] == 10 - (name == "killed")
    assert run["aborted"] == 0


def load_folder():
    from pathlib import Path

    import lakelatch.bench.scenario as module

    return Path(module.__file__).with_name("scenarios")


def test_every_scenario_that_comes_with_the_lab_can_be_read():
    assert {"appends", "counter", "hundred", "lock"} <= set(names())
    for name in names():
        assert load(name).cast(max(load(name).writers, load(name).smallest()))


def test_a_file_of_ones_own_stands_wherever_a_name_does(tmp_path):
    (tmp_path / "mine é.toml").write_text(GOOD, encoding="utf-8")
    assert load(str(tmp_path / "mine é.toml")).name == "mine é"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("about =", "cannot be read"),
        ('about = "x"', "has no \\[\\[roles\\]\\]"),
        ('about = ""\n[[roles]]\nname="w"\nwork="append"', "about='' is no text"),
        (GOOD.replace("append", "fly"), "roles.work is 'fly', must be one of append, replace"),
        (GOOD + "pick = 3", "roles.pick is 3, must be one of"),
        (GOOD + "count = 0", "roles.count=0 is not a whole number of at least 1"),
        (GOOD + "rows = true", "roles.rows=True is not a whole number"),
        (GOOD + "rate = nan", "roles.rate=nan is not a number"),
        (GOOD + "rate = -1", "roles.rate=-1"),
        (GOOD + 'colour = "red"', "role has no colour; there are name, work"),
        (GOOD + 'fault = "kill"', "a fault must be a table"),
        (GOOD + 'fault = {kind = "flood", every = 1}', "fault.kind is 'flood', must be one of kill, pause"),
        (GOOD + 'fault = {kind = "kill"}', "fault lacks every"),
        ('server = "redis"\n' + GOOD, "a server must be a table: server = {kind"),
        ('server = {kind = "etcd", every_s = 1}\n' + GOOD, "server.kind is 'etcd', must be one of redis, zookeeper"),
        ('server = {kind = "redis"}\n' + GOOD, "server lacks every_s"),
        ('server = {kind = "redis", every_s = 0}\n' + GOOD, "server.every_s=0"),
        ('server = {kind = "redis", every_s = 1, down_s = -1}\n' + GOOD, "server.down_s=-1"),
        ('server = {kind = "redis", every_s = 1, times = 0.5}\n' + GOOD, "server.times=0.5"),
        ('settings = {lock = "table"}\nserver = {kind = "redis", every_s = 1}\n' + GOOD, "leave settings.lock out"),
        (GOOD + '[[roles]]\nname = "w"\nwork = "append"', "need names that differ"),
        ("partitions = 1.5\n" + GOOD, "partitions=1.5 is not a whole number"),
        ("settings = 3\n" + GOOD, "settings must be a table"),
        ("per_process = 2\n" + GOOD + 'fault = {kind = "kill", every = 3}', "say per_process = 1"),
        (GOOD.replace("append", "transfer").replace("keys = 4", "keys = 1"), "say keys = 2 or more"),
        (GOOD.replace("append", "replace"), 'say pick = "own"'),
        (GOOD.replace("append", "event").replace("keys = 4", "keys = 0"), "say keys = 1 or more"),
        (GOOD + '[[roles]]\nname = "e"\nwork = "event"\ncount = 1', "beside event there may be serve"),
        ("roles = [1]\n" + GOOD.partition("[[")[0], "roles must be tables"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_in_a_sentence(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(str(path))


def test_an_unknown_scenario_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"no scenario 'no\\nsuch'; there are appends, .*\.toml file"):
        load("no\nsuch")


def test_a_role_for_each_writer_or_a_sentence():
    facts = tomllib.loads(GOOD)
    one = {**facts["roles"][0], "name": "one", "count": 1}
    both = of("s", {**facts, "roles": [one, facts["roles"][0]]})
    assert [role.name for role in both.cast(3)] == ["one", "w", "w"]
    with pytest.raises(ConfigError, match="needs at least 2 writers, and was given 1"):
        both.cast(1)
    with pytest.raises(ConfigError, match="needs exactly 1 writers, and was given 2"):
        of("s", {**facts, "roles": [one]}).cast(2)
