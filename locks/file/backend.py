"""Locks in a folder: ``file:///shared/locks`` or a bare path. Works between all processes and hosts that share it.

Each grant of a key is a numbered file, a *generation*, created by put-if-absent (write aside, then ``link``); its
number is the fencing token. The newest generation is the holder, until it is released, broken, dead or silent for its
lease. To take over is to create the next number, so exactly one contender wins.

    t=0     A links generation 7 (lease 10 s), lists again, sees nothing higher: A holds the key with token 7
    t=3.4   A rewrites 7.beat, lists, still sees 7 as the newest: held until t=13.4
    t=3.5   B sees 7 and its beat for the first time and starts its own stop-watch
    t=4     A is killed on B's host: B sees that this process is gone and links 8 at once
    or      A's host loses its network: at t=13.4 A knows by its own clock that it has lost
    t=13.7  B has seen no change for 10.1 s of its own clock and links 8
    t=20    A's host is back; A's late beat changes nothing: generation 7 is not the newest any more
    or      a process C that has slept since generation 3 links 4, which was pruned long ago. It lists again, sees 8,
            and withdraws: only the highest number counts, and the newest is never deleted

No clocks are compared. Wall clocks serve people, for the order in the queue and for a JVM's file. A's deadline
runs from before its beat; B's stop-watch starts after it has read the beat; so A notices first.

``token_above=`` lifts a counter that has gone back (folder restored from a backup, power cut: nothing here is flushed to
disk, because the commit log stores the token too). The next number is taken as usual, so that there is one winner;
the winner then creates the lifted number and makes sure that there is no generation between the two.

Waiters of one host sleep in a kernel queue (kernel_queue.py); a release or a death wakes the next in well under a
millisecond. Only its head polls what other hosts hold.

**NFS**: version 4, mounted ``hard`` and with ``lookupcache=positive`` or ``none``, ``acdirmax`` well below the lease;
``link`` must be atomic on the server (a folder where it is not, or is missing, is refused at first use; only racers
of this host can be tried). Leases should be 15 s or longer. A break of a lock is noticed by the holder when its client
sees the new file. Locks that are node-local (``local_lock=all``) are fine: the kernel queue is only a queue.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from ...environment import Environment, SystemEnvironment
from ...errors import ConfigError, LockUnavailableError, StorageError
from ...storage.local import next_step, refuse_no_folder
from ..core import Backend, Contender, Grant, LeasedLocks, LockRequest, break_of
from ..interface import BREAKS_KEPT, BreakRecord, Holder, Release
from ..lock_url import LEASE_S, is_path, parse_lock_url
from . import generations as gen
from .filesystem_check import check_link
from .hudi_lock_file import HudiLockFile, open_hudi_file
from .kernel_queue import KernelPlace, tickets

_OPTIONS = ("jvm", "jvm_expire", "jvm_pause")
_BELOW_HUDI = os.path.join(".lakelatch", "locks")  # Hudi leaves this part of its folder alone
_LEASES_MAX = 8000  # a tenth of a processor renews them (leases of 30 s)
# How soon a waiter behind the head polls by itself, in case the head is paused; then less and less often, since many may
# wait, and each poll reads the holder's files.
_LOOK_S, _LOOK_S_MAX = 0.25, 2.0
_PAUSE_S_MIN = 0.004
_TURN_S = 0.03  # how long the lock may stay free before others than the head take it
_LASTING = {
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
_checked: set[str] = set()  # folders where link() was tried by this process


def open_file_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Open the provider for a folder, which is created at first use."""
    settings = parse_lock_url(url, options=_OPTIONS, lease_s=lease_s)
    if settings.host not in ("", "localhost"):
        raise ConfigError(f"{url!r} names the host {settings.host!r}; write file:///path with three slashes", url=url)
    if settings.path in ("", "/") or not (settings.path.startswith("/") or is_path(url)):
        raise ConfigError(f"{url!r} names no folder for locks; write for example file:///shared/locks", url=url)
    real = os.path.realpath(settings.path)
    if real != os.path.abspath(settings.path) and not os.path.exists(real):
        # A link to nothing would be followed here, so that writers have another lock once it is mended.
        refuse_no_folder(os.path.abspath(settings.path), "was not opened", itself=True)
    place = replace(settings, host="", path=real)
    hudi, place = open_hudi_file(place, env)
    root = place.path if hudi is None else os.path.join(place.path, _BELOW_HUDI)
    return LeasedLocks(FileBackend(root, place.lease_s, env, hudi), place, env)


