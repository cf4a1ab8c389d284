"""The system calls behind `LocalStore`: files that get their name last, folders, locks, flushes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import random
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

from ...errors import InputError, StorageError
from ..interface import Durable, Outcome, Put, stream_into

Flush = Callable[[int], None]  # `os.fsync`, or a test's function

TEMP_PREFIX = ".lakelatch-tmp-"
_RANDOM = random.SystemRandom()  # not the module's generator, which a program may have seeded
HASHED_BYTES_MAX = 1 << 20
_READ_BYTES_MAX = 0x7FFF_F000  # the most that one system call reads; Hudi begins another log file at half of that
_LOCK_WAIT_S = 30.0
_DELETE_WAIT_S = 1.0
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # From linux/fcntl.h and linux/fs.h.
# From linux/fs.h and fs/ext4/ext4.h.
_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x00020000
_SPREAD = {".hoodie", ".lakelatch"}

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_MORE_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}  # answers of kernels and file systems without O_TMPFILE
_NEXT_STEP = {
    errno.ENOSPC: "Make room on the disk and run it again",
    errno.EDQUOT: "Make room in the quota and run it again",
    errno.EFBIG: "Raise the limit on file size and run it again",
    errno.EACCES: "Give this user permission on the folder",
    errno.EPERM: "Give this user permission on the folder",
    errno.EROFS: "Mount the file system for writing",
    errno.EMFILE: "This process has as many files open as it may: raise its limit (ulimit -n), or close some",
    errno.ENFILE: "All processes of this host together have as many files open as they may: raise fs.file-max, or end some",
    errno.ENOMEM: "Free some memory and run it again",
}
# The kernel's answers for a path that is not a file; a folder on the way may be missing as well.
_MAYBE_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NewFile:
    """An open file on its way to the name ``full``; ``temp`` is its present name, or "" for none."""

    def __init__(self, full: str, fd: int, temp: str, temp_folder: Callable[[str], str], flush: Flush) -> None:
        self.full = full
        self.temp = temp
        self._fd = fd
        self._temp_folder = temp_folder
        self._flush = flush
        self._stream: IO[bytes] | None = None
        self._settled = False

    @property
    def stream(self) -> IO[bytes]:
        if self._stream is None:
            self._stream = stream_into(self._fd, lambda error: refuse(error, self.full, "was not written"))
        return self._stream

    def write(self, body: bytes) -> None:
        rest = memoryview(body)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            refuse(error, self.full, "was not written")

    def copy(self, fd: int) -> None:
        """Copy the content of another open file."""
        size, at = os.fstat(fd).st_size, 0
        try:
            while at < size:
                at += os.sendfile(self._fd, fd, at, size - at)
        except OSError as error:
            refuse(error, self.full, "was not written")

    def settle(self, durable: Durable) -> None:
        """Make the bytes final, once: stamped and, if ``durable``, on disk."""
        if self._settled:
            return
        try:
            if self._stream is not None:
                self._stream.close()
            stamp(self._fd)
            if durable:
                self._flush(self._fd)
            self._settled = True
        except OSError as error:
            refuse(error, self.full, "was not written")

    def publish(self, *, durable: Durable = True) -> Put:
        self.settle(durable)
        with self.naming(durable) as folder:
            try:
                (self._link_named if self.temp else self._link_unnamed)(durable)
            except FileExistsError:
                refuse_other_kinds(self.full, "was not written")
                return Put(Outcome.LOST)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise StorageError(
                        f"{self.full} was not written: this file system has no hard links ({error.strerror}), without "
                        "which writers cannot be kept apart. Put the table on one that has them, or into an object store",
                        path=self.full,
                    ) from error
                refuse(error, self.full, "was not written")
            return self.done(folder)

    @contextmanager
    def naming(self, durable: Durable) -> Iterator[int]:
        """Yield the descriptor by which `done` flushes the new name; -1 where that is not wanted.

        The folder is opened before the name is made. The kernel reports a failed flush only to processes that
        had the folder open then, and another process's failed flush may have lost our name.
        """
        if durable is not True:
            yield -1
            return
        folder = folder_of(self.full)
        try:
            make_folder(folder, self._flush)  # it may be new, or pruned while we wrote
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            refuse(error, self.full, "was not written")
        try:
            yield fd
        finally:
            os.close(fd)

    def replace(self) -> None:
        """Put the file at its path, replacing any object there. The caller holds the folder's lock."""
        try:
            os.rename(self.temp, self.full)
        except OSError as error:
            refuse(error, self.full, "was not written")
        self.temp = ""

    def take_place(self) -> bool:
        """Replace the object at the path. Return False when that was deleted meanwhile."""
        try:
            if not _exchange(self.temp, self.full):
                # No such call here: an object that was deleted in this moment comes back.
                self.replace()
        except FileNotFoundError:
            return False
        except OSError as error:
            refuse(error, self.full, "was not written")
        return True

    def done(self, folder: int) -> Put:
        """Flush the new name by the descriptor of `naming`, and return the answer."""
        if folder >= 0:
            try:
                if os.path.samestat(os.fstat(folder), os.stat(folder_of(self.full))):
                    self._flush(folder)
                else:
                    # Pruned meanwhile, and created again.
                    sync_folder(folder_of(self.full), self._flush)
            except OSError as error:
                cause = f"{self.full} is there, but its folder was not flushed: {error.strerror}"
                return Put(Outcome.UNKNOWN, cause=cause, unflushed=True)
        found = os.fstat(self._fd)
        body = os.pread(self._fd, found.st_size, 0) if found.st_size <= HASHED_BYTES_MAX else None
        return Put(Outcome.DONE, tag_of(found, body))

    def close(self) -> None:
        if self._stream is not None:
            with suppress(OSError, StorageError):  # unpublished bytes that the disk did not take
                self._stream.close()
        os.close(self._fd)

    def _link_unnamed(self, durable: Durable) -> None:
        """Give the file its name.

        ``src_dir_fd`` is needed: without it CPython calls link(), which does not follow the link in /proc.
        """
        try:
            os.link(f"/proc/self/fd/{self._fd}", self.full, src_dir_fd=self._fd, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno in _DISK_FULL | {errno.EROFS, errno.ENAMETOOLONG}:
                raise
            # No /proc, a sandbox that forbids this, or the folder was pruned while we wrote: the slow way decides.
            with temporary(self.full, self._temp_folder, durable, self._flush) as copy:
                copy.copy(self._fd)
                copy.settle(durable)
                copy._link_named(durable)
                # The answer's tag is that of the file that was linked.
                os.dup2(copy._fd, self._fd, inheritable=False)

    def _link_named(self, durable: Durable) -> None:
        try:
            os.link(self.temp, self.full)
        except FileNotFoundError:
            make_folder(folder_of(self.full), self._flush if durable else None)  # pruned while we wrote
            os.link(self.temp, self.full)
        except FileExistsError:
            # NFS repeats a request whose reply was lost, and the repetition finds our own link.
            if os.fstat(self._fd).st_nlink < 2:
                raise


@contextmanager
def unnamed(full: str, temp_folder: Callable[[str], str], durable: Durable, flush: Flush) -> Iterator[NewFile]:
    """Yield a file without a name, to be published as ``full``; a file with a hidden name where the system has no O_TMPFILE."""
    try:
        fd = _open_unnamed(folder_of(full), flush if durable else None)
    except OSError as error:
        refuse(error, full, "was not written")
    if fd < 0:
        with temporary(full, temp_folder, durable, flush) as new:
            yield new
        return
    new = NewFile(full, fd, "", temp_folder, flush)
    try:
        yield new
    finally:
        new.close()


@contextmanager
def temporary(full: str, temp_folder: Callable[[str], str], durable: Durable, flush: Flush) -> Iterator[NewFile]:
    """Yield a file with a hidden name, to be moved to ``full``; removed afterwards unless it was."""
    try:
        make_folder(folder_of(full), flush if durable else None)
        name = os.path.join(temp_folder(full), f"{TEMP_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        refuse(error, full, "was not written")
    new = NewFile(full, fd, name, temp_folder, flush)
    try:
        yield new
    finally:
        new.close()
        if new.temp:
            with suppress(OSError):  # cannot be removed: listings skip it
                os.unlink(new.temp)


def create_empty(full: str, durable: Durable, flush: Flush) -> Put:
    """Create an empty file if it is absent.

    Nothing in it can be torn, so it needs no temporary name: a tenth of the cost.
    """
    new = NewFile(full, -1, "", folder_of, flush)
    with new.naming(durable) as folder:
        try:
            while True:
                try:
                    new._fd = os.open(full, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
                    break
                except FileNotFoundError:
                    make_folder(folder_of(full), flush if durable else None)
        except FileExistsError:
            refuse_other_kinds(full, "was not written")
            return Put(Outcome.LOST)
        except OSError as error:
            refuse(error, full, "was not written")
        try:
            stamp(new._fd)
            if durable:
                flush(new._fd)
            return new.done(folder)
        except OSError as error:
            return Put(Outcome.UNKNOWN, cause=f"{full} is there, but was not flushed: {error.strerror}")
        finally:
            os.close(new._fd)


def _open_unnamed(folder: str, flush: Flush | None) -> int:
    """Open a file without a name in the folder, which is made if needed; -1 where the file system does not support it."""
    if not hasattr(os, "O_TMPFILE"):
        return -1
    while True:
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            make_folder(folder, flush)
        except OSError as error:
            if error.errno in _NO_UNNAMED and os.path.isdir(folder):
                return -1
            raise


def folder_of(full: str) -> str:
    """Return the folder of a path in canonical spelling, at a quarter of the cost of `os.path.dirname`."""
    return full.rpartition("/")[0]


def open_file(full: str, flags: int = os.O_RDONLY) -> tuple[int, os.stat_result] | None:
    """Open the file at the path, to read or with those flags, and return its stat too; None when the path is free.

    Never waits, as the plain call does for the other end of a named pipe. Raises `OSError` as `os.open` does.

    Raises:
        StorageError: the path is not a file.
    """
    what = "was not read" if flags == os.O_RDONLY else "was not written"
    try:
        fd = os.open(full, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_no_folder(full, what)
        if error.errno in _MAYBE_NO_FILE:
            refuse_other_kinds(full, what)
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            _refuse_kind(_KINDS.get(stat.S_IFMT(found.st_mode), "no file"), full, what)
        return fd, found
    except BaseException:
        os.close(fd)
        raise


def other_kind(full: str) -> str:
    """Return in words the kind of a path that is not a file or a link to one; "" for a file or a free path."""
    try:
        found = os.lstat(full)
        if stat.S_ISLNK(found.st_mode):
            found = os.stat(full)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(full) else ""
    except OSError as error:
        return "a link to itself" if error.errno == errno.ELOOP else ""
    return "" if stat.S_ISREG(found.st_mode) else _KINDS.get(stat.S_IFMT(found.st_mode), "no file")


def refuse_other_kinds(full: str, what: str) -> None:
    """Raise `StorageError` when the path exists and is not a file."""
    if kind := other_kind(full):
        _refuse_kind(kind, full, what)


def _refuse_kind(kind: str, full: str, what: str) -> NoReturn:
    raise StorageError(
        f"{full} {what}: it is {kind}, where a file belongs. Find out who made it, move it away, and run it again",
        path=full,
        kind=kind,
    )


def refuse_no_folder(full: str, what: str, *, itself: bool = False) -> None:
    """Raise `StorageError` when something else than a folder stands on the way to the path, or is the path ``itself``."""
    for folder in [str(each) for each in reversed(Path(full).parents)] + [full] * itself:
        kind = other_kind(folder) or ("a file" if os.path.isfile(folder) else "a folder")
        if kind != "a folder" and os.path.lexists(folder):
            raise StorageError(
                f"{full} {what}: {folder} is {kind}, where a folder belongs. Find out who made it, move it away, and run it "
                "again",
                path=full,
                kind=kind,
            )


def read(fd: int, found: os.stat_result, full: str) -> bytes:
    """Read the whole file, wherever the descriptor stands.

    Few system calls for a small file: every commit reads the log entries of all other writers.
    """
    if found.st_size > _READ_BYTES_MAX:
        raise _too_large(full)
    body = os.pread(fd, found.st_size + 1, 0)
    if len(body) != found.st_size:  # it grows, or the kernel generates its content, as in /proc
        pieces, size = [body], len(body)
        while size <= _READ_BYTES_MAX and (more := os.pread(fd, 1 << 20, size)):
            pieces.append(more)
            size += len(more)
        if size > _READ_BYTES_MAX:
            raise _too_large(full)
        body = b"".join(pieces)
    return body


def _too_large(full: str) -> StorageError:
    return StorageError(
        f"{full} was not read: it is larger than anything that is read as a whole. Restore it from a copy, or move it "
        "away if it does not belong there",
        path=full,
    )


def tag_of(found: os.stat_result, body: bytes | None) -> str:
    """Return the name of this version of the file, which changes with every write.

    Our writes: another inode, or at least another time (`stamp`). Others (JVM Hudi, an editor) may overwrite in place,
    within one tick of the kernel's clock and at the same size: therefore the content as well. Large objects are
    data files, which are never overwritten.
    """
    small = body is not None and max(len(body), found.st_size) <= HASHED_BYTES_MAX
    content = hashlib.blake2b(body or b"", digest_size=8).hexdigest() if small else ""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}-{content}"


def stamp(fd: int) -> None:
    """Add less than a millisecond to the file's time.

    The kernel's stamp is coarse (4 ms), and an inode is used again at once: delete and create would give one tag
    twice. The stamp itself stays the file server's, because heartbeats are judged by it.
    """
    found = os.fstat(fd)
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns + _RANDOM.randrange(1_000_000)))


def make_folder(folder: str, flush: Flush | None) -> None:
    """Make the folder and its parents; each new name is flushed, unless ``flush`` is None."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if parent != folder:
        make_folder(parent, flush)
    try:
        os.mkdir(folder)
        if os.path.basename(folder) in _SPREAD:
            _spread(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
    if flush is None:
        return
    try:
        # Also when another process made it: that one may not have got here yet.
        sync_folder(parent, flush)
    except OSError:
        with suppress(OSError):  # another process has put something into it already
            os.rmdir(folder)  # or the next process would find it and not flush its name
        raise


def _spread(folder: str) -> None:
    """Ask ext4 to put the folder's sub-folders into different block groups (``chattr +T``); others ignore it.

    ext4 does not use an inode again for a minute after its deletion, and scans every such inode of the group when it
    creates a file there. Markers and heartbeats come and go with every commit, so they should not share a group with the
    log and the timeline.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, _GET_FLAGS, flags)
        word = int.from_bytes(flags[:4], sys.byteorder) | _TOP_FOLDER
        fcntl.ioctl(fd, _SET_FLAGS, word.to_bytes(4, sys.byteorder) + bytes(4))
    except OSError:
        pass  # another file system, or not ours to set: it is only a hint
    finally:
        os.close(fd)


