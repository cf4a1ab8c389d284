"""What a power cut leaves of a folder: what has been flushed, and nothing of it that a failed flush has dropped.

The strictest disk that the manuals allow (fsync(2), and how Linux reports errors of writing back): a name or bytes that were to
be flushed when that failed stay away until they are written again, however often anybody flushes after that.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path


class PowerDisk:
    """Hand `flush` to a `LocalStore`; what is in the folder now is on disk.

    Attributes:
        flushed: the path of each flush so far, "" for a file without a name.
        fails: decides by the number of a flush (from 0 on) and its path whether it fails.
    """

    def __init__(self, root: Path) -> None:
        self._root, self.flushed = root, list[str]()
        self.fails: Callable[[int, str], bool] = lambda number, path: False
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # inode of a folder: name -> inode, whether a folder
        self._dropped: set[tuple[int, str, int]] = set()
        self._torn: set[int] = set()
        for folder, _, files in os.walk(root):
            self._names[os.stat(folder).st_ino] = _listed(folder)
            self._bytes |= {os.stat(p).st_ino: p.read_bytes() for p in (Path(folder, name) for name in files)}

    def flush(self, fd: int) -> None:
        path, found = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
        path = "" if path.endswith("(deleted)") else os.path.relpath(path, self._root)
        failing = self.fails(len(self.flushed), path)
        self.flushed.append(path)
        if stat.S_ISDIR(found.st_mode):
            self._flush_names(found.st_ino, _listed(fd), failing)
        elif failing:
            self._torn.add(found.st_ino)
        elif found.st_ino not in self._torn:
            self._bytes[found.st_ino] = os.pread(fd, found.st_size, 0)
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _flush_names(self, folder: int, there: dict[str, tuple[int, bool]], failing: bool) -> None:
        before = self._names.setdefault(folder, {})
        if failing:
            self._dropped |= {(folder, name, at[0]) for name, at in there.items() if before.get(name) != at}
            return
        lost = {name for name, at in there.items() if (folder, name, at[0]) in self._dropped}
        kept = {name: at for name, at in before.items() if name in lost}
        self._names[folder] = {name: at for name, at in there.items() if name not in lost} | kept

    def forget(self, path: Path) -> None:
        """The disk has lost this name."""
        del self._names[os.stat(path.parent).st_ino][path.name]

    def cut(self, to: Path) -> None:
        """Make a folder of what the disk has when the power comes back."""
        to.mkdir()
        self._restore(os.stat(self._root).st_ino, to)

    def _restore(self, folder: int, to: Path) -> None:
        for name, (inode, is_folder) in self._names.get(folder, {}).items():
            if is_folder:
                (to / name).mkdir()
                self._restore(inode, to / name)
            else:
                (to / name).write_bytes(self._bytes.get(inode, b""))


def _listed(folder: int | str) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as found:
        return {each.name: (each.inode(), each.is_dir(follow_symlinks=False)) for each in found}
