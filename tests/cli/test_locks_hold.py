"""``lakelatch locks hold`` and ``revoke``, with real processes on locks in a folder."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import lakelatch
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

from ..unheard import unheard

pytestmark = pytest.mark.process

LOCKS = [sys.executable, "-m", "lakelatch.cli", "locks"]
# Says that it runs, and how it ends.
JOB = "trap 'echo told; exit 7' TERM; echo running; while :; do read -r _ || sleep 0.05; done"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}?lease=12s"  # so long that a busy machine lets its holder renew it


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOCKS, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def not_ignored() -> None:
    """As nohup and shells' jobs in the background hand them down."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose job runs; a test that fails leaves neither behind."""
    with subprocess.Popen(
        [*LOCKS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # without a terminal
        preexec_fn=not_ignored,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "running\n"
            yield child
        finally:
            if child.poll() is None:
                child.terminate()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(5)
                child.kill()


def token_of(locks: LockProvider, key: str) -> int:
    holder = locks.inspect(key)
    assert holder is not None
    return holder.token


def test_the_command_runs_under_the_lock_and_its_exit_code_comes_out(url: str) -> None:
    shown = 'echo "$LAKELATCH_LOCK_KEY $LAKELATCH_LOCK_TOKEN -x {} %s"; exit 3'
    done = run("hold", url, "job \U0001f600", "--", "sh", "-c", shown)
    assert (done.returncode, done.stdout, done.stderr) == (3, "job \U0001f600 1 -x {} %s\n", "")
    with open_provider(url) as locks:
        assert locks.inspect("job \U0001f600") is None


def test_a_busy_lock_is_75_and_names_the_holder(url: str) -> None:
    with open_provider(url) as locks, locks.acquire("job", wait_s=0, reason="by hand"):
        busy = run("hold", url, "job", "--", "echo", "never")
    assert (busy.returncode, busy.stdout) == (75, "")
    assert "'by hand'" in busy.stderr
    assert "`lakelatch locks revoke`" in busy.stderr


def test_it_waits_as_long_as_it_is_told(url: str) -> None:
    with ThreadPoolExecutor(1) as pool, open_provider(url) as locks:
        with locks.acquire("job", wait_s=0):
            waiting = pool.submit(run, "hold", url, "job", "--wait-s", "60", "--", "echo", "served")
            until(lambda: bool((holder := locks.inspect("job")) and holder.queue), "it does not stand in line")
        assert waiting.result(PATIENCE_S).stdout == "served\n"


def test_a_command_whose_lock_is_lost_gets_sigterm(url: str) -> None:
    with open_provider(url) as locks, started("hold", url, "job", "--", "sh", "-c", JOB) as child:
        assert locks.break_lease("job", token=token_of(locks, "job"), reason="enough", who="test")
        out, err = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, out) == (70, "told\n")
    assert "somebody else ended it" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_reach_the_command_and_the_lock_is_given_back_after_it(url: str, number: signal.Signals) -> None:
    job = JOB.replace("TERM", number.name.removeprefix("SIG"))
    with open_provider(url) as locks, started("hold", url, "job", "--", "sh", "-c", job) as child:
        child.send_signal(number)
        out, _ = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, out) == (7, "told\n")
        assert locks.inspect("job") is None


def test_a_signal_in_the_moment_before_the_wait_reaches_the_command(url: str) -> None:
    with unheard("lakelatch.cli", "locks", "hold", url, "job", "--", "sh", "-c", JOB) as (child, terminate):
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        terminate()
        out, _ = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, out) == (7, "told\n")


def test_ctrl_c_reaches_the_command_once(url: str) -> None:
    """From the terminal; what `hold` did of it comes before the SIGTERM, on which the job tells how often it was told."""
    job = "n=0; trap 'n=$((n+1)); echo told' INT; trap 'echo $n times; exit 7' TERM; echo running; while :; do sleep 0.05; done"
    keyboard, terminal = os.openpty()

    def own_terminal() -> None:
        not_ignored()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    seen = bytearray()

    def shown(text: bytes) -> bool:
        if text not in seen and select.select([keyboard], [], [], 0)[0]:
            seen.extend(os.read(keyboard, 1024))
        return text in seen

    with subprocess.Popen(
        [*LOCKS, "hold", url, "job", "--", "sh", "-c", job],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, preexec_fn=own_terminal,
    ) as child:  # fmt: skip
        try:
            until(lambda: shown(b"running"), "it does not run")
            os.write(keyboard, b"\x03")
            until(lambda: shown(b"told"), "Ctrl-C does not arrive")
            child.terminate()
            until(lambda: shown(b"times"), "it does not end")
            assert child.wait(PATIENCE_S) == 7
        finally:
            child.kill()
            os.close(keyboard)
            os.close(terminal)
    assert b"1 times" in seen, seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "waiting", [("hold", "--wait-s", "600", "job", "--", "true"), ("revoke", "job", "--wait-s", "600")]
)
def test_whoever_waits_for_a_lock_ends_at_a_signal(url: str, waiting: tuple[str, ...], number: signal.Signals) -> None:
    asked: list[object] = []

    def in_line() -> bool:
        return bool(asked) or bool((holder := locks.inspect("job")) and holder.queue)

    with open_provider(url) as locks, lakelatch.lock(url, "job", wait_s=0, on_revoke=asked.append):
        command, *rest = waiting
        with subprocess.Popen(
            [*LOCKS, command, url, *rest], stderr=subprocess.PIPE, start_new_session=True, preexec_fn=not_ignored
        ) as child:
            try:
                until(in_line, "it does not wait")
                child.send_signal(number)
                ended = child.wait(PATIENCE_S)
            finally:
                child.kill()
    assert ended == (130 if number == signal.SIGINT else -signal.SIGTERM)


