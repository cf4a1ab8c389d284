"""What only a local disk can do or suffer. The common promises are in test_store_contract.py."""

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError, StorageError
from lakelatch.storage import Outcome
from lakelatch.storage.local import files as disk
from lakelatch.storage.local import store as local
from lakelatch.storage.local import turn
from lakelatch.storage.local.files import TEMP_PREFIX
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.contention import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Flushes:
    """What a store flushes, as 'file' and 'folder', in order; ``act`` is what it flushes with."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.act = os.fsync

    def __call__(self, fd: int) -> None:
        self.act(fd)
        self.seen.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")


@pytest.fixture
def flushes() -> Flushes:
    return Flushes()


@pytest.fixture
def flushed(flushes) -> list[str]:
    return flushes.seen


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def store(request, tmp_path, flushes):
    store = LocalStore(tmp_path / "root", flush=flushes)
    store.unnamed_files = request.param
    return store


def files(folder) -> list[str]:
    """Every file on the disk, hidden ones too, which a listing might skip."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir())


def in_child(call) -> None:
    """Run ``call`` in a forked process, where it may limit itself; its failure is ours."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        except BaseException as error:
            os.write(write, repr(error).encode()[:4000])
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as said:
        assert not said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Nothing but whole objects is ever seen --------------------------------------------------------------------------


def test_a_partition_folder_never_holds_a_temporary_file_of_a_table(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    store = LocalStore(tmp_path)
    for store.unnamed_files in (True, False):
        with store.create("origin=JFK/a.parquet") as new:
            new.stream.write(b"x" * 100_000)
            new.stream.flush()
            assert os.listdir(tmp_path / "origin=JFK") == []
            assert store.list("", recursive=True) == []


def test_temporary_files_outside_a_table_are_hidden_and_not_listed(store):
    store.unnamed_files = False
    with store.create("folder/a.parquet") as new:
        new.stream.write(b"x")
        (name,) = os.listdir(Path(store.root, "folder"))
        assert name.startswith(TEMP_PREFIX)
        assert not name.endswith(".parquet")
        assert store.list("folder") == []
        assert store.folders("") == []
        new.publish()
    assert files(store.root) == ["folder/a.parquet"]


def test_nothing_is_left_beside_what_was_written(store):
    tag = store.put_if_absent("a", b"1").tag
    store.put_if_absent("a", b"2")
    store.replace_if_match("a", b"3", tag)
    store.replace_if_match("a", b"4", tag)
    store.put("a", b"5")
    assert files(store.root) == ["a"]


def test_a_link_that_is_forbidden_goes_the_slow_way(store, monkeypatch):
    """A sandbox, or a container without /proc."""
    real = os.link

    def link(source, target, **options):
        if source.startswith("/proc"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    put = store.put_if_absent("a/b", b"whole")
    assert put.done
    assert store.get("a/b").tag == put.tag
    assert store.put_if_absent("a/b", b"again").outcome is Outcome.LOST
    with store.create("a/large") as new:
        new.stream.write(b"x" * 3_000_000)
        assert new.publish().done
    assert store.head("a/large").size == 3_000_000
    assert files(store.root) == ["a/b", "a/large"]


def test_a_file_system_without_hard_links_is_refused(store, monkeypatch):
    def link(*_args, **_options):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match="no hard links"):
        store.put_if_absent("a", b"x")
    assert files(store.root) == []


def test_a_folder_removed_while_its_object_is_written_is_made_again(store):
    with store.create("folder/a") as new:
        new.stream.write(b"x")
        if store.unnamed_files:  # otherwise the temporary file keeps the folder
            os.rmdir(Path(store.root, "folder"))
        assert new.publish().done
    assert store.get("folder/a").body == b"x"


# Tags ------------------------------------------------------------------------------------------------------------


def test_every_write_has_another_tag_even_of_the_same_bytes(store):
    tags = [store.put_if_absent("a", b"same").tag]
    for _ in range(200):
        tags.append(store.replace_if_match("a", b"same", tags[-1]).tag)
        tags.append(store.put("a", b"same").tag)
        store.delete("a")
        tags.append(store.put_if_absent("a", b"same", durable=False).tag)
    assert len(set(tags)) == len(tags)


def test_a_foreign_writer_who_overwrites_in_place_changes_the_tag(store):
    tag = store.put("a", b"before").tag
    path = Path(store.root, "a")
    times = os.stat(path)
    path.write_bytes(b"after!")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # within one tick of the clock
    assert store.replace_if_match("a", b"x", tag).outcome is Outcome.LOST


# Flushing --------------------------------------------------------------------------------------------------------


def test_a_durable_write_flushes_the_bytes_before_the_name_and_new_folders(store, flushed):
    store.put_if_absent("first", b"x")
    flushed.clear()
    store.put_if_absent("a/b/c", b"x")
    assert sorted(flushed) == ["file", "folder", "folder", "folder"]  # the names of a, of b, and of c
    assert flushed[-2:] == ["file", "folder"]
    flushed.clear()
    tag = store.put("first", b"y", durable=True).tag
    assert flushed == ["file", "folder"]
    flushed.clear()
    assert store.replace_if_match("first", b"z", tag).done
    assert flushed == ["file", "folder"]


def test_a_write_that_need_not_be_durable_spares_the_flushes(store, flushed):
    store.put_if_absent("a/b", b"x", durable=False)
    store.put("a/c", b"x")
    assert flushed == []


@pytest.mark.parametrize("durable", [True, "bytes"])
def test_who_wants_a_name_that_is_being_flushed_waits_for_it_and_flushes_nothing(
    store, flushes, flushed, monkeypatch, durable
):
    for name in ("log/0", ".hoodie/.lakelatch/x"):
        store.put_if_absent(name, b"x")
    waits, go = threading.Event(), threading.Event()
    pauses = []

    def slow(fd):
        flushes.act = os.fsync
        waits.set()
        assert go.wait(PATIENCE_S)
        os.fsync(fd)

    def pause(seconds):
        pauses.append(seconds)
        go.set()  # the second is waiting; so the first goes on
        writer.join(PATIENCE_S)

    flushes.act = slow
    monkeypatch.setattr(
        turn, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=pause)
    )  # it has 20 ms, however busy we are
    writer = threading.Thread(target=LocalStore(store.root, flush=flushes).put_if_absent, args=("log/1", b"first"))
    writer.start()
    assert waits.wait(PATIENCE_S)
    flushed.clear()
    assert store.put_if_absent("log/1", b"second", durable=durable).outcome is Outcome.LOST
    assert len(pauses) == 1
    assert flushed == ["file", "folder"]  # of the first alone
    assert store.get("log/1").body == b"first"


def test_a_writer_that_was_suspended_in_its_turn_holds_up_nobody_for_long(store, monkeypatch):
    for name in ("log/0", ".hoodie/.lakelatch/x"):
        store.put_if_absent(name, b"x")
    clock = iter(range(10))
    monkeypatch.setattr(turn, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=time.sleep))
    with turn.turn(f"{store.root}/{local._TURNS}", "log/1"):
        assert store.put_if_absent("log/1", b"y").done
        assert store.delete("log/1") is Outcome.DONE


def test_nobody_waits_for_a_turn_where_a_sandbox_forbids_locks(store, monkeypatch):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    store.put_if_absent(".hoodie/.lakelatch/x", b"x")
    monkeypatch.setattr(turn, "byte_lock", forbidden)
    monkeypatch.setattr(
        turn, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits"))
    )
    assert store.put_if_absent("log/1", b"y").done


def test_markers_are_deleted_without_waiting_for_the_folder(store):
    store.put_if_absent(".hoodie/.temp/1/p/a.marker.CREATE", b"", durable=False)
    with disk.exclusive(f"{store.root}/.hoodie/.temp/1/p", required=True):
        assert store.delete(".hoodie/.temp/1/p/a.marker.CREATE") is Outcome.DONE
    assert not os.path.exists(f"{store.root}/.hoodie/.temp/1")


_STOPPED = """
import os, signal, sys
from lakelatch.storage.local import LocalStore

