"""Does this folder's file system have an atomic link()? Tried once per process and folder, before the first lock.

A file system without it (some FUSE and object-store mounts) would let two holders in, silently. The check takes about
a millisecond and can only race within this host; what other hosts see is up to the mount (file.py, NFS).
"""

from __future__ import annotations

import contextlib
import os
import threading

from ..environment import Environment
from ..errors import ConfigError


def check_link(folder: str, env: Environment) -> None:
    """Let four threads race for the same names: each name must have exactly one winner, else `ConfigError`.

    Real threads, whatever ``env`` is: it is the file system that is tried.
    """
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
            f"({errors[0] if errors else f'{len(wins)} winners for 3 names'}). Use a folder on a local disk or NFSv4.",
            folder=folder,
        )
