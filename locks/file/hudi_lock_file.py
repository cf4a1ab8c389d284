"""Hudi's own lock file, `.hoodie/lock`, so that JVM writers with FileSystemBasedLockProvider and ours exclude each other.

The JVM (read in the classes of Hudi 1.2.0 and Hadoop 3.3, and seen) takes the lock by creating the file, usually empty,
and checks again every 5 s while it exists. It deletes the file to release, and again when it closes, even if another
writer owns it by then. It never renews; it deletes a stranger's file ``expire`` minutes after its last modification.
Its creation is not atomic on a local disk: it checks, then opens with truncation.

    t=0    the JVM sees no file
    t=0.1  we link ours, which has its content from the first moment
    t=0.2  the JVM opens the file and truncates it: it takes the lock for its own
    t=20   we read it again before we count as the holder: empty, so the JVM has it, and we withdraw (times in ms)

So our hold is proved by the content, read again after a moment and at each renewal. Each renewal also updates the
file's time, which keeps a JVM with ``expire`` from deleting it. A file whose content is not ours is the JVM's.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from datetime import datetime

from ...environment import Environment
from ...errors import ConfigError
from ...storage.local import open_file
from ..interface import Holder
from ..lock_url import LockUrl, format_duration, parse_duration
from . import generations as gen

_FILE = "lock"
EXPIRE_S_MIN = 60.0  # Hudi counts whole minutes
_SETTLE_S = 0.02  # longer than a JVM needs from its check to its open, or from unlock() to close(), unless it pauses
_TRIES = 3
_POLL_S = 6.0  # a JVM polls every 5 s by default, so no longer pause is needed


@dataclass(frozen=True, slots=True)
class Found:
    """The file as it was seen; ``token`` is None in a JVM's."""

    inode: int
    mtime_ns: int
    body: bytes

    @property
    def token(self) -> int | None:
        try:
            return int(json.loads(self.body)["lakelatch"]["token"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @property
    def token_of_jvm(self) -> int:
        """The number by which `break_lease` names a JVM's hold: negative, unlike our tokens, and different for every hold."""
        return -self.mtime_ns


def open_hudi_file(url: LockUrl, env: Environment) -> tuple[HudiLockFile | None, LockUrl]:
    """Return the file that the options of ``url`` name, or None, and the URL with its options in one spelling."""
    options = dict(url.options)
    if options.get("jvm", _FILE) != _FILE or (options and "jvm" not in options):
        raise ConfigError(
            f"The lock URL {url} is not understood: to share a lock with JVM writers, write jvm={_FILE} after the folder "
            "that they have in hoodie.write.lock.filesystem.path, and with it jvm_expire and jvm_pause if wanted",
            url=str(url),
        )
    if not options:
        return None, url
    times = {name: parse_duration(options[name], what=name) for name in ("jvm_expire", "jvm_pause") if name in options}
    expire_s = times.get("jvm_expire")
    if expire_s is not None and (expire_s < EXPIRE_S_MIN or expire_s % 60):
        raise ConfigError(
            f"jvm_expire={options['jvm_expire']} is not what JVM writers can have in hoodie.write.lock.filesystem.expire: "
            "it counts whole minutes; write 1m or more, or leave it out when they have 0",
            url=str(url),
        )
    hudi = HudiLockFile(os.path.join(url.path, _FILE), env, expire_s=expire_s, pause_s=times.get("jvm_pause"))
    hudi.check_lease(url.lease_s)
    spelled = {"jvm": _FILE} | {name: format_duration(value) for name, value in times.items()}
    return hudi, replace(url, options=spelled)


class HudiLockFile:
    """The file at ``path``.

    Only the holder of our own lock (backend.py) takes it, so our processes never race for it.
    """

    def __init__(self, path: str, env: Environment, *, expire_s: float | None, pause_s: float | None) -> None:
        self.path = path
        self.expire_s = expire_s
        self._env = env
        self._pause_s = pause_s

    def check_lease(self, lease_s: float) -> None:
        """Raise `ConfigError` unless the holder stops well before a JVM may delete its file as expired."""
        limit_s = (self.expire_s or EXPIRE_S_MIN) / 2
        if lease_s > limit_s:
            raise ConfigError(
                f"A lease of {lease_s:g} s on a lock shared through {self.path} may outlive the file: JVM writers delete "
                f"one of which they see no change for {2 * limit_s:g} s or more. Choose at most {limit_s:g} s, or set "
                "jvm_expire to what they have in hoodie.write.lock.filesystem.expire",
                lease_s=lease_s,
            )

    def jvm(self) -> Found | None:
        """Return the file if a JVM holds it now."""
        found = self._look(self.path)
        return None if found is None or found.token is not None or self._expired(found) else found

    def holder(self, key: str) -> Holder | None:
        """Describe a JVM's hold. The file shows only its start."""
        found = self.jvm()
        if found is None:
            return None
        since = found.mtime_ns / 1e9
        return Holder(
            key=key, owner="a JVM writer of Hudi", token=found.token_of_jvm, since=since,
            until=None if self.expire_s is None else since + self.expire_s, reason="", host="",
            details={"file": self.path},
        )  # fmt: skip

    def take(self, token: int, owner: str, aside: str) -> bytes | None:
        """Return the proof that the file is ours, or None when a JVM has it. ``aside`` is a free name in our folder.

        After `settle`, check with `held` that it still is.
        """
        value = {
            "lockCreateTime": datetime.fromtimestamp(self._env.now()).isoformat(" ", "milliseconds"),
            "lockThreadName": f"lakelatch {owner}", "lockStacksInfo": [], "lakelatch": {"v": 1, "token": token},
        }  # fmt: skip
        for _ in range(_TRIES):
            # Flushed: a power cut must not leave it empty, which would make it a JVM's and stop everybody.
            if gen.put_if_absent(self.path, aside, value, flush=os.fsync):
                os.unlink(aside)
                return json.dumps(value).encode()
            found = self._look(self.path)
            if found is None:
                continue
            left_over = found.token is not None and found.token < token
            if not left_over and not self._expired(found):
                return None
            self.remove(found, aside)
        return None

    def settle(self) -> None:
        """Wait long enough for a JVM that saw no file just before ours appeared to open it."""
        self._env.sleep(_SETTLE_S)

    def held(self, proof: bytes, *, touch: bool = False) -> bool:
        """Return True when the file exists and is ours; ``touch`` updates its time."""
        if (opened := open_file(self.path)) is None:
            return False
        fd = opened[0]
        try:
            if os.pread(fd, len(proof) + 1, 0) != proof:
                return False
            if touch:
                os.utime(fd)  # by descriptor: a JVM's file that stands there by now keeps its time
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False
        finally:
            os.close(fd)

    def give_back(self, proof: bytes, aside: str) -> bool:
        """Delete the file if it is ours. Return False when it was not."""
        found = self._look(self.path)
        return found is not None and found.body == proof and self.remove(found, aside)

    def remove(self, found: Found, aside: str) -> bool:
        """Delete the file as it was ``found``.

        A stranger's that has appeared meanwhile is put back; then return False.
        """
        gone = aside + ".gone"
        try:
            os.rename(self.path, gone)
        except FileNotFoundError:
            return False
        now = self._look(gone)
        same = now is not None and (now.inode, now.body) == (found.inode, found.body)
        if same:
            with contextlib.suppress(FileNotFoundError):  # Hadoop's checksum of a JVM's file
                os.unlink(os.path.join(os.path.dirname(self.path), f".{os.path.basename(self.path)}.crc"))
        else:
            with contextlib.suppress(FileExistsError):
                os.link(gone, self.path)
        os.unlink(gone)
        return same

    def leave_room(self, folder: str, held_s: float) -> None:
        """Ask our processes to leave the lock free for as long as it was held, so that a JVM's next poll can find it free."""
        pause_s = min(held_s, _POLL_S) if self._pause_s is None else self._pause_s
        room = {"v": 1, "until": self._env.now() + pause_s, "pause_s": pause_s}
        gen.write_small(os.path.join(folder, "room"), room)

    def is_room(self, folder: str) -> bool:
        """Return True while that pause lasts.

        Wall clocks are good enough: this is courtesy, and a jump of the clock ends it.
        """
        room = gen.read_json(os.path.join(folder, "room"))
        try:
            return 0 < float(room["until"]) - self._env.now() <= float(room["pause_s"])
        except (KeyError, TypeError, ValueError):
            return False

    def _expired(self, found: Found) -> bool:
        # Ours is touched every few seconds; one with no token to compare by is silent when a JVM would say so, too.
        limit_s = self.expire_s if found.token is None else EXPIRE_S_MIN
        return limit_s is not None and self._env.now() - found.mtime_ns / 1e9 > limit_s

    @staticmethod
    def _look(path: str) -> Found | None:
        if (opened := open_file(path)) is None:
            return None
        fd, stat = opened
        try:
            return Found(stat.st_ino, stat.st_mtime_ns, os.pread(fd, gen.SMALL_BYTES, 0))
        finally:
            os.close(fd)