class Stops(LocalStore):
    looks = 0
    def _has(self, path, tag):
        found = super()._has(path, tag)
        self.looks += 1
        if self.looks == 2:  # under the lock
            os.kill(os.getpid(), signal.SIGSTOP)
        return found

store = Stops(sys.argv[1])
put = store.replace_if_match("beats/stopped", b"2", store.get("beats/stopped").tag)
print(put.outcome.name, flush=True)
"""


@pytest.mark.process
def test_a_process_that_was_stopped_while_it_replaces_an_object_holds_up_no_other(store):
    for name in ("stopped", "other", "third"):
        store.put_if_absent(f"beats/{name}", b"1")
    with subprocess.Popen([sys.executable, "-c", _STOPPED, store.root], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert os.waitid(os.P_PID, child.pid, os.WSTOPPED).si_code == os.CLD_STOPPED
            began = time.monotonic()
            tag = store.get("beats/other").tag
            assert store.replace_if_match("beats/other", b"2", tag).done
            assert store.delete("beats/third") is Outcome.DONE
            assert store.delete("beats/stopped") is Outcome.DONE  # somebody has ended its transaction
            assert time.monotonic() - began < disk._LOCK_WAIT_S / 2
            child.send_signal(signal.SIGCONT)
            assert child.stdout.read().strip() == "LOST"
        finally:
            child.kill()
    assert files(store.root) == ["beats/other"], "a beat brought back what was deleted"


def test_settled_bytes_need_nothing_but_their_name(store, flushed):
    store.put_if_absent("a/old", b"x")
    with store.settled("a", b"body") as body:
        flushed.clear()
        assert store.put_if_absent("a/new", body, durable="bytes").done
        assert flushed == []
        assert store.put_if_absent("a/again", body).done  # their file has been used up
        assert flushed == ["file", "folder"]
    assert (store.body("a/new"), store.body("a/again")) == (b"body", b"body")
    assert files(store.root) == ["a/again", "a/new", "a/old"]


def test_settled_bytes_that_nobody_puts_in_time_leave_nothing(store):
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError), store.settled("a", b"body") as body:
        raise KeyError
    assert files(store.root) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert store.put_if_absent("a/late", body).done
    assert store.body("a/late") == b"body"


def test_bytes_that_could_not_be_settled_are_for_the_put_to_complain_of(store, flushes):
    def full(fd):
        raise OSError(errno.ENOSPC, "full")

    flushes.act = full
    store.put("a/old", b"x")
    with store.settled("a", b"body") as body, pytest.raises(StorageError, match="Make room"):
        store.put_if_absent("a/new", body)
    assert files(store.root) == ["a/old"]
    flushes.act = os.fsync
    with store.settled("a", b"body") as body:
        assert store.put_if_absent("a/new", body).done


# A flush fails ---------------------------------------------------------------------------------------------------


def failing(flushes: Flushes, *kinds: str, times: int = 1) -> None:
    """The next flushes of these kinds fail."""
    left = [times]

    def fail(fd: int) -> None:
        if left[0] and ("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file") in kinds:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(fd)

    flushes.act = fail


def test_a_failed_flush_of_the_bytes_means_nothing_was_written(store, flushes):
    store.put("other", b"x")
    failing(flushes, "file")
    with pytest.raises(StorageError, match="not written"):
        store.put_if_absent("a", b"x")
    assert files(store.root) == ["other"]


@pytest.mark.parametrize("body", [b"x", b""])
def test_a_failed_flush_of_the_name_is_unknown(store, flushes, body):
    store.put("other", b"x")
    failing(flushes, "folder")
    put = store.put_if_absent("a", body)
    assert put.outcome is Outcome.UNKNOWN
    assert "not flushed" in put.cause


def test_an_empty_object_that_is_there_and_could_not_be_flushed_is_unknown(store, flushes):
    store.put("other", b"x")
    failing(flushes, "file")
    put = store.put_if_absent("a", b"")
    assert (put.outcome, store.body("a")) == (Outcome.UNKNOWN, b"")


def test_a_folder_whose_name_could_not_be_flushed_does_not_count_as_made(store, flushes, flushed):
    store.put("other", b"x")
    failing(flushes, "folder")
    with pytest.raises(StorageError, match="not written"):
        store.put_if_absent("new/a", b"x")
    assert store.put_if_absent("new/a", b"x").done
    assert flushed == ["folder", "file", "folder"]


class TestSecure:
    """What was put and could not be flushed."""

    def test_it_is_written_anew_and_flushed_through_new_descriptors(self, store, flushes, flushed):
        store.put("other", b"x")
        failing(flushes, "folder")
        store.put_if_absent("a", b"body")
        before = os.stat(f"{store.root}/a").st_ino
        flushed.clear()
        put = store.secure("a")
        assert put.done
        assert put.tag == store.get("a").tag
        assert flushed == ["file", "folder"]
        assert os.stat(f"{store.root}/a").st_ino != before
        assert (store.body("a"), files(store.root)) == (b"body", ["a", "other"])

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_it_is_not_done_while_a_flush_fails(self, store, flushes, kind):
        store.put_if_absent("a", b"body")
        failing(flushes, kind)
        try:
            assert store.secure("a").outcome is Outcome.UNKNOWN
        except StorageError:
            assert kind == "file"
        assert store.body("a") == b"body"
        assert store.secure("a").done

    def test_nothing_is_brought_back_that_was_deleted_meanwhile(self, store, flushes):
        store.put_if_absent("a", b"body")
        flushes.act = lambda _: store.delete("a")
        assert store.secure("a").outcome is Outcome.LOST
        assert files(store.root) == []


# The disk refuses ------------------------------------------------------------------------------------------------


def fill(store) -> None:
    """Every way of writing is refused, in words, and changes nothing."""
    before = files(store.root)
    body = b"x" * 2_000_000
    tag = store.get("old").tag
    for write in (
        lambda: store.put_if_absent("p/new", body),
        lambda: store.put("old", body),
        lambda: store.replace_if_match("old", body, tag),
    ):
        with pytest.raises(StorageError, match=r"was not written: .* run it again") as caught:
            write()
        assert caught.value.path.startswith(store.root)
    with pytest.raises(StorageError, match="run it again"), store.create("p/stream") as new:
        new.stream.writelines([body[:10_000]] * 200)
    assert files(store.root) == before
    assert store.get("old").body == b"kept"


def test_a_file_size_limit_leaves_the_old_objects_whole(store):
    store.put("old", b"kept")

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        fill(store)

    in_child(limited)


@contextmanager
def small_disk(folder: Path):
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root; the file size limit is tested instead")
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_leaves_the_old_objects_whole(tmp_path, unnamed):
    with small_disk(tmp_path / "disk") as folder:
        store = LocalStore(folder / "table")
        store.unnamed_files = unnamed
        store.put("old", b"kept")
        fill(store)


def test_permission_denied_says_what_to_do(store):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        inner = LocalStore(f"{folder}/root")
        inner.unnamed_files = store.unnamed_files
        inner.put("secret", b"kept")
        os.chmod(f"{folder}/root/secret", 0)
        os.chmod(f"{folder}/root", 0o555)

        def as_nobody():
            if os.geteuid() == 0:
                os.seteuid(65534)
            for call in (
                lambda: inner.put_if_absent("new", b"x"),
                lambda: inner.put_if_absent("folder/new", b"x"),
                lambda: inner.put("secret", b"x"),
                lambda: inner.delete("secret"),
                lambda: inner.get("secret"),
            ):
                with pytest.raises(StorageError, match=r"Permission denied.*Give this user permission"):
                    call()
            with pytest.raises(StorageError, match="Permission denied"), inner.create("new"):
                pass

        in_child(as_nobody)
        os.chmod(f"{folder}/root", 0o755)
        assert files(inner.root) == ["secret"]


def test_a_name_that_is_too_long_is_bad_input(store):
    with pytest.raises(InputError, match="longer than the file system allows"):
        store.put_if_absent(f"p/{'x' * 300}", b"x")


def test_a_file_where_a_folder_is_needed_is_an_error_and_stays(store):
    store.put("a", b"kept")
    with pytest.raises(StorageError, match="is a file, where a folder belongs"):
        store.put_if_absent("a/b", b"x")
    assert store.get("a").body == b"kept"


# Crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_killed_writer_leaves_the_old_object_or_the_new_one(store):
    """kill -9 at whatever call it happens to be in, twenty-five times."""
    store.put("a", b"0" * 100_000)
    for _ in range(25):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            tag = store.get("a").tag
            for letter in range(10_000):
                tag = store.replace_if_match("a", bytes([65 + letter % 26]) * 100_000, tag).tag
                os.write(write, b".")
            os._exit(0)
        os.close(write)
        os.read(read, 1)  # it is at work
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        body = store.get("a").body
        assert len(body) == 100_000
        assert len(set(body)) == 1
        assert store.replace_if_match("a", b"0" * 100_000, store.get("a").tag).done  # the dead one's lock is free
    assert [entry.path for entry in store.list("", recursive=True)] == ["a"]


# Folders ---------------------------------------------------------------------------------------------------------


def test_our_own_folders_go_with_their_last_object_and_others_stay(tmp_path):
    store = LocalStore(tmp_path)
    for path in (".hoodie/.temp/T1/p/f.marker", ".hoodie/.lakelatch/log/1/0", ".hoodie/timeline/history/x", "p/data"):
        store.put(path, b"x")
        store.delete(path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert [path for path in left if "tmp" not in path] == [
        ".hoodie",
        ".hoodie/.lakelatch",
        ".hoodie/.temp",
        ".hoodie/timeline",
        ".hoodie/timeline/history",
        "p",
    ]


def test_a_link_that_leads_back_up_ends_the_listing(store):
    store.put("a/b", b"x")
    os.symlink(store.root, Path(store.root, "a", "loop"))
    assert [entry.path for entry in store.list("", recursive=True)] == ["a/b"]
    assert [entry.path for entry in store.list("a")] == ["a/b"]


names = st.text("abc-._09é", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))


@given(st.sets(names, max_size=12), names)
def test_after_is_a_cut_of_the_sorted_names(present, after):
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        for name in present:
            store.put(f"f/{name}", b"")
        expected = [name for name in sorted(present) if name > after]
        assert [entry.name for entry in store.list("f", after=after)] == expected