def test_a_command_that_dies_of_a_signal_ends_as_in_a_shell(url: str) -> None:
    assert run("hold", url, "job", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_a_command_that_cannot_be_run_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for program, code in (("/no/such/thing", 127), (str(tmp_path / "text"), 126)):
        done = run("hold", url, "job", "--", program)
        assert done.returncode == code
        assert program in done.stderr
    with open_provider(url) as locks:
        assert locks.inspect("job") is None


def test_without_a_command_it_is_an_error_of_use(url: str) -> None:
    assert run("hold", url, "job").returncode == 64
    assert run("hold", "nonsense", "job", "--", "true").returncode == 64
    assert run("wait", url).returncode == 64
    assert run("show", url, "job", "--nope").returncode == 64


def test_a_service_that_does_not_answer_is_69(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (("hold", "job", "--", "true"), ("wait", "job"), ("show", "job"), ("revoke", "job")):
        done = run(command[0], f"file://{tmp_path}/file/locks", *command[1:])
        assert done.returncode == 69, done.stderr
        assert done.stderr.count(f"{tmp_path}/file") == 1, done.stderr


def test_any_lock_is_shown_and_ended_by_its_key(url: str) -> None:
    assert run("show", url, "job").stdout == "free\n"
    assert json.loads(run("show", url, "job", "--json").stdout) == {
        "lock": url,
        "key": "job",
        "holder": None,
        "breaks": [],
    }
    nobody = run("break", url, "job", "--yes")
    assert (nobody.returncode, "is free; there is nothing to end" in nobody.stderr) == (64, True)
    with open_provider(url) as locks:
        lease = locks.acquire("job", wait_s=0, reason="nightly 🌙\x1b[2J")
        shown = run("show", url, "job").stdout
        assert shown.startswith("held by nightly 🌙\\x1b[2J on ")
        assert f"(token {lease.token})" in shown
        asked = run("break", url, "job")
        assert asked.returncode == 64
        assert "held by nightly 🌙" in asked.stderr
        assert "say --yes" in asked.stderr
        lease.ensure_held(fresh=True)
        other = run("break", url, "job", "--yes", "--token", str(lease.token + 1))
        assert f"no lease with token {lease.token + 1}" in other.stderr
        lease.ensure_held(fresh=True)
        done = run("break", url, "job", "--yes", "--reason", "stuck")
        assert (done.returncode, "it was held by nightly 🌙" in done.stdout) == (0, True)
        with pytest.raises(lakelatch.LockLostError):
            lease.ensure_held(fresh=True)
        lease.release()
    (record,) = json.loads(run("show", url, "job", "--json").stdout)["breaks"]
    assert (record["token"], record["reason"]) == (lease.token, "stuck")
    for key in ("", " "):
        assert run("show", url, key).returncode == 64


def test_waiting_for_a_lock_ends_when_it_is_free(url: str) -> None:
    assert run("wait", url, "job").stdout == "job is free\n"
    with open_provider(url) as locks:
        lease = locks.acquire("job", wait_s=0, reason="by hand")
        busy = run("wait", url, "job", "--wait-s", "0", "--json")
        assert (busy.returncode, json.loads(busy.stdout)["free"]) == (75, False)
        assert json.loads(busy.stdout)["holder"]["reason"] == "by hand"
        with subprocess.Popen(
            [*LOCKS, "wait", url, "job", "--every-s", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as waiter:
            assert waiter.stderr is not None
            assert waiter.stderr.readline().startswith("held by by hand")
            assert waiter.poll() is None
            lease.release()
            out, _ = waiter.communicate(timeout=PATIENCE_S)
    assert (waiter.returncode, out) == (0, "job is free\n")


def test_a_command_that_gives_way_ends_when_somebody_asks(url: str) -> None:
    with started("hold", url, "job", "--give-way", "--", "sh", "-c", JOB) as child:
        asked = run("revoke", url, "job", "--reason", "deploy", "--json")
        out, _ = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, out) == (7, "told\n")
    assert asked.returncode == 0
    assert json.loads(asked.stdout) == {"lock": url, "key": "job", "given_back": True}


def test_a_holder_that_does_not_listen_keeps_the_lock(url: str) -> None:
    with open_provider(url) as locks, locks.acquire("job", wait_s=0) as lease:
        asked = run("revoke", url, "job", "--wait-s", "0")
        assert (asked.returncode, asked.stdout) == (75, "job is still held; its holder was asked\n")
        lease.ensure_held(fresh=True)
    assert run("revoke", url, "job").stdout == "job was given back\n"


def test_help_shows_the_doors() -> None:
    told = run("--help").stdout
    for door in ("show", "watch", "set", "break", "hold", "revoke", "check", "wait"):
        assert f"\n  {door} " in told
    assert "75 if the lock was busy" in run("hold", "--help").stdout
