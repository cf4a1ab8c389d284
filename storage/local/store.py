"""A folder on local disk (or a file system shared by hosts that has hard links), by native calls.

An object appears whole or not at all because its bytes are written to a file without a name, which then gets its
name by `link`: the one call that fails when the name is taken. Replacing goes by `rename`, under a lock on the folder.

    t=0  A links 0007 (its bytes are on disk already)        t=1  B finds 0007 taken: LOST
    t=2  A flushes the folder; a power cut before this may forget the name, after this nothing does
    t=3  B appends 0008 and flushes the same folder, which makes 0007 durable as well, even if A is dead

A flush that fails is not repaired by another one: the kernel may have dropped what it could not write, and then has nothing
left to flush (fsync(2); since Linux 4.13 every open descriptor gets the error once). So the put's answer is UNKNOWN, and
only `secure`, which writes the object again, makes it DONE.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from typing import IO, TypeVar

from ...errors import InputError, StorageError
from ..interface import Durable, Entry, Outcome, Put, Stored
from ..location import check_path, parse
from .files import (
    HASHED_BYTES_MAX,
    TEMP_PREFIX,
    Flush,
    NewFile,
    Settled,
    alone,
    create_empty,
    exclusive,
    folder_of,
    make_folder,
    open_file,
    other_kind,
    read,
    refuse,
    refuse_other_kinds,
    settled,
    sync_folder,
    tag_of,
    temporary,
    unnamed,
)
from .turn import turn

__all__ = ["LocalStore"]

_Read = TypeVar("_Read")

_TABLE = ".hoodie"
_TEMP_FOLDER = ".hoodie/.lakelatch/tmp"
_TURNS = f".hoodie/.lakelatch/{TEMP_PREFIX}turns"
# Folders of our own are removed with their last object, or each transaction would leave empty ones behind for ever.
# Other folders stay: JVM Hudi expects some of its own to exist.
_MARKERS = ".hoodie/.temp/"
_PRUNED_BELOW = (_MARKERS, ".hoodie/.lakelatch/", ".lakelatch-probe-")


class LocalStore:
    """The objects below one folder. Keeps nothing open, so it pickles and survives fork."""

    unnamed_files = True  # try O_TMPFILE first; a subclass for a file system that lacks it may spare the attempt

    def __init__(self, root: str | os.PathLike[str], *, flush: Flush = os.fsync) -> None:
        place = parse(os.path.abspath(root))
        self.root = place.path
        self.url = place.url
        self._flush = flush

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def uri(self, path: str) -> str:
        return f"file://{self._full(path, folder=True)}"

    def hadoop_options(self) -> dict[str, str]:
        return {}

    # Writing -----------------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        full = self._full(path)
        if not body:
            return create_empty(full, durable, self._flush)
        with turn(f"{self.root}/{_TURNS}", path) if durable else nullcontext():
            if os.path.lexists(full):  # saves a flush; the link below decides
                refuse_other_kinds(full, "was not written")
                return Put(Outcome.LOST)
            with self._filled(full, body, durable) as new:
                return new.publish(durable=durable)

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:
        return settled(body, self._new(self._full(f"{folder}/settled"), "bytes"))

    @contextmanager
    def create(self, path: str) -> Iterator[NewFile]:
        with self._new(self._full(path), durable=True) as new:
            yield new

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        with self._named(path, body, durable) as temp, temp.naming(durable) as folder:
            with exclusive(folder_of(temp.full), required=False, make=True):
                temp.replace()
            return temp.done(folder)

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        if not self._has(path, tag):
            return Put(Outcome.LOST)  # without writing anything first
        with self._named(path, body, durable=True) as temp, temp.naming(durable=True) as folder:
            with alone(temp.full, required=True, make=True):
                if not self._has(path, tag) or not temp.take_place():
                    return Put(Outcome.LOST)
            return temp.done(folder)

    def secure(self, path: str) -> Put:
        full = self._full(path)
        if (opened := _open_to_read(full)) is None:
            return Put(Outcome.LOST)
        fd = opened[0]
        try:
            with temporary(full, self._temp_folder, True, self._flush) as temp:
                temp.copy(fd)
                temp.settle(True)
                with temp.naming(True) as folder:
                    with alone(full, required=False, make=True):
                        if not _is(fd, full) or not temp.take_place():
                            return Put(Outcome.LOST)
                    return temp.done(folder)
        finally:
            os.close(fd)

    def delete(self, path: str) -> Outcome:
        full = self._full(path)
        self._refuse_links(path)
        try:
            # A marker that is an object of its own is never replaced, so its deletion needs no lock.
            direct = path.startswith(_MARKERS) and ".marker." in path
            with nullcontext() if direct else alone(full, required=False):
                os.unlink(full)
        except (FileNotFoundError, NotADirectoryError):
            return Outcome.DONE
        except OSError as error:
            refuse(error, full, "was not deleted")
        self._prune(folder_of(path))
        return Outcome.DONE

    def sync(self, folder: str) -> None:
        full = self._full(folder, folder=True)
        try:
            sync_folder(full, self._flush)
        except FileNotFoundError:
            pass
        except OSError as error:
            refuse(error, full, "was not flushed")

    # Reading -----------------------------------------------------------------------------------------------------

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        return self._read(path, lambda body, found: Stored(body[:bytes_max], tag_of(found, body)), bytes_max)

    def body(self, path: str) -> bytes | None:
        return self._read(path, lambda body, _: body)

    def head(self, path: str) -> Entry | None:
        full = self._full(path)
        try:
            found = os.stat(full)
        except (FileNotFoundError, NotADirectoryError):
            refuse_other_kinds(full, "was not read")
            return None
        except OSError as error:
            refuse(error, full, "was not read")
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            refuse_other_kinds(full, "was not read")
        return Entry(path, found.st_size, found.st_mtime)

    @contextmanager
    def open(self, path: str, *, size: int | None = None) -> Iterator[IO[bytes]]:  # noqa: ARG002 - the system knows it
        full = self._full(path)
        if (opened := _open_to_read(full)) is None:
            refuse(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), full, "was not read")
        with os.fdopen(opened[0], "rb") as stream:
            yield stream

    def list(
        self,
        folder: str,
        *,
        after: str = "",
        recursive: bool = False,
        hidden: bool = True,
        sized: Callable[[str], bool] | None = None,
    ) -> builtins.list[Entry]:
        folder = check_path(folder, folder=True)
        start = len(folder) + 1 if folder else 0
        found: builtins.list[Entry] = []
        for path, item in self._walk(folder, recursive=recursive, hidden=hidden):
            if path[start:] > after:
                if sized is not None and not sized(item.name):
                    found.append(Entry(path, -1, 0))
                    continue
                try:
                    # `suppress` would take half as long as the rest: there may be a hundred thousand.
                    info = item.stat()
                except OSError as error:
                    if not item.is_symlink():
                        if isinstance(error, FileNotFoundError):
                            continue  # gone since the folder was read
                        refuse(error, item.path, "was not listed")
                    # A dangling link: a read of it reports that.
                    info = item.stat(follow_symlinks=False)
                found.append(Entry(path, info.st_size, info.st_mtime))
        return sorted(found, key=attrgetter("path"))

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        folder = check_path(folder, folder=True)
        start = len(folder) + 1 if folder else 0
        found = (path[start:] for path, _ in self._walk(folder, recursive=recursive))
        return sorted(name for name in found if name > after)

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        folder = check_path(folder, folder=True)
        full = self._below(folder)
        try:
            # Usually missing or empty: every commit asks for newer epochs of the log.
            names = os.listdir(full)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            refuse(error, full, "was not listed")
        wanted = sorted(name for name in names if name > after and not name.startswith(TEMP_PREFIX))
        return [n for n in wanted if os.path.isdir(f"{full}/{n}") and self._holds(_join(folder, n))]

    def empty_folders(self) -> builtins.list[str]:
        """Return the folders that hold no file at any depth; object stores have none, so `Store` has no such call."""
        seen, holding, waiting = builtins.list[str](), set[str](), [""]
        while waiting:
            seen.append(folder := waiting.pop())
            below = [(each.name, each.is_dir(follow_symlinks=False)) for each in self._scan(folder)]
            waiting += [_join(folder, name) for name, is_folder in below if is_folder]
            if not all(is_folder for _, is_folder in below):
                while folder and folder not in holding:
                    holding.add(folder)
                    folder = folder_of(folder)
        return sorted(each for each in seen if each and each not in holding)

    def no_files(self) -> builtins.list[tuple[str, str]]:
        """Return path and kind, in words, of everything that is not a file, folders too; object stores have none of it."""
        found, waiting = builtins.list[tuple[str, str]](), [""]
        while waiting:
            folder = waiting.pop()
            for item in self._scan(folder):
                path = _join(folder, item.name)
                if item.is_dir(follow_symlinks=False):
                    waiting.append(path)
                if not item.is_file(follow_symlinks=False) and (kind := other_kind(f"{self.root}/{path}")):
                    found.append((path, kind))
        return sorted(found)

    # Inside ------------------------------------------------------------------------------------------------------

    def _full(self, path: str, *, folder: bool = False) -> str:
        path = check_path(path, folder=folder)
        return f"{self.root}/{path}" if path else self.root

    def _below(self, path: str) -> str:
        """Return the full path of one that was checked, or that a listing gave."""
        return f"{self.root}/{path}" if path else self.root

    def _refuse_links(self, path: str) -> None:
        """Raise `InputError` when the path leads through a symbolic link below the root.

        Such files do not belong to the table. The root and ``.hoodie`` may be links.
        """
        folders = path.split("/")[:-1]
        for depth in range(2 if folders[:1] == [_TABLE] else 1, len(folders) + 1):
            folder = "/".join(folders[:depth])
            if os.path.islink(f"{self.root}/{folder}"):
                raise InputError(
                    f"{path} was not deleted, because {folder} is a symbolic link and leads out of {self.root}; delete what "
                    "lies there yourself, or replace the link by a folder",
                    path=path,
                )

    def _scan(self, folder: str) -> builtins.list[os.DirEntry[str]]:
        full = self._below(folder)
        try:
            with os.scandir(full) as items:
                return [item for item in items if not item.name.startswith(TEMP_PREFIX)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            refuse(error, full, "was not listed")

    def _walk(self, folder: str, *, recursive: bool, hidden: bool = True) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield every file as (path, item), in no order."""
        waiting = [folder]
        while waiting:
            folder = waiting.pop()
            for item in self._scan(folder):
                path = _join(folder, item.name)
                # A link to a folder is not followed downwards: it may lead back up. A table's partition may be one.
                if item.is_file(follow_symlinks=False):
                    yield path, item
                elif _is_folder(item, follow=not (recursive and hidden)):
                    if recursive and (hidden or not item.name.startswith(".")):
                        waiting.append(path)
                elif not _is_folder(item, follow=True):
                    yield path, item
            # This much for the first level; below it a name with a dot is as good as any.
            hidden = True

    def _holds(self, folder: str) -> bool:
        # Stops at the first object: a folder of the log holds a thousand, and every commit asks.
        waiting = [folder]
        while waiting:
            folder = waiting.pop()
            full = self._below(folder)
            try:
                with os.scandir(full) as items:
                    for item in items:
                        if item.name.startswith(TEMP_PREFIX):
                            continue
                        if not item.is_dir(follow_symlinks=False):
                            return True
                        waiting.append(_join(folder, item.name))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                refuse(error, full, "was not listed")
        return False

    def _read(
        self, path: str, made: Callable[[bytes, os.stat_result], _Read], bytes_max: int | None = None
    ) -> _Read | None:
        full = self._full(path)
        if (opened := _open_to_read(full)) is None:
            return None
        fd, found = opened
        try:
            # The tag of a small object has its content in it.
            most = None if bytes_max is None else max(bytes_max, HASHED_BYTES_MAX)
            body = read(fd, found, full) if most is None or found.st_size <= most else os.pread(fd, most, 0)
            return made(body, found)
        except OSError as error:
            refuse(error, full, "was not read")
        finally:
            os.close(fd)

    def _has(self, path: str, tag: str) -> bool:
        now = self.get(path)
        return now is not None and now.tag == tag

    def _prune(self, folder: str) -> None:
        while folder.startswith(_PRUNED_BELOW):
            full = os.path.join(self.root, folder)
            try:
                with nullcontext() if folder.startswith(_MARKERS) else exclusive(full, required=False):
                    os.rmdir(full)
            except (OSError, StorageError):
                return  # not empty, or removed by another process
            folder = folder_of(folder)

    def _new(self, full: str, durable: Durable) -> AbstractContextManager[NewFile]:
        if self.unnamed_files:
            return unnamed(full, self._temp_folder, durable, self._flush)
        return temporary(full, self._temp_folder, durable, self._flush)

    @contextmanager
    def _filled(self, full: str, body: bytes, durable: Durable) -> Iterator[NewFile]:
        """Yield a new file that holds ``body``."""
        with body.taken() if isinstance(body, Settled) else nullcontext() as made:
            if made is not None:
                made.full = full
                yield made
                return
        with self._new(full, durable) as new:
            new.write(body)
            yield new

    @contextmanager
    def _named(self, path: str, body: bytes, durable: Durable) -> Iterator[NewFile]:
        """Yield a temporary file that holds ``body``, flushed if ``durable``."""
        with temporary(self._full(path), self._temp_folder, durable, self._flush) as temp:
            temp.write(body)
            temp.settle(durable)
            yield temp

    def _temp_folder(self, full: str) -> str:
        """Choose where the temporary file for ``full`` goes: in a table not beside it, where readers would meet it."""
        folder = folder_of(full)
        if os.path.isdir(os.path.join(self.root, _TABLE)):
            ours = os.path.join(self.root, _TEMP_FOLDER)
            make_folder(ours, None)
            # A link or rename cannot leave its file system.
            if os.stat(ours).st_dev == os.stat(folder).st_dev:
                return ours
        return folder


def _open_to_read(full: str) -> tuple[int, os.stat_result] | None:
    try:
        return open_file(full)
    except NotADirectoryError:
        return None
    except StorageError:
        # A folder is no object: an object store would find nothing there either.
        if os.path.isdir(full):
            return None
        raise
    except OSError as error:
        refuse(error, full, "was not read")


def _is_folder(item: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        return item.is_dir(follow_symlinks=follow)
    except OSError as error:
        # A link to itself, or a name that cannot be a path.
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            return False
        refuse(error, item.path, "was not listed")


def _is(fd: int, full: str) -> bool:
    """Return whether the open file is the one at that path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(full))
    except FileNotFoundError:
        return False


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
