"""A held generation and a queue place for one; backend.py describes the protocol."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from ...environment import Environment
from ...errors import LockUnavailableError, StorageError
from ...storage.local import next_step
from ..core import LockRequest
from ..interface import Release
from . import generations as gen
from .hudi_lock_file import HudiLockFile
from .kernel_queue import KernelPlace

# How soon a waiter behind the head polls by itself, in case the head is paused; then less and less often, since many may
# wait, and each poll reads the holder's files.
_LOOK_S, _LOOK_S_MAX = 0.25, 2.0
_PAUSE_S_MIN = 0.004
_TURN_S = 0.03  # how long the lock may stay free before others than the head take it
_LASTING = {
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip


class FileGrant:
    """One generation, Hudi's file where it is shared with a JVM, and the place at the head of the queue if we had it."""

    place: FilePlace | None = None

    def __init__(
        self, folder: str, token: int, claim: str, ask: LockRequest, env: Environment, hudi: HudiLockFile | None
    ) -> None:
        self.token = token
        self._folder = folder
        self._claim = claim
        self._ask = ask
        self._env = env
        self._hudi = hudi
        self._proof: bytes | None = None
        self._since = env.monotonic()
        self._beats = 0

    def take_hudi(self) -> bool:
        """Take Hudi's file, if it is shared with a JVM. Return True when lock and file are ours now."""
        if self._hudi is None:
            return True
        self._proof = self._hudi.take(self.token, self._ask.owner, self._claim + ".hudi")
        if self._proof is None:
            return False
        self._hudi.settle()
        return self.check()

    def renew(self) -> bool:
        self._beats += 1
        beat = {"beat": self._beats, "until": self._env.now() + self._ask.lease_s}
        path = os.path.join(self._folder, gen.generation_name(self.token) + ".beat")
        with told(self._folder):
            try:
                gen.write_small(path, beat)
            except FileNotFoundError:
                return False  # the folder is gone
            return self._check(touch=True)  # after the beat, which any later read sees

    def check(self) -> bool:
        return self._check(touch=False)

    def _check(self, *, touch: bool) -> bool:
        with told(self._folder):
            if self._hudi is not None and (self._proof is None or not self._hudi.held(self._proof, touch=touch)):
                return False
            try:
                newest = gen.look(self._folder)
            except FileNotFoundError:
                return False
        return newest.token == self.token and not newest.ended

    def release(self) -> Release:
        outcome = Release.RELEASED
        with told(self._folder):
            try:
                # Hudi's file first: while it exists, the next holder recognises it as a leftover.
                if self._hudi is not None and not self._give_hudi_back(self._hudi):
                    outcome = Release.WAS_LOST
            finally:
                try:
                    if gen.release(self._folder, self.token, self._claim) is Release.WAS_LOST:
                        outcome = Release.WAS_LOST
                finally:
                    if self.place is not None:
                        self.place.leave()
            gen.prune(self._folder, self.token)
        return outcome

    def _give_hudi_back(self, hudi: HudiLockFile) -> bool:
        if self._proof is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            hudi.leave_room(self._folder, self._env.monotonic() - self._since)
        return hudi.give_back(self._proof, self._claim + ".hudi")

    def listen(self, call: Callable[[str], None]) -> None:
        """Do nothing: a folder sends no notifications."""


class FilePlace:
    """A waiter in the kernel queue, which polls where that queue is silent (another host, a paused head)."""

    def __init__(
        self, folder: str, kernel: KernelPlace, parked: dict[str, KernelPlace], env: Environment, lease_s: float
    ) -> None:
        self.folder = folder
        self._kernel = kernel
        self._parked = parked
        self._env = env
        self._look_s, self._look_s_max = min(_LOOK_S, lease_s / 10), min(_LOOK_S_MAX, lease_s / 10)
        self._pause_s, self._pause_s_max = min(_PAUSE_S_MIN, self._look_s), self._look_s
        self._waited = False
        self._free_after: int | None = None
        self._soon = False

    def may_try(self, ask: LockRequest) -> bool:
        """Return False for a newcomer while others stand in the kernel queue."""
        return self._kernel.enter() or self._waited or not ask.waits

    def may_take(self, ask: LockRequest, after: int) -> bool:
        """Return whether this waiter may take the lock, which is free since token ``after`` ended.

        The lock belongs to the head of the queue unless that is paused, so any other waiter must
        find it free twice.
        """
        if self._kernel.inside or not ask.waits or self._free_after == after:
            return True
        self._free_after, self._soon = after, True
        return False

    def wait(self, limit_s: float) -> None:
        self._waited = True
        jitter = 0.5 + self._env.random()
        if self._kernel.inside:
            self._env.sleep(min(limit_s, self._pause_s * jitter))
            self._pause_s = min(self._pause_s * 2, self._pause_s_max)
            return
        look_s, soon, self._soon = _TURN_S if self._soon else self._look_s, self._soon, False
        look_s *= jitter
        self._kernel.wait(min(limit_s, look_s))
        if not soon and look_s <= limit_s:
            self._look_s = min(self._look_s * 2, self._look_s_max)

    def leave(self) -> None:
        self._kernel.leave(self._parked, os.path.join(self.folder, "queue"))


@contextlib.contextmanager
def told(folder: str) -> Iterator[None]:
    """Translate errors of the file system. A transient one becomes an outage, which waiters sit out."""
    try:
        yield
    except OSError as e:
        if e.errno in _LASTING:
            raise StorageError(
                f"The lock folder {folder} failed: {e}. Check space and permissions there", folder=folder
            ) from e
        step = next_step(e, folder) or "Check that it is mounted and has space"
        raise LockUnavailableError(
            f"The lock folder {folder} does not answer: {e}. Nothing is held by this, and trying again is safe. {step}",
            folder=folder,
        ) from e
