"""Lock URLs, durations, and how a scheme finds its provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.environment import Environment
from lakelatch.errors import ConfigError
from lakelatch.locks import LockProvider, known_schemes, open_provider
from lakelatch.locks.lock_url import LockUrl, format_duration, parse_duration, parse_lock_url

from .strangers import installed


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1.5h", 5400.0), ("0s", 0.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text, what="lease") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["30", "", "s", "-1s", "1 day", "1e3s", "infs"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="500ms, 30s or 2m"):
        parse_duration(text, what="lease")


@given(st.integers(min_value=1, max_value=10**8))
def test_a_duration_survives_being_written(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds), what="lease") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is empty"),
        ("file:///a?laese=5s", "unknown settings: laese; known are "),
        ("file:///a?lease=5s&lease=6s", "twice"),
        ("file:///a?lease=1ms", "cannot work"),
        ("file:///a?lease=48h", "cannot work"),
        ("file:///a?max_hold=0s", "longer than nothing"),
        ("file:///a#b", "after '#'"),
        ("/a?lease=5s", "bare path with settings"),
        ("file://host/a", "three slashes"),
        ("file://", "names no folder"),
        ("nosuch://x", "known are az, dynamodb, file"),
        ("file:a/b", "names no folder"),
        ("redis:/127.0.0.1:6379", "'redis:/127.0.0.1:6379' is no lock. Write redis://"),
        ("s3:/bucket", "Write s3://"),
        ("zk:a", "Write zk://"),
        (
            "127.0.0.1:6379",
            "is no lock. A folder begins with /, ./, ../ or file:, everything else with a scheme: az://",
        ),
        ("none", "or none://"),
        ("tabel", "the lock 'table'"),
        ("locks", "is no lock"),
        ("a/b", "is no lock"),
        ("~/x", "~ is not expanded"),
        ("hello world", "is no lock"),
        (" redis://h", "is no lock"),
        ("a b://h", "is no lock"),
        ("://h", "is no lock"),
        ("...", "is no lock"),
    ],
)
def test_a_url_that_means_nothing_is_refused_in_a_sentence(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_provider(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h?tls=on&tls=hunter2",
        "redis://h?password=hunter2",
        "redis://u:hunter2@h",
        "redis://u:hunter2@h#x",
        "redis://u:hunter2#more@h",
        "redis://u:hunter2?more@h",
        "redis://u:12?hunter2@h",
        "redis://u:12?lease=hunter2@h",
        "redis://u:12/hunter2@h",
        "redis://:1@hunter2?x@h",
        "redis+sentinel://u:hunter2[@h/s",
        "zk://u:\u2100hunter2@h",
        "/a?key=hunter2",
        "rediss://u%3Ahunter2@h",
        "rediss://u%3ahunter2%40x@h",
        "redis:u:hunter2@h",
        "u:hunter2@h",
        "s3://b/l?endpoint=http://user:hunter2@proxy",
        "s3://b/l?endpoint=http://hunter2@proxy",
        "s3://b/l?endpoint=http%3A%2F%2Fuser%3Ahunter2%40proxy",
        "s3://b/l?endpoint=http%3A%2F%2Fuser%253Ahunter2%2540proxy",
        "s3://b/l?endpoint=http://user:hun/ter2@hunter2",
        "dynamodb://us-east-1/t?endpoint=user:hunter2@proxy",
        "dynamodb://us-east-1/t?endpoint=http://user:hunter2@proxy",
        "memory://x?key=https://user:hunter2@host/table",
    ],
)
def test_a_refusal_shows_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_provider(url)
    assert "hunter2" not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize("url", ["MEMORY://odd", "Memory://odd", "memory://odd"])
def test_a_scheme_may_be_written_in_capitals(url: str) -> None:
    with open_provider(url) as locks:
        assert locks.url == "memory://odd"


@pytest.mark.parametrize("spelled", ["{}", "file:{}", "file://{}", "FILE://{}", "./locks", "../{0.name}/locks"])
def test_a_folder_is_written_as_a_path_or_as_a_url(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path if "{0" in spelled else tmp_path / "locks"
    with open_provider(spelled.format(folder)) as locks:
        assert locks.url == f"file://{tmp_path}/locks"


def test_a_tables_address_may_be_the_key() -> None:
    url = "memory://x?key=abfss://container%40account.dfs.core.windows.net/t"
    with open_provider(url) as locks:
        assert locks.url == url


def test_an_at_sign_in_a_name_is_written_as_a_code() -> None:
    url = "redis://h:1/2?key=a%40b"
    with open_provider(url) as locks:
        assert locks.url == url


def test_defaults_and_settings() -> None:
    assert parse_lock_url("file:///a") == LockUrl("file", "", "/a", 30.0, None)
    assert parse_lock_url("memory://x?lease=1m&max_hold=1h") == LockUrl("memory", "x", "", 60.0, 3600.0)
    assert parse_lock_url("redis://h:1/0?name=a", options=("name",)).options == {"name": "a"}
    assert str(parse_lock_url("file:///a%20b?max_hold=60s&lease=30s")) == "file:///a%20b?max_hold=1m"


def test_the_lease_of_the_url_is_the_default_of_the_call() -> None:
    with open_provider("memory://url-lease?lease=2s&max_hold=1s") as locks, locks.acquire("a", wait_s=0):
        holder = locks.inspect("a")
    assert holder is not None
    assert holder.until is not None
    assert holder.until - holder.since == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    "url", ["file:///x/locks", "/x/locks", "memory://m", "zk://h/locks", "redis://h", "dynamodb://r/t", "s3://b/locks"]
)
def test_the_lease_of_whoever_opens_a_lock_counts_where_the_url_has_none(url: str) -> None:
    """Sessions and time limits of requests follow it, so each opener has to hear it."""
    with open_provider(url, lease_s=7.0) as locks:
        assert locks.url.endswith("?lease=7s")
    if not url.startswith("/"):
        with open_provider(f"{url}?lease=5s", lease_s=7.0) as locks:
            assert locks.url.endswith("?lease=5s")


def test_a_third_party_is_found_and_built_ins_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = f"{__name__}:open_theirs"
    monkeypatch.syspath_prepend(installed(tmp_path, theirs=opener, memory=opener))
    assert {"file", "memory", "theirs", "zk"} <= set(known_schemes())
    assert open_provider("theirs://x").url == "memory://theirs-x"
    assert open_provider("memory://y").url == "memory://y"


def open_theirs(url: str, *, env: Environment) -> LockProvider:
    """A stranger's opener."""
    return open_provider(url.replace("theirs://", "memory://theirs-"), env=env)


def test_importing_locks_imports_no_client() -> None:
    code = (
        "import sys, lakelatch.locks; from lakelatch.locks import open_provider; open_provider('memory://a');"
        "print([m for m in ('pyarrow', 'pyspark', 'boto3', 'obstore', 'fastavro', 'redis', 'kazoo', 'pytest')"
        " if m in sys.modules], 'lakelatch.locks.file.backend' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] False"
