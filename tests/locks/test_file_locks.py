"""The contract on file://, and what only files, hosts and processes can show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakelatch.environment import SYSTEM, Process, SystemEnvironment
from lakelatch.errors import ConfigError, LockLostError, LockTimeoutError, LockUnavailableError, StorageError
from lakelatch.locks import LockProvider, Release, open_provider
from lakelatch.locks.file import backend as file
from lakelatch.locks.file import generations
from lakelatch.testing import FakeEnvironment, LockProviderContract

from ..no_files import NO_FILES
from .weather import holding

KEY = "s3://bucket/table"
_pread = os.pread
OTHER_HOST = Process("host-b", "boot-b", 100, "1")
NEIGHBOUR = Process("host-a", "boot-a", 200, "1")


class TestFileLocks(LockProviderContract):
    across_processes = True

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        self.folder = tmp_path / "locks"
        return f"file://{self.folder}"

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Something that is no folder stands in its place."""
        self.folder.mkdir(exist_ok=True)
        away = self.folder.rename(self.folder.with_name("away"))
        self.folder.write_text("")
        yield
        self.folder.unlink()
        away.rename(self.folder)

    def restart(self) -> None:
        """Nothing runs that could be restarted: what is in the folder is all there is."""


class TestFileLocksWithFlock(TestFileLocks):
    """Where the system has no open-file-description locks."""

    @pytest.fixture(autouse=True)
    def no_ofd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakelatch.locks.file.kernel_queue._OFD", False)


@pytest.mark.process
def test_a_killed_local_holder_is_followed_at_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path}?lease=1h"
    with holding(url, KEY) as holder, open_provider(url) as locks:
        assert locks.try_acquire(KEY) is None
        timer = threading.Timer(0.1, holder.kill)  # while somebody waits already
        timer.start()
        with locks.acquire(KEY, wait_s=20) as lease:
            assert lease.token > holder.token
        timer.join()


@pytest.mark.process
def test_a_living_holder_that_proc_hides_is_not_followed(tmp_path: Path) -> None:
    locks_url, proc = f"file://{tmp_path}/locks?lease=1h", tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    shutil.copy("/proc/sys/kernel/random/boot_id", proc / "sys/kernel/random/boot_id")
    (proc / "self").symlink_to("/proc/self")
    with holding(locks_url, KEY) as holder, open_provider(locks_url, env=SystemEnvironment(str(proc))) as locks:
        assert locks.try_acquire(KEY) is None
        holder.kill()
        holder.process.wait()  # here a zombie cannot be told from a living process
        with locks.acquire(KEY, wait_s=20) as lease:
            assert lease.token > holder.token


@pytest.mark.process
def test_a_stopped_holder_is_followed_after_its_lease_and_notices_by_itself(tmp_path: Path) -> None:
    with holding(f"file://{tmp_path}?lease=300ms", KEY) as holder, open_provider(f"file://{tmp_path}") as locks:
        holder.stop()
        # The stopped process still stands at the head of the kernel queue; two waiters show that it blocks nobody.
        with locks.acquire(KEY, wait_s=20) as second:
            assert second.token > holder.token
        with locks.acquire(KEY, wait_s=20) as third:
            holder.go_on()
            assert holder.says() == f"expired {Release.WAS_LOST.value}"
            third.ensure_held(fresh=True)