class FileBackend(Backend):
    """Generations of files, with a kernel queue in front."""

    fair = False  # threads of a process in order, processes nearly so; hosts find out by polling
    durable_tokens = True
    lifts_tokens = True

    def __init__(self, root: str, lease_s: float, env: Environment, hudi: HudiLockFile | None = None) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.max_leases = _LEASES_MAX if files < 0 else min(_LEASES_MAX, files // 2)  # one open file each
        self._root = root
        self._hudi = hudi
        self._lease_s = lease_s
        self._env = env
        self._observer = gen.Observer(env, lease_s)
        self._parked: dict[str, KernelPlace] = {}
        self._parked_in = env.process()

    def __getstate__(self) -> dict[str, object]:
        return {"root": self._root, "lease_s": self._lease_s, "env": self._env, "hudi": self._hudi}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def line_up(self, key: str) -> Contender:
        """Open the key's kernel queue, or wait on with a thread that sleeps there already."""
        folder = self._folder(key)
        path = os.path.join(folder, "queue")
        # Forked: the threads that slept for us are not here.
        if self._env.process() != self._parked_in:
            self._parked, self._parked_in = {}, self._env.process()
        kernel = self._parked.pop(path, None)
        if kernel is None or not kernel.adopt():
            with told(self._root):
                self._make(folder)
                kernel = KernelPlace(path, self._env, block=isinstance(self._env, SystemEnvironment))
        return FileContender(folder, kernel, self._parked, self._env, self._lease_s)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Create the next generation if the newest has ended, and take Hudi's file if it is shared with a JVM."""
        assert isinstance(contender, FileContender)
        folder, hudi = contender.folder, self._hudi
        if hudi is not None:
            hudi.check_lease(request.lease_s)
        if not contender.may_try(request):
            return None
        with told(self._root):
            newest = gen.look(folder)
            if not newest.ended and not self._observer.has_ended(folder, gen.Record.read(folder, newest.token)):
                return None
            if not contender.may_take(request, newest.token):
                return None
            if hudi is not None and (hudi.is_room(folder) or hudi.jvm() is not None):
                return None
            token = newest.token + 1
            claim = self._claim(folder, token, request)
            if claim is None:
                return None
            try:
                if gen.look(folder).token != token:
                    # The number was free because it is long past; the newest generation holds.
                    os.unlink(claim)
                    return None
                if token <= request.token_above:
                    return self._lift(folder, token, claim, request, contender)
                return self._grant(folder, token, claim, request, contender)
            except BaseException:  # otherwise this process would hold it unknowingly
                with contextlib.suppress(OSError):
                    gen.release(folder, token, claim)
                raise

    def _grant(
        self, folder: str, token: int, claim: str, request: LockRequest, contender: FileContender
    ) -> Grant | None:
        grant = FileGrant(folder, token, claim, request, self._env, self._hudi)
        try:
            if grant.take_hudi():
                grant.contender = contender
                return grant
        finally:
            if grant.contender is None:
                grant.release()
        return None

    def _claim(self, folder: str, token: int, request: LockRequest) -> str | None:
        now = self._env.now()
        value = {
            "v": 1, "token": token, "key": request.key, "owner": request.owner, "process": request.process.to_json(),
            "lease_s": request.lease_s, "since": now, "until": now + request.lease_s, "reason": request.reason,
        }  # fmt: skip
        return gen.claim(folder, token, value, self._env.uuid())

    def _lift(
        self, folder: str, token: int, claim: str, request: LockRequest, contender: FileContender
    ) -> Grant | None:
        """Move from ``token``, which we hold, to the number above ``request.token_above``.

        Another contender may consider us dead just now and take ``token + 1``. Then it lists and sees
        our lifted number, or we list and see its number. Each withdraws when it sees the other, so
        perhaps both do.
        """
        lifted = request.token_above + 1
        second = self._claim(folder, lifted, request)
        newest = gen.look(folder)
        between = any(token < int(name) < lifted for name in newest.names if gen.is_generation(name))
        gen.release(folder, token, claim)
        if second is None:
            return None
        if newest.token != lifted or between:
            # Not marked as released: it is the newest, and would look free while another contender may believe that it
            # holds the number in between. It ends like the grant of a silent holder.
            os.unlink(second)
            return None
        return self._grant(folder, lifted, second, request, contender)

    def inspect(self, key: str) -> Holder | None:
        """Return the holder of the newest live generation, or else a JVM's hold."""
        folder = self._folder(key)
        with told(self._root):
            record = self._holding(folder)
            if record is None:
                return None if self._hudi is None else self._hudi.holder(key)
            until = record.until
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                until = float(json.loads(gen.read_beat(folder, record.token))["until"])
        process = record.process
        return Holder(
            key=key, owner=record.owner, token=record.token, since=record.since, until=until, reason=record.reason,
            host=process.host if process else "", pid=process.pid if process else 0,
            queue=tuple(f"since {_time(ticket)}" for ticket in tickets(os.path.join(folder, "queue"))[1:]),
            details={"folder": folder},
        )  # fmt: skip

    def _holding(self, folder: str) -> gen.Record | None:
        try:
            newest = gen.look(folder)
        except FileNotFoundError:
            return None
        if newest.ended:
            return None
        record = gen.Record.read(folder, newest.token)
        return None if self._observer.has_ended(folder, record) else record

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Break generation ``token`` by a record beside it, or a JVM's hold by deleting its file."""
        folder = self._folder(key)
        with told(self._root):
            self._make(folder)
            newest = gen.look(folder)
            found = None if self._hudi is None else self._hudi.jvm()
            if token < 0:
                if found is None or found.token_of_jvm != token:
                    return False
            elif newest.ended or newest.token != token:
                return False
            target = os.path.join(folder, gen.generation_name(abs(token)) + ".broken")
            value = {
                "v": 1, "key": key, "token": token, "who": who, "reason": reason, "at": self._env.now(),
                "process": self._env.process().to_json(),
            }  # fmt: skip
            temporary = f"{target}-{self._env.uuid()}"
            if not gen.put_if_absent(target, temporary, value):
                return False
            os.unlink(temporary)
            return token > 0 or (self._hudi is not None and found is not None and self._hudi.remove(found, temporary))

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the break records of the key, oldest first."""
        folder = self._folder(key)
        with told(self._root):
            if not os.path.isdir(folder):
                return ()
            names = [name for name in os.listdir(folder) if name.endswith(".broken")]
            found = [break_of(key, gen.read_json(os.path.join(folder, name))) for name in names]
        return tuple(sorted(filter(None, found), key=lambda record: record.at)[-BREAKS_KEPT:])

    def close(self) -> None:
        """Release the threads that sleep in the kernel."""
        # Threads that still sleep in the kernel give their place straight back.
        self._parked.clear()

    def _make(self, folder: str) -> None:
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
        if self._root not in _checked:
            check_link(self._root, self._env)
            _checked.add(self._root)

    def _folder(self, key: str) -> str:
        # Hudi has one lock for the table, so with it all keys are one.
        return gen.key_folder(self._root, key if self._hudi is None else "hudi")


def _time(ticket: int) -> str:
    return datetime.fromtimestamp(ticket / 1e9, UTC).isoformat(timespec="milliseconds")


class FileGrant(Grant):
    """One generation, Hudi's file where it is shared with a JVM, and the place at the head of the queue if we had it."""

    contender: FileContender | None = None

    def __init__(
        self, folder: str, token: int, claim: str, request: LockRequest, env: Environment, hudi: HudiLockFile | None
    ) -> None:
        self.token = token
        self._folder = folder
        self._claim = claim
        self._request = request
        self._env = env
        self._hudi = hudi
        self._proof: bytes | None = None
        self._since = env.monotonic()
        self._beats = 0

    def take_hudi(self) -> bool:
        """Take Hudi's file, if it is shared with a JVM. Return True when lock and file are ours now."""
        if self._hudi is None:
            return True
        self._proof = self._hudi.take(self.token, self._request.owner, self._claim + ".hudi")
        if self._proof is None:
            return False
        self._hudi.settle()
        return self.check()

    def renew(self) -> bool:
        self._beats += 1
        beat = {"beat": self._beats, "until": self._env.now() + self._request.lease_s}
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
                    if self.contender is not None:
                        self.contender.leave()
            gen.prune(self._folder, self.token)
        return outcome

    def _give_hudi_back(self, hudi: HudiLockFile) -> bool:
        if self._proof is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            hudi.leave_room(self._folder, self._env.monotonic() - self._since)
        return hudi.give_back(self._proof, self._claim + ".hudi")


class FileContender(Contender):
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

    def may_try(self, request: LockRequest) -> bool:
        """Return False for a newcomer while others stand in the kernel queue."""
        return self._kernel.enter() or self._waited or not request.waits

    def may_take(self, request: LockRequest, after: int) -> bool:
        """Return whether this waiter may take the lock, which is free since token ``after`` ended.

        The lock belongs to the head of the queue unless that is paused, so any other waiter must
        find it free twice.
        """
        if self._kernel.inside or not request.waits or self._free_after == after:
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
        place, said = e.filename or folder, e.strerror or e
        if e.errno in _LASTING:
            raise StorageError(
                f"The lock folder {place} failed: {said}. Check space and permissions there", folder=folder
            ) from e
        step = next_step(e, folder) or "Check that it is mounted and has space"
        raise LockUnavailableError(
            f"The lock folder {place} does not answer: {said}. Nothing is held by this, and trying again is "
            f"safe. {step}",
            folder=folder,
        ) from e
