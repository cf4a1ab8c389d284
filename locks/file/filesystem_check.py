"""Check that a folder can hold locks, once per process and folder, before the first lock.

A file system without an atomic link() (some FUSE and object-store mounts) would let two holders in, silently. The race
takes about a millisecond and shows what this host does. What other hosts see depends on the mount, so an NFS mount is
judged by its options:

    version 4        its locks and exclusive links survive a lost reply
    hard             with soft, a request that the server carries out later is reported as failed
    lookupcache      with the default, a host may miss the first sign of life of a holder on another host for a
                     minute, and take its lock
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable

from ...environment import Environment
from ...errors import ConfigError

_MOUNTS = "/proc/self/mountinfo"


def check_mount(folder: str, mountinfo: Iterable[str] | None = None) -> None:
    """Raise `ConfigError` for a folder on an NFS mount that cannot hold locks; ``mountinfo`` as in proc(5)."""
    if mountinfo is None:
        try:
            with open(_MOUNTS) as file:
                mountinfo = file.readlines()
        except OSError:
            return  # not Linux
    kind, options = _mount_of(os.path.realpath(folder), mountinfo)
    if not kind.startswith("nfs"):
        return
    names = {option.partition("=")[0] for option in options}
    wrong = []
    if not any(option.startswith("vers=4") for option in options):
        wrong.append("it is not version 4 (vers=4.2)")
    if names & {"soft", "softerr", "softreval"}:
        wrong.append("it gives up on a server that is slow (hard)")
    if "noac" not in names and not {"lookupcache=pos", "lookupcache=none"} & options:
        wrong.append("it remembers for long which files are absent (lookupcache=positive)")
    if wrong:
        raise ConfigError(
            f"The folder {folder} cannot hold locks as its NFS file system is mounted: {'; '.join(wrong)}. Mount it with "
            "the options in brackets, or use another lock",
            folder=folder,
        )


def _mount_of(path: str, mountinfo: Iterable[str]) -> tuple[str, set[str]]:
    """Return type and options of the file system that ``path`` is on; the last mount on the deepest mount point counts."""
    best, found = -1, ("", set[str]())
    for line in mountinfo:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 6 or len(kind) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]).rstrip("/")
        if len(point) >= best and (path + "/").startswith(point + "/"):
            best, found = len(point), (kind[0], {*kind[2].split(","), *fields[5].split(",")})
    return found


def check_link(folder: str, env: Environment) -> None:
    """Let four threads race for the same names: each name must have exactly one winner, else `ConfigError`.

    The threads are real whatever ``env`` is, because the file system is under test.
    """
    check_mount(folder)
    stem = os.path.join(folder, f".link-check-{env.uuid()}")
    names = [f"{stem}-{i}" for i in range(4)]
    wins: list[int] = []
    errors: list[OSError] = []

    def race(source: str) -> None:
        for turn in range(3):
            try:
                os.link(source, f"{stem}.{turn}")
                wins.append(turn)
            except FileExistsError:
                pass
            except OSError as e:
                errors.append(e)

    try:
        for name in names:
            with open(name, "xb"):
                pass
        racers = [threading.Thread(target=race, args=(name,)) for name in names]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
    finally:
        for name in [*names, *(f"{stem}.{turn}" for turn in range(3))]:
            with contextlib.suppress(OSError):
                os.unlink(name)
    if errors or sorted(wins) != [0, 1, 2]:
        raise ConfigError(
            f"The folder {folder} cannot hold locks: its file system has no atomic link() "
            f"({errors[0] if errors else f'{len(wins)} winners for 3 names'}). Use a folder on a local disk or NFSv4",
            folder=folder,
        )