def sync_folder(folder: str, flush: Flush) -> None:
    """Flush the names in the folder to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(fd)
    finally:
        os.close(fd)


@contextmanager
def exclusive(folder: str, *, required: bool, make: bool = False) -> Iterator[None]:
    """Hold the folder's own flock, so that no object is replaced or deleted between another's read and its rename.

    The folder itself is locked and not a file in it: such a file would be one more thing for readers to meet, and
    could be deleted under its holder. The kernel frees the lock of a process that died. Where folders cannot be
    locked (NFS), conditional replacement is refused; puts and deletes, which need not exclude it then, continue.
    """
    fd = _open_locked(folder, fcntl.LOCK_EX, required, make)
    try:
        yield
    finally:
        os.close(fd)


@contextmanager
def alone(full: str, *, required: bool, make: bool = False) -> Iterator[None]:
    """Hold the flock of one object, so that it is not replaced or deleted between another's read and its rename.

    A suspended holder blocks this object only. All holders share the folder's flock, which keeps
    out `exclusive`, as earlier versions use it for everything. A delete (not ``required``) continues after a second:
    `NewFile.take_place` never brings a deleted object back.
    """
    folder = _open_locked(folder_of(full), fcntl.LOCK_SH, required, make)
    try:
        own = _open_own(full, required)
        try:
            yield
        finally:
            if own >= 0:
                os.close(own)
    finally:
        os.close(folder)


def _open_own(full: str, required: bool) -> int:
    """Return the object, locked; -1 when there is none that could be."""
    while True:
        try:
            fd = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            # Unlocked, one of two would overwrite what the other wrote.
            if required and error.errno in _NO_MORE_FILES:
                refuse(error, full, "was not written")
            return -1
        try:
            _flock(fd, full, fcntl.LOCK_EX, _LOCK_WAIT_S if required else _DELETE_WAIT_S)
            if os.path.samestat(os.fstat(fd), os.stat(full, follow_symlinks=False)):
                return fd  # locked, and not replaced while we waited
        except FileNotFoundError:
            pass
        except (OSError, StorageError):
            if not required:
                return fd
            os.close(fd)
            raise
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _open_locked(folder: str, how: int, required: bool, make: bool) -> int:
    while True:
        try:
            if make:
                make_folder(folder, None)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            refuse(error, folder, "could not be locked, so nothing was written")
        try:
            _flock(fd, folder, how, _LOCK_WAIT_S)
            if os.path.samestat(os.fstat(fd), os.stat(folder)):
                return fd  # locked, and not pruned or made again while we waited
        except OSError as error:
            if not required and not isinstance(error, FileNotFoundError):
                return fd
            os.close(fd)
            if isinstance(error, FileNotFoundError):
                if make:
                    continue
                raise
            raise StorageError(
                f"{folder} cannot be locked ({error.strerror}); replacing an object only if it is unchanged needs "
                "that. NFS has no locks on folders: keep the table on a local disk or in an object store",
                path=folder,
            ) from error
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _flock(fd: int, full: str, how: int, wait_s: float) -> None:
    """Take the lock, polling in ever longer steps: a holder needs microseconds, unless it was suspended."""
    give_up = time.monotonic() + wait_s
    pause_s = 0.0002
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise StorageError(
                    f"{full} has been locked by another process for {wait_s:.0f} s; nothing was written. "
                    "Look for a suspended process (fuser shows who has it open)",
                    path=full,
                ) from None
            time.sleep(pause_s * _RANDOM.uniform(0.5, 1.5))
            pause_s = min(pause_s * 1.5, 0.01)
        else:
            return


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _exchange(one: str, other: str) -> bool:
    """Swap two names at once. Return False where this system or file system cannot."""
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), other)


def refuse(error: OSError, full: str, what: str) -> NoReturn:
    """Raise the error for the store's caller, with the next step."""
    if error.errno == errno.ENAMETOOLONG:
        if what != "was not written":
            raise StorageError(
                f"{full} {what}: its path is longer than the system takes. Move what lies there out of the table",
                path=full,
                errno=error.errno,
            ) from error
        raise InputError(f"{full} {what}: a name in it is longer than the file system allows", path=full) from error
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        refuse_no_folder(full, what, itself=what == "was not listed")
    if error.errno in _MAYBE_NO_FILE:
        refuse_other_kinds(full, what)
    step = next_step(error, full) or "See the cause above"
    raise StorageError(f"{full} {what}: {error.strerror or error}. {step}", path=full, errno=error.errno) from error