@pytest.mark.process
def test_eight_processes_lose_no_count(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    code = """
import sys
from pathlib import Path
from typing import Any
from lakelatch.locks import open_provider
locks, counter = open_provider(sys.argv[1]), Path(sys.argv[2])
last = 0
for _ in range(40):
    with locks.acquire("k", wait_s=60) as lease:
        assert lease.token > last
        last = lease.token
        counter.write_text(str(int(counter.read_text()) + 1))
"""
    command = [sys.executable, "-c", code, f"file://{tmp_path}/locks", str(counter)]
    children = [subprocess.Popen(command) for _ in range(8)]
    assert [child.wait(120) for child in children] == [0] * 8
    assert counter.read_text() == "320"


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_living_child_of_a_dead_holder_keeps_nothing(tmp_path: Path) -> None:
    code = """
import os, sys, time
from lakelatch.locks import open_provider
lease = open_provider(sys.argv[1]).acquire("k", wait_s=10)
end, other = os.pipe()
if os.fork() == 0:
    os.close(other)
    print(lease.lost, os.getpid(), flush=True)
    sys.stdin.readline()  # lives on with copies of whatever its parent had open
    os._exit(0)
print("parent", flush=True)
time.sleep(60)
"""
    url = f"file://{tmp_path}?lease=1h"
    with subprocess.Popen([sys.executable, "-c", code, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        said = sorted([parent.stdout.readline().split(), parent.stdout.readline().split()])
        assert said[0][0] == b"forked"
        parent.kill()
        with open_provider(url) as locks, locks.acquire("k", wait_s=20) as lease:
            assert lease.token == 2


def test_another_hosts_holder_is_followed_only_after_its_lease_by_our_clock(tmp_path: Path) -> None:
    env = FakeEnvironment()
    theirs = env.peer(process=OTHER_HOST)
    env.kill(OTHER_HOST)  # even if we could know: another host's processes are never judged by number
    with open_provider(f"file://{tmp_path}", env=theirs) as them, open_provider(f"file://{tmp_path}", env=env) as us:
        first = them.acquire(KEY, wait_s=0, lease_s=10)
        env.advance(1000)
        assert us.try_acquire(KEY) is None  # seen for the first time: the stop-watch starts now
        env.advance(10)
        assert us.try_acquire(KEY) is None
        env.advance(0.2)
        second = us.try_acquire(KEY)
        assert second is not None
        assert second.token == first.token + 1


def test_a_living_holder_on_another_host_is_never_followed(tmp_path: Path) -> None:
    env = FakeEnvironment()
    theirs = env.peer(process=OTHER_HOST)
    with open_provider(f"file://{tmp_path}", env=theirs) as them, open_provider(f"file://{tmp_path}", env=env) as us:
        lease = them.acquire(KEY, wait_s=0, lease_s=10)
        for _ in range(50):
            theirs.advance(3)
            assert us.try_acquire(KEY) is None
        lease.ensure_held(fresh=True)


@pytest.mark.parametrize("apart_s", [-5 * 3600.0, 5 * 3600.0])
def test_clocks_hours_apart_change_nothing(tmp_path: Path, apart_s: float) -> None:
    env = FakeEnvironment()
    theirs = env.peer(process=OTHER_HOST, wall=env.now() + apart_s)
    with open_provider(f"file://{tmp_path}", env=theirs) as them, open_provider(f"file://{tmp_path}", env=env) as us:
        lease = them.acquire(KEY, wait_s=0, lease_s=10)
        assert us.try_acquire(KEY) is None
        theirs.set_wall(0.0)
        theirs.advance(9)
        assert us.try_acquire(KEY) is None
        theirs.advance(9)
        assert us.try_acquire(KEY) is None
        lease.ensure_held(fresh=True)


def test_a_dead_process_of_this_boot_is_followed_at_once(tmp_path: Path) -> None:
    env = FakeEnvironment()

    with (
        open_provider(f"file://{tmp_path}", env=env.peer(process=NEIGHBOUR)) as them,
        open_provider(f"file://{tmp_path}", env=env) as us,
    ):
        them.acquire(KEY, wait_s=0)
        assert us.try_acquire(KEY) is None
        env.kill(NEIGHBOUR)
        assert us.inspect(KEY) is None
        assert us.try_acquire(KEY) is not None


class Sleeper:
    """The environment of a process that sleeps, once it is told to, when it is about to claim a number."""

    def __init__(self, env: FakeEnvironment) -> None:
        self._env, self._meanwhile = env, list[Callable[[], object]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def sleeps(self, *meanwhile: Callable[[], object]) -> None:
        """What happens before each of its next claims."""
        self._meanwhile = list(meanwhile)

    def uuid(self) -> str:  # which the claim's file is called by
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return self._env.uuid()


def test_a_late_sleeper_that_fills_an_emptied_number_is_beaten(tmp_path: Path) -> None:
    env = FakeEnvironment()
    slow = Sleeper(env.peer(process=OTHER_HOST))
    with (
        open_provider(f"file://{tmp_path}", env=env) as world,
        open_provider(f"file://{tmp_path}", env=slow) as sleeper,
    ):
        world.acquire(KEY, wait_s=0).release()
        assert sleeper.try_acquire("another key") is not None  # it has a name, and has tried the folder
        held = []

        def meanwhile() -> None:
            for _ in range(100):  # number 2 is granted, released and pruned
                world.acquire(KEY, wait_s=0).release()
            held.append(world.acquire(KEY, wait_s=0))

        slow.sleeps(meanwhile)
        assert sleeper.try_acquire(KEY) is None
        folder = Path(generations.key_folder(str(tmp_path), KEY))
        assert (folder / generations.generation_name(2)).exists()  # its put did succeed
        held[0].ensure_held(fresh=True)


def test_a_lift_that_was_overtaken_withdraws(tmp_path: Path) -> None:
    env = FakeEnvironment()

    class Hasty(Sleeper):
        def is_dead(self, _process: Process) -> bool:
            return True

    slow = Sleeper(env)
    with (
        open_provider(f"file://{tmp_path}", env=slow) as lifting,
        open_provider(f"file://{tmp_path}", env=Hasty(env.peer(process=OTHER_HOST))) as rival,
    ):
        assert lifting.try_acquire("another key") is not None  # as above
        taken = []

        # Meanwhile the lifter has number 1, and is taken for dead.
        slow.sleeps(lambda: None, lambda: taken.append(rival.try_acquire(KEY)))
        assert lifting.try_acquire(KEY, token_above=50) is None
        assert taken[0] is not None
        assert taken[0].token == 2
        assert lifting.try_acquire(KEY) is None


def test_generations_do_not_pile_up_but_records_of_breaks_stay(tmp_path: Path) -> None:
    folder = Path(generations.key_folder(str(tmp_path), KEY))
    with open_provider(f"file://{tmp_path}", env=FakeEnvironment()) as locks:
        locks.acquire(KEY, wait_s=0)
        assert locks.break_lease(KEY, token=1, reason="stuck", who="alice")
        for token in range(2, 200):
            with locks.acquire(KEY, wait_s=0) as lease:
                assert lease.token == token
    assert len(list(folder.iterdir())) < 5 * generations.KEEP
    assert (folder / f"{generations.generation_name(1)}.broken").exists()


def test_a_torn_record_is_judged_by_our_own_lease(tmp_path: Path) -> None:
    env = FakeEnvironment()
    folder = Path(generations.key_folder(str(tmp_path), KEY))
    folder.mkdir(parents=True)
    (folder / generations.generation_name(7)).write_bytes(b"")  # a power cut
    with open_provider(f"file://{tmp_path}?lease=10s", env=env) as locks:
        assert locks.try_acquire(KEY) is None
        holder = locks.inspect(KEY)
        assert holder is not None
        assert holder.token == 7
        env.advance(10.2)
        lease = locks.try_acquire(KEY)
        assert lease is not None
        assert lease.token == 8


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["00000000000000000009", "00000000000000000001.beat", "queue"])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(tmp_path: Path, name: str, kind: str) -> None:
    environment = FakeEnvironment()
    with open_provider(f"file://{tmp_path}?lease=30s", env=environment) as mine:
        folder = Path(generations.key_folder(str(tmp_path), KEY))
        with mine.acquire(KEY, wait_s=0):
            pass
        if (folder / name).exists():
            (folder / name).unlink()
        (folder / "00000000000000000001.released").unlink()
        (folder / "00000000000000000001").unlink()
        (folder / "00000000000000000001").write_text("torn")
        NO_FILES[kind](folder / name)
        for _ in range(2):
            with pytest.raises(
                StorageError, match=f"{name} was not (read|written): it is {kind}, where a file belongs"
            ):
                mine.acquire(KEY, wait_s=0)
        if name != "queue":  # which a look at the holder can do without
            with pytest.raises(StorageError, match=f"{name} was not read: it is {kind}"):
                mine.inspect(KEY)
        assert not (folder / "nowhere").exists()


@pytest.mark.parametrize("kind", NO_FILES)
def test_nothing_is_written_into_a_beat_that_is_no_file(tmp_path: Path, kind: str) -> None:
    NO_FILES[kind](tmp_path / "7.beat")
    with pytest.raises(StorageError, match=f"7.beat was not written: it is {kind}"):
        generations.write_small(str(tmp_path / "7.beat"), {"beat": 1})
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_record_of_a_break_that_is_no_file_is_named(tmp_path: Path, kind: str) -> None:
    with open_provider(f"file://{tmp_path}", env=FakeEnvironment()) as mine:
        mine.acquire(KEY, wait_s=0).release()
        NO_FILES[kind](Path(generations.key_folder(str(tmp_path), KEY), "00000000000000000001.broken"))
        with pytest.raises(StorageError, match=f"it is {kind}"):
            mine.breaks(KEY)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"token": "x"}', '{"token": 1, "reason": 2}', "[" * 100_000])
def test_a_record_of_a_break_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    with open_provider(f"file://{tmp_path}", env=FakeEnvironment()) as mine:
        mine.acquire(KEY, wait_s=0).release()
        Path(generations.key_folder(str(tmp_path), KEY), "00000000000000000001.broken").write_text(text)
        assert mine.breaks(KEY) == ()


def test_a_record_of_any_size_is_read_no_further_than_records_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(generations.os, "pread", lambda fd, size, at: asked.append(size) or _pread(fd, size, at))
    with open_provider(f"file://{tmp_path}?lease=30s", env=(environment := FakeEnvironment())) as mine:
        mine.acquire(KEY, wait_s=0).release()
        folder = Path(generations.key_folder(str(tmp_path), KEY))
        for name in ("00000000000000000009", "00000000000000000009.beat"):
            (folder / name).touch()
            os.truncate(folder / name, 1 << 40)
        assert mine.try_acquire(KEY) is None  # as of every record that says nothing, by our own lease
        environment.advance(31)
        with mine.acquire(KEY, wait_s=0) as lease:
            assert lease.token == 10
    assert max(asked) <= 1 << 16


@pytest.mark.parametrize("digit", ["\u00b2", "\u0663", "\uff11", "\u2460"])
def test_names_with_digits_of_other_scripts_are_no_generations(tmp_path: Path, digit: str) -> None:
    with open_provider(f"file://{tmp_path}", env=FakeEnvironment()) as mine:
        mine.acquire(KEY, wait_s=0).release()
        folder = Path(generations.key_folder(str(tmp_path), KEY))
        (folder / (digit * 20)).touch()
        (folder / (digit * 20 + ".broken")).touch()
        for token in range(2, 20):  # some of them prune
            with mine.acquire(KEY, wait_s=0) as lease:
                assert lease.token == token
            assert mine.inspect(KEY) is None
        assert (folder / (digit * 20)).exists()


def test_a_vanished_folder_ends_the_lease_and_is_made_again(tmp_path: Path) -> None:
    env = FakeEnvironment()
    with open_provider(f"file://{tmp_path}/locks", env=env) as locks:
        lease = locks.acquire(KEY, wait_s=0)
        os.rename(tmp_path / "locks", tmp_path / "gone")
        with pytest.raises(LockLostError):
            lease.ensure_held(fresh=True)
        assert lease.release() is Release.WAS_LOST
        with locks.acquire(KEY, wait_s=0, token_above=40) as again:
            assert again.token == 41


def test_a_write_that_fails_while_holding_is_tried_again_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = FakeEnvironment()
    with open_provider(f"file://{tmp_path}", env=env) as locks:
        lease = locks.acquire(KEY, wait_s=0, lease_s=12)
        failing = monkeypatch.context()
        with failing as patch:
            patch.setattr(generations, "look", _no_answer)
            env.advance(9)
            lease.ensure_held()
            with pytest.raises(LockLostError, match="did not answer"):
                lease.ensure_held(fresh=True)
        env.advance(6)
        lease.ensure_held(fresh=True)  # the disk came back in time
        with monkeypatch.context() as patch:
            patch.setattr(generations, "look", _no_answer)
            env.advance(20)
        assert lease.lost == "unreachable"


def _no_answer(folder: str) -> generations.Newest:
    raise OSError(5, "Input/output error", folder)


def test_a_folder_without_atomic_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    with open_provider(f"file://{tmp_path}/here") as locks, pytest.raises(ConfigError, match=r"no atomic link\(\)"):
        locks.try_acquire(KEY)
    monkeypatch.setattr(os, "link", lambda *_: None)  # says yes to everybody
    with open_provider(f"file://{tmp_path}/there") as locks, pytest.raises(ConfigError, match="12 winners"):
        locks.try_acquire(KEY)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file")
    with open_provider(f"file://{tmp_path}/plain") as locks, pytest.raises(StorageError, match="Check space and perm"):
        locks.try_acquire(KEY)


def test_a_waiter_sits_out_an_outage_of_the_folder(tmp_path: Path) -> None:
    env = FakeEnvironment()
    folder, away = tmp_path / "locks", tmp_path / "away"
    with (
        open_provider(f"file://{folder}", env=env) as locks,
        open_provider(f"file://{folder}", env=env.peer()) as other,
    ):
        held = other.acquire("k", wait_s=0, lease_s=1000)
        steps = iter([lambda: folder.rename(away), lambda: away.rename(folder), held.release])

        def step() -> None:
            if (do := next(steps, None)) is not None:
                do()

        env.every(7, step, name="the folder goes, comes back, and the lock is given back")
        start = env.monotonic()
        with locks.acquire("k", wait_s=60) as lease:
            assert lease.token > held.token
        assert env.monotonic() - start >= 21


def test_an_outage_that_outlasts_the_wait_is_told_with_the_folder(tmp_path: Path) -> None:
    env = FakeEnvironment()
    folder = tmp_path / "locks"
    with (
        open_provider(f"file://{folder}", env=env) as locks,
        open_provider(f"file://{folder}", env=env.peer()) as other,
    ):
        other.acquire("k", wait_s=0, lease_s=1000)
        env.every(7, lambda: folder.exists() and folder.rename(tmp_path / "away"), name="the folder goes")
        start = env.monotonic()
        with pytest.raises(LockUnavailableError, match="does not answer") as caught:
            locks.acquire("k", wait_s=30)
        assert caught.value.retryable
        assert str(folder) in str(caught.value)
        assert env.monotonic() - start >= 30


def test_one_place_has_one_spelling(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    spellings = [f"file://{tmp_path}", f"file://{tmp_path}/", f"{tmp_path}/x/..", f"file://{tmp_path}/link"]
    assert {open_provider(spelling).url for spelling in spellings} == {f"file://{tmp_path}"}
    assert open_provider(f"file://{tmp_path}?lease=5000ms").url == f"file://{tmp_path}?lease=5s"


def test_waiters_that_gave_up_leave_one_sleeping_thread_at_most(tmp_path: Path) -> None:
    before = threading.active_count()
    first, second = open_provider(f"file://{tmp_path}"), _second_process(tmp_path)
    with first, second:
        lease = first.acquire(KEY, wait_s=1)
        for _ in range(5):
            with pytest.raises(LockTimeoutError):
                second.acquire(KEY, wait_s=0.01)
        assert threading.active_count() <= before + 2  # the renewer and the one that sleeps in the kernel
        lease.release()
        second.acquire(KEY, wait_s=5).release()


def _second_process(folder: Path) -> LockProvider:
    """A provider with a queue of its own, as another process would have."""
    return open_provider(f"file://{folder}", env=type(SYSTEM)())


def test_file_locks_are_opened_lazily(tmp_path: Path) -> None:
    open_provider(f"file://{tmp_path}/nothing/yet").close()
    assert not (tmp_path / "nothing").exists()
    assert str(tmp_path) not in file._checked


@pytest.mark.parametrize("below", ["", "/locks"])
def test_a_link_to_nothing_is_not_followed(tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(StorageError, match="link is a link to nothing, where a folder belongs"):
        open_provider(f"file://{tmp_path}/link{below}")
    assert [each.name for each in tmp_path.iterdir()] == ["link"]
    (tmp_path / "nowhere").mkdir()  # the link leads to a folder now, and the lock may make its own there
    with open_provider(f"file://{tmp_path}/link{below}") as locks, locks.acquire("k", wait_s=0) as lease:
        assert lease.lost is None
