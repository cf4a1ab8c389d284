"""The files of one key and their meaning. backend.py describes the protocol.

00000000000000000007            generation 7: the owner that was granted the key with token 7; never changed
00000000000000000007.beat       rewritten by the holder at each renewal; only "changed" counts
00000000000000000007.released   the holder has released it
00000000000000000007.broken     it was ended by `break_lease`: who and why; kept for ever
00000000000000000007.claim-...  the file that generation 7 was linked from; becomes .released
queue                           see kernel_queue.py
room                            until when we leave the lock to a JVM; see hudi_lock_file.py
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ...environment import Environment, Process
from ...storage.local import open_file
from ..core import fields_of
from ..interface import Release

KEEP = 8  # generations that stay, for people; any number above one is safe, and listings stay short
_PRUNE_EVERY = 8
is_generation = re.compile(r"[0-9]{20}").fullmatch  # whether a file's name is that of a generation
SMALL_BYTES = 1 << 16  # a record has a few hundred bytes
_DRIFT = 1.01  # an observer waits 1 % longer than the lease, since no two clocks run equally fast


def key_folder(root: str, key: str) -> str:
    """Return the path of a key's folder: a readable part and a hash that separates keys."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key).strip("._")[-40:] or "key"
    return os.path.join(root, f"{readable}-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}")


def generation_name(token: int) -> str:
    """Return the token in 20 digits, so that names sort as numbers do."""
    return f"{token:020d}"


@dataclass(frozen=True, slots=True)
class Record:
    """A generation file as found; every field has a neutral value, since a power cut can leave a file empty."""

    token: int
    key: str = ""
    owner: str = ""
    process: Process | None = None
    lease_s: float | None = None
    since: float = 0.0
    until: float | None = None
    reason: str = ""

    @classmethod
    def read(cls, folder: str, token: int) -> Record:
        """Parse what can be read."""
        value = read_json(os.path.join(folder, generation_name(token)))
        try:
            lease_s, since, until = float(value["lease_s"]), float(value["since"]), float(value["until"])
            if not math.isfinite(lease_s + since + until):  # nobody would ever follow a holder with such a lease
                return cls(token)
            return cls(
                token,
                str(value["key"]),
                str(value["owner"]),
                Process.from_json(value["process"]),
                lease_s,
                since,
                until,
                str(value["reason"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls(token)


@dataclass(frozen=True, slots=True)
class Newest:
    """The listing of a key's folder: the newest generation, whether a file says that it has ended, and all names."""

    token: int
    ended: bool
    broken: bool
    names: frozenset[str]


def look(folder: str) -> Newest:
    """List the folder once and find the newest generation.

    Raises `FileNotFoundError` when there is no folder.
    """
    names = frozenset(os.listdir(folder))
    newest = max(filter(is_generation, names), default="")
    broken = f"{newest}.broken" in names
    return Newest(int(newest or 0), not newest or broken or f"{newest}.released" in names, broken, names)


def read_beat(folder: str, token: int) -> bytes:
    """Return the holder's last sign of life as bytes; empty before its first renewal."""
    # Opened by name each time and never replaced: on NFS opening is what makes another client's write visible.
    return read_small(os.path.join(folder, generation_name(token) + ".beat")) or b""


class Observer:
    """The time that each holder has been silent, by this process's clock.

    It lives as long as its provider, so that one `try_acquire` now and one after the lease find an expired holder.
    """

    def __init__(self, env: Environment, lease_s: float) -> None:
        self._env = env
        self._lease_s = lease_s
        self._seen: dict[str, tuple[int, bytes, float]] = {}

    def has_ended(self, folder: str, record: Record) -> bool:
        """True when the holder is certainly dead, or was silent for its whole lease."""
        if record.process is not None and self._env.is_dead(record.process):
            return True
        before = self._env.monotonic()
        beat = read_beat(folder, record.token)
        token, last, since = self._seen.get(folder, (0, b"", 0.0))
        if (token, last) != (record.token, beat):
            # The clock is read after the beat: what was seen is older than this, never younger.
            self._seen[folder] = (record.token, beat, self._env.monotonic())
            return False
        lease_s = self._lease_s if record.lease_s is None else record.lease_s
        return before - since >= lease_s * _DRIFT


def claim(folder: str, token: int, value: dict[str, Any], nonce: str) -> str | None:
    """Create generation ``token``.

    Return the claim file's path, or None when the generation exists already.
    """
    target = os.path.join(folder, generation_name(token))
    path = f"{target}.claim-{nonce}"
    if put_if_absent(target, path, value):
        return path
    return None


def put_if_absent(
    target: str, temporary: str, value: dict[str, Any], *, flush: Callable[[int], None] | None = None
) -> bool:
    """Write ``temporary`` whole, then link it to ``target``. Keeps the temporary name only if it won.

    ``flush`` brings the open file to disk before it has the name.
    """
    done = False
    try:
        with open(temporary, "xb") as file:
            file.write(json.dumps(value).encode())
            if flush is not None:
                file.flush()
                flush(file.fileno())
        try:
            os.link(temporary, target)
            done = True
        except FileExistsError:
            # On NFS the reply to a link that was done can be lost and the repeated request says "exists".
            done = os.stat(temporary).st_nlink == 2
    finally:
        if not done:
            _unlink(temporary)
    return done


def release(folder: str, token: int, claim_path: str) -> Release:
    """Mark ``token`` as released. Never touches a newer generation: the marker has our number.

    Return WAS_LOST when the whole folder is gone.
    """
    marker = os.path.join(folder, generation_name(token) + ".released")
    try:
        os.rename(claim_path, marker)
    except FileNotFoundError:
        try:
            # The claim file may be pruned, or renamed by an earlier request whose reply was lost; then the marker
            # exists.
            os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            pass
        except FileNotFoundError:
            return Release.WAS_LOST  # the whole folder is gone
    return Release.RELEASED


def prune(folder: str, token: int) -> None:
    """Occasionally delete the files of old generations. Break records stay."""
    if token % _PRUNE_EVERY:
        return
    names = os.listdir(folder)
    kept = sorted(filter(is_generation, names))[-KEEP:]
    for name in names:
        if is_generation(name[:20]) and kept and name[:20] < kept[0] and not name.endswith(".broken"):
            _unlink(os.path.join(folder, name))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def read_small(path: str) -> bytes | None:
    """Return the bytes of a small file, of a larger one the beginning; None when there is none.

    Raises:
        StorageError: the path is a named pipe, a device or anything else that is not a file.
    """
    if (opened := open_file(path)) is None:
        return None
    fd, _ = opened
    try:
        return os.pread(fd, SMALL_BYTES, 0)
    finally:
        os.close(fd)


def write_small(path: str, value: dict[str, Any]) -> None:
    """Write the file in place, without a flush.

    Raises `FileNotFoundError` when there is no folder, otherwise the errors of `read_small`.
    """
    opened = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    if opened is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with os.fdopen(opened[0], "wb") as file:
        file.write(json.dumps(value).encode())


def read_json(path: str) -> dict[str, Any]:
    """Return the JSON object in the file, or {} when there is none."""
    return fields_of(read_small(path) or b"")