def next_step(error: OSError, full: str) -> str:
    """Return the missing thing and the next step for a person; "" where they are not known. ``full`` is a path in question."""
    if error.errno == errno.ENOSPC and _no_inodes(folder_of(full)):
        return "The file system has room, but no free inodes (df -i): delete files that nobody needs, and run it again"
    return _NEXT_STEP.get(error.errno or 0, "")


def _no_inodes(folder: str) -> bool:
    """Return whether the file system is out of inodes; not every file system has a limit."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return bool(found.f_files) and not found.f_favail and bool(found.f_bavail)


# Write and flush bytes before the name of their file is known.
#
# A lock holder that flushes makes all others wait for the disk. An object's content is often known
# before its name. Then it is written and flushed first, and under the lock it only needs a link.


class Settled(bytes):
    """Bytes that a new file holds already, on disk, for the first put that takes it."""

    def __init__(self, _: bytes) -> None:
        self._files: list[tuple[NewFile, ExitStack]] = []

    @contextmanager
    def taken(self) -> Iterator[NewFile | None]:
        """Yield the file, closed afterwards; None when it has been taken."""
        try:
            file, closing = self._files.pop()  # in one step: a number of an open file must not be used by two
        except IndexError:
            yield None
            return
        with closing:
            yield file


@contextmanager
def settled(body: bytes, new: AbstractContextManager[NewFile]) -> Iterator[Settled]:
    """Yield the bytes, written into the new file and flushed.

    A failure here is not raised: the put writes the bytes itself and reports its own.
    """
    found = Settled(body)
    del body  # that of a large commit is not kept twice
    with suppress(StorageError), ExitStack() as stack:
        file = stack.enter_context(new)
        file.write(found)
        file.settle("bytes")
        found._files.append((file, stack.pop_all()))
    try:
        yield found
    finally:
        with found.taken():
            pass
