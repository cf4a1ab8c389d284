"""Threads of the real environment, and whom it takes for dead."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakelatch import environment
from lakelatch.environment import SYSTEM, Process, SpareThreads, SystemEnvironment
from lakelatch.testing.contention import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def threads() -> SpareThreads:
    """They stay: on a busy machine, one that soon ends may never be seen."""
    return SpareThreads(idle_s=10 * PATIENCE_S)


@pytest.fixture
def env(threads) -> SystemEnvironment:
    return SystemEnvironment(threads=threads)


def run_one(env: SystemEnvironment, threads: SpareThreads) -> int:
    """The thread that made a call, once it is spare."""
    made: list[int] = []
    env.thread(lambda: made.append(threading.get_ident()), name="test")
    until(lambda: made and len(threads), "the thread is not spare")
    return made[0]


def test_a_thread_that_has_made_its_call_makes_the_next_one(env, threads):
    assert len({run_one(env, threads) for _ in range(5)}) == 1


def test_calls_at_the_same_time_have_threads_of_their_own(env):
    both = threading.Barrier(2, timeout=PATIENCE_S)
    through: list[int] = []
    for _ in range(2):
        env.thread(lambda: through.append(both.wait()), name="test")
    until(lambda: len(through) == 2, "one call waits for the other")


def test_no_more_threads_stay_than_a_few(env, threads):
    done = threading.Event()
    made: list[threading.Thread] = []

    def call() -> None:
        made.append(threading.current_thread())
        done.wait(PATIENCE_S)

    for _ in range(threads.MAX + 3):
        env.thread(call, name="test")
    until(lambda: len(made) == threads.MAX + 3, "a call waits for another")
    done.set()
    until(lambda: sum(each.is_alive() for each in made) <= threads.MAX, "all of them stay")
    assert len(threads) <= threads.MAX


def test_a_spare_thread_ends_when_nobody_wants_it():
    threads = SpareThreads(idle_s=0.01)
    env = SystemEnvironment(threads=threads)
    made: list[threading.Thread] = []
    env.thread(lambda: made.append(threading.current_thread()), name="test")
    until(lambda: made and not made[0].is_alive(), "it stays")
    assert not len(threads)
    env.thread(lambda: made.append(threading.current_thread()), name="test")
    until(lambda: len(made) == 2, "the next call is not made")


def test_a_call_that_fails_is_told_and_takes_its_thread_along(env, threads, monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: told.append(failed.exc_type))  # Python's own hook
    env.thread(lambda: {}["none"], name="test")
    until(lambda: KeyError in told, "nobody is told")
    run_one(env, threads)


def test_a_spare_thread_holds_on_to_nothing(env):
    class Held:
        def call(self) -> None:
            pass

    held = Held()
    gone = weakref.ref(held)
    env.thread(held.call, name="test")
    del held
    until(lambda: gone() is None, "what was called is kept")


def test_a_child_of_fork_has_threads_of_its_own(env, threads):
    run_one(env, threads)
    child = os.fork()
    if child == 0:
        called = threading.Event()
        env.thread(called.set, name="test")
        os._exit(0 if called.wait(PATIENCE_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_environment_travels_to_another_process_without_its_threads():
    done = threading.Event()
    SYSTEM.thread(lambda: None, name="test")
    pickle.loads(pickle.dumps(SYSTEM)).thread(done.set, name="test")
    assert done.wait(PATIENCE_S)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def seen_by(env: SystemEnvironment, pid: int) -> Process:
    """That process as its own record names it."""
    return replace(env.process(), pid=pid, started=environment._start_time("/proc", pid))


def own_proc(folder: Path, *, as_pid: int | None = None) -> str:
    """A /proc in which a process sees itself alone, as under ``hidepid=2``; ``as_pid``: by another namespace's number."""
    pid = as_pid or os.getpid()
    (folder / "sys/kernel/random").mkdir(parents=True)
    shutil.copy("/proc/sys/kernel/random/boot_id", folder / "sys/kernel/random/boot_id")
    (folder / f"{pid}/ns").mkdir(parents=True)
    shutil.copyfile(f"/proc/{os.getpid()}/stat", folder / f"{pid}/stat")
    for name in ("pid", "time"):
        (folder / f"{pid}/ns/{name}").symlink_to(os.readlink(f"/proc/self/ns/{name}"))
    (folder / "self").symlink_to(str(pid))
    return str(folder)


def test_a_process_is_dead_when_the_kernel_does_not_know_it(child):
    record = seen_by(SYSTEM, child.pid)
    assert not SYSTEM.is_dead(record)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert SYSTEM.is_dead(record)  # nobody has asked for its exit code yet
    child.wait()
    assert SYSTEM.is_dead(record)


def test_a_process_number_in_use_again_is_not_the_process(child):
    assert SYSTEM.is_dead(replace(seen_by(SYSTEM, child.pid), started="1"))


def test_a_living_process_that_proc_hides_is_not_dead(child, tmp_path):
    env = SystemEnvironment(proc=own_proc(tmp_path))
    record = seen_by(env, child.pid)
    assert record.started
    assert not env.is_dead(record)
    child.kill()
    child.wait()
    assert env.is_dead(record)


@pytest.mark.parametrize("change", [{"started": ""}, {"boot": "another"}, {"host": "another"}, {"pid": 0}, {"pid": -1}])
def test_who_cannot_be_told_apart_is_not_dead(child, change):
    assert not SYSTEM.is_dead(replace(seen_by(SYSTEM, child.pid), **change))
    assert not SYSTEM.is_dead(replace(seen_by(SYSTEM, 2**40), **change)) or "started" in change


def test_start_times_of_another_namespaces_proc_are_not_compared(child, tmp_path):
    env = SystemEnvironment(proc=own_proc(tmp_path, as_pid=child.pid))  # its number there is ours
    assert env.process().started == ""
    assert not env.is_dead(replace(seen_by(env, child.pid), started="1"))


_ASK = """
import json, os, resource, subprocess, sys
from lakelatch.environment import SYSTEM, Process
record = Process.from_json(json.loads(sys.argv[2]))
if sys.argv[1] == "files":
    SYSTEM.process()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
elif sys.argv[1] == "hidepid":
    subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    hidden = not open(f"/proc/{record.pid}/stat").read()
except OSError:
    hidden = True
os.write(1, json.dumps([SYSTEM.process().boot == record.boot, hidden, SYSTEM.is_dead(record)]).encode())
os._exit(0)
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["files", "hidepid"])
def test_a_living_process_is_not_dead_to_one_that_cannot_look_at_it(how):
    command = [sys.executable, "-c", _ASK, how, json.dumps(SYSTEM.process().to_json())]
    if how == "hidepid":
        command = ["unshare", "--mount", *command]
        if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            pytest.skip("only root may mount a /proc")
    asked = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(asked.stdout) == [True, True, False]
