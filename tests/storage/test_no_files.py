"""A pipe, a device, a folder or a link to nothing where an object belongs: nobody waits for it, and all say what it is."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from lakelatch.errors import StorageError
from lakelatch.storage import Outcome
from lakelatch.storage.local import files as disk
from lakelatch.storage.local.store import LocalStore

from ..no_files import NO_FILES

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture
def store(tmp_path):
    store = LocalStore(tmp_path / "root")
    store.put("f/0", b"kept")
    return store


@pytest.mark.parametrize("kind", NO_FILES)
def test_no_file_is_named_by_whoever_wants_to_read_it(store, kind):
    NO_FILES[kind](Path(store.root, "f/1"))
    calls = [lambda: store.open("f/1").__enter__()]
    others = (store.get, store.body, store.head, store.secure)
    if kind == "a folder":  # of which an object store knows nothing, either
        assert [call("f/1") for call in others[:3]] == [None] * 3
        assert store.secure("f/1").outcome is Outcome.LOST
    else:
        calls += [partial(call, "f/1") for call in others]
    for call in calls:
        with pytest.raises(StorageError, match=f"f/1 was not read: it is {kind}, where a file belongs") as told:
            call()
        assert told.value.kind == kind
    assert store.no_files() == sorted([("f", "a folder"), ("f/1", kind)])


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("kind", NO_FILES)
def test_no_file_is_named_by_whoever_wants_to_put_one_there(store, kind, unnamed):
    store.unnamed_files = unnamed
    NO_FILES[kind](Path(store.root, "f/1"))
    before = os.lstat(Path(store.root, "f/1"))
    for durable in (True, "bytes", False):
        for body in (b"", b"body"):
            with pytest.raises(StorageError, match=f"f/1 was not written: it is {kind}"):
                store.put_if_absent("f/1", body, durable=durable)
    with store.create("f/1") as new:
        new.stream.write(b"x")
        with pytest.raises(StorageError, match=f"it is {kind}"):
            new.publish()
    if kind == "a folder":
        assert store.replace_if_match("f/1", b"x", "a tag").outcome is Outcome.LOST
    else:
        with pytest.raises(StorageError, match=f"it is {kind}"):
            store.replace_if_match("f/1", b"x", "a tag")
    assert os.path.samestat(os.lstat(Path(store.root, "f/1")), before)
    assert not Path(store.root, "f/nowhere").exists()
    assert store.put_if_absent("f/2", b"x").done
    assert store.put_if_absent("f/2", b"y").outcome is Outcome.LOST


@pytest.mark.parametrize("kind", NO_FILES)
def test_no_file_ends_no_listing(store, kind):
    """It is listed under its name, so that nobody takes it for absent; a folder is none of the objects."""
    NO_FILES[kind](Path(store.root, "f/1"))
    expected = ["0"] if kind == "a folder" else ["0", "1"]
    assert store.names("f") == expected
    assert [each.name for each in store.list("f")] == expected
    assert [each.name for each in store.list("", recursive=True)] == expected
    assert store.folders("") == ["f"]
    assert "f" not in store.empty_folders()


def test_a_link_to_a_file_is_one(store):
    Path(store.root, "f/1").symlink_to("0")
    assert store.get("f/1").body == store.body("f/1") == b"kept"
    assert store.head("f/1").size == 4
    assert store.put_if_absent("f/1", b"x").outcome is Outcome.LOST


def test_what_is_larger_than_anything_that_is_read_as_a_whole_is_not_read(store, monkeypatch):
    os.truncate(Path(store.root, "f/0"), 1 << 42)
    for call in (store.get, store.body):
        with pytest.raises(StorageError, match="larger than anything"):
            call("f/0")
    monkeypatch.setattr(disk, "_READ_BYTES_MAX", 10)
    store.put("f/1", b"1234567890")
    store.put("f/2", b"12345678901")
    assert store.body("f/1") == b"1234567890"
    with pytest.raises(StorageError, match="larger than anything"):
        store.body("f/2")


def test_a_file_without_end_that_the_kernel_makes_up_is_not_read(store, monkeypatch):
    """Its size is said to be nought."""
    monkeypatch.setattr(disk, "_READ_BYTES_MAX", 100)
    Path(store.root, "f/1").symlink_to("/proc/self/status")
    with pytest.raises(StorageError, match="larger than anything"):
        store.body("f/1")


def test_folders_nested_deeper_than_a_path_can_say_are_one_of_our_errors(store):
    """Made by steps from folder to folder; a listing that calls itself would end with a RecursionError."""
    here = os.open(store.root, os.O_RDONLY)
    try:
        for _ in range(2100):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    calls = (
        lambda: store.list("", recursive=True),
        lambda: store.names("", recursive=True),
        store.empty_folders,
        store.no_files,
        lambda: store.folders(""),
    )
    try:
        for call in calls:
            with pytest.raises(StorageError, match="its path is longer than the system takes"):
                call()
    finally:  # from above, because nothing can remove it in one go
        top, aside = Path(store.root, "d"), Path(store.root, "aside")
        while (top / "d").exists():
            (top / "d").rename(aside)
            top.rmdir()
            aside.rename(top)


def test_a_link_into_a_folder_that_may_not_be_read_is_not_taken_for_no_folder(store, monkeypatch):
    """It may be a partition, whose rows would be missing in silence."""
    Path(store.root, "p").symlink_to("f")

    class Item:
        def __init__(self, item):
            self.name, self.path, self._item = item.name, item.path, item

        def is_file(self, *, follow_symlinks):
            return self._item.is_file(follow_symlinks=follow_symlinks)

        def is_dir(self, *, follow_symlinks=True):
            if follow_symlinks and self.name == "p":
                raise PermissionError(13, "Permission denied")
            return self._item.is_dir(follow_symlinks=follow_symlinks)

    scan = LocalStore._scan
    monkeypatch.setattr(LocalStore, "_scan", lambda self, folder: [Item(each) for each in scan(self, folder)])
    with pytest.raises(StorageError, match=r"Permission denied.*Give this user permission"):
        store.list("", recursive=True, hidden=False)


# What a process or a file system has none of any more ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENOMEM, "memory"),
        (errno.EDQUOT, "quota"),
        (errno.ENOSPC, "Make room"),
    ],
)
def test_what_is_missing_is_told_by_every_call(store, monkeypatch, code, step):
    tag = store.get("f/0").tag

    def refused(*_args, **_options):
        raise OSError(code, os.strerror(code))

    calls = {
        "get": lambda: store.get("f/0"),
        "body": lambda: store.body("f/0"),
        "open": lambda: store.open("f/0").__enter__(),
        "put_if_absent": lambda: store.put_if_absent("f/1", b"x"),
        "put nothing": lambda: store.put_if_absent("f/1", b""),
        "put": lambda: store.put("f/1", b"x"),
        "replace": lambda: store.replace_if_match("f/0", b"x", tag),
        "secure": lambda: store.secure("f/0"),
        "delete": lambda: store.delete("f/0"),
        "create": lambda: store.create("f/1").__enter__(),
        "sync": lambda: store.sync("f"),
    }
    monkeypatch.setattr(os, "open", refused)
    for name, call in calls.items():
        with pytest.raises(StorageError, match=step):
            call()
        assert name
    monkeypatch.undo()
    monkeypatch.setattr(os, "scandir", refused)
    monkeypatch.setattr(os, "listdir", refused)
    for call in (lambda: store.list("f"), lambda: store.names("", recursive=True), lambda: store.folders("")):
        with pytest.raises(StorageError, match=step):
            call()
    monkeypatch.undo()
    assert store.body("f/0") == b"kept"


def test_a_process_that_may_open_no_more_files_while_it_replaces_one_does_not_go_on_without_the_lock(
    store, monkeypatch
):
    tag, real = store.get("f/0").tag, os.open

    def refused(path, flags, *more, **options):
        if flags & os.O_NOFOLLOW and str(path).endswith("f/0"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StorageError, match="ulimit -n"):
        store.replace_if_match("f/0", b"new", tag)
    assert store.body("f/0") == b"kept"


def test_inodes_that_are_used_up_are_told_apart_from_space(store, monkeypatch):
    def refused(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    full = os.statvfs_result((4096, 4096, 100, 50, 50, 1000, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StorageError, match=r"no free inodes \(df -i\)"):
        store.put("f/1", b"x")
