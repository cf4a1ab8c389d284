"""Things that are no file, put where one belongs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def _socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # the path itself may be longer than a socket's name
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


# In the words of the error that names it -> how to make it.
NO_FILES: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}
