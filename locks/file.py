"""Locks in a folder: ``file:///shared/locks`` or a bare path. Works between all processes and hosts that share it.

Each grant of a key is a numbered file, a *generation*, created by put-if-absent (write aside, then ``link``); its
number is the fencing token. The newest generation is the holder, until it is released, broken, dead or silent for its
lease. Taking over means to create the next number, so of several that try, one wins.

    t=0     A links generation 7 (lease 10 s), lists again, sees nothing higher: A holds the key with token 7
    t=3.4   A rewrites 7.beat, lists, still sees 7 as the newest: held until t=13.4
    t=3.5   B sees 7 and its beat for the first time and starts its own stop-watch
    t=4     A is killed on B's host: B sees that this process is gone and links 8 at once
    or      A's host loses its network: at t=13.4 A knows by its own clock that it has lost
    t=13.7  B has seen no change for 10.1 s of its own clock and links 8
    t=20    A's host is back; A's late beat changes nothing: generation 7 is not the newest any more
    or      a process C that has slept since generation 3 links 4, which was pruned long ago. It lists again, sees 8,
            and withdraws: only the highest number counts, and the newest is never deleted

No two clocks are compared, and wall clocks are written down only for people. A's deadline runs from before its beat;
B's stop-watch starts after it has read the beat; so A knows first.

``above=`` lifts a counter that has gone back (folder restored from a backup, power cut: nothing here is flushed to
disk, because the commit log stores the token too). The next number is taken as usual, so that there is one winner;
the winner then creates the lifted number and makes sure that nobody stands between the two.

Waiters of one host sleep in a kernel queue (kernel_queue.py); a release or a death wakes the next in well under a
millisecond. Only its head polls what other hosts hold.

**NFS**: version 4, mounted ``hard`` and with ``lookupcache=positive`` or ``none``, ``acdirmax`` well below the lease;
``link`` must be atomic on the server (a folder where it is not, or is missing, is refused at first use; only racers
of this host can be tried). Leases should be 15 s or longer. A break of a lock is noticed by the holder when its client
sees the new file. Locks that are node-local (``local_lock=all``) are fine: the kernel queue is only a queue.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

from ..environment import Environment, SystemEnvironment
from ..errors import ConfigError, StorageError
from . import generations as gen
from .config import LockUrl, parse_lock_url
from .held import Grant
from .interface import Holder, Release
from .kernel_queue import KernelPlace
from .leased import Ask, LeasedLocks, Place
from .link_check import check_link

_LOOK_S = 0.25  # how often a waiter that is not at the head looks by itself, in case the head is paused
_PAUSE_S_MIN = 0.004
_checked: set[str] = set()  # folders where link() was tried by this process


def open_file_locks(url: str, *, env: Environment) -> LeasedLocks:
    """The provider for a folder; the folder is made at first use."""
    settings = parse_lock_url(url)
    if settings.host not in ("", "localhost"):
        raise ConfigError(f"{url!r} names the host {settings.host!r}; write file:///path with three slashes.", url=url)
    if settings.path in ("", "/"):
        raise ConfigError(f"{url!r} names no folder for locks; write for example file:///shared/locks.", url=url)
    folder = os.path.realpath(settings.path)
    place = LockUrl("file", "", folder, settings.lease_s, settings.max_hold_s)
    return LeasedLocks(FileBackend(folder, settings.lease_s, env), place, env)


class FileBackend:
    """Generations of files, with a kernel queue in front."""

    fair = False  # threads of a process in order, processes nearly so; hosts find out by looking
    durable_tokens = True

    def __init__(self, root: str, lease_s: float, env: Environment) -> None:
        self._root = root
        self._lease_s = lease_s
        self._env = env
        self._observer = gen.Observer(env, lease_s)
        self._parked: dict[str, KernelPlace] = {}
        self._parked_in = env.process()

    def __getstate__(self) -> dict[str, object]:
        return {"root": self._root, "lease_s": self._lease_s, "env": self._env}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def line_up(self, key: str) -> Place:
        """Open the key's kernel queue, or wait on with a thread that sleeps there already."""
        folder = gen.key_folder(self._root, key)
        path = os.path.join(folder, "queue")
        if self._env.process() != self._parked_in:  # forked: the threads that slept for us are not here
            self._parked, self._parked_in = {}, self._env.process()
        kernel = self._parked.pop(path, None)
        if kernel is None or not kernel.adopt():
            with _told(self._root):
                self._make(folder)
                kernel = KernelPlace(path, self._env, block=isinstance(self._env, SystemEnvironment))
        return _FilePlace(folder, kernel, self._parked, self._env, self._lease_s)

    def try_grant(self, ask: Ask, place: Place) -> Grant | None:
        """Create the next generation if the newest has ended."""
        assert isinstance(place, _FilePlace)
        if not place.may_try(ask):
            return None
        folder = place.folder
        with _told(self._root):
            newest = gen.look(folder)
            if not newest.ended and not self._observer.has_ended(folder, gen.Record.read(folder, newest.token)):
                return None
            token = newest.token + 1
            claim = self._claim(folder, token, ask)
            if claim is None:
                return None
            if gen.look(folder).token != token:
                os.unlink(claim)  # the number was free because it is long past; the newest generation holds
                return None
            if token <= ask.above:
                return self._lift(folder, token, claim, ask, place)
            return _FileGrant(folder, token, claim, ask, place, self._env)

    def _claim(self, folder: str, token: int, ask: Ask) -> str | None:
        now = self._env.now()
        value = {
            "v": 1, "token": token, "key": ask.key, "owner": ask.owner, "process": ask.process.to_json(),
            "lease_s": ask.lease_s, "since": now, "until": now + ask.lease_s, "reason": ask.reason,
        }  # fmt: skip
        return gen.claim(folder, token, value, self._env.uuid())

    def _lift(self, folder: str, token: int, claim: str, ask: Ask, place: _FilePlace) -> Grant | None:
        """From ``token``, which we hold, to the number above ``ask.above``.

        Somebody may take us for dead in this very moment and take ``token + 1``. They list after that and see our
        lifted number, or we list after ours and see theirs; whoever sees the other withdraws, perhaps both.
        """
        lifted = ask.above + 1
        second = self._claim(folder, lifted, ask)
        newest = gen.look(folder)
        between = any(token < int(name) < lifted for name in newest.names if len(name) == 20 and name.isdigit())
        gen.release(folder, token, claim)
        if second is None:
            return None
        if newest.token != lifted or between:
            # Not marked as released: it is the newest, and free for all would not be true while somebody believes to
            # hold the number in between. It ends like the grant of a silent holder.
            os.unlink(second)
            return None
        return _FileGrant(folder, lifted, second, ask, place, self._env)

    def inspect(self, key: str) -> Holder | None:
        """Read the newest generation and judge it as a waiter would."""
        folder = gen.key_folder(self._root, key)
        with _told(self._root):
            try:
                newest = gen.look(folder)
            except FileNotFoundError:
                return None
            if newest.ended:
                return None
            record = gen.Record.read(folder, newest.token)
            if self._observer.has_ended(folder, record):
                return None
            until = record.until
            with contextlib.suppress(ValueError, KeyError, TypeError):
                until = float(json.loads(gen.read_beat(folder, newest.token))["until"])
        process = record.process
        return Holder(
            key=key, owner=record.owner, token=record.token, since=record.since, until=until, reason=record.reason,
            host=process.host if process else "", pid=process.pid if process else 0, details={"folder": folder},
        )  # fmt: skip

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Put the record beside generation ``token``, which ends it."""
        folder = gen.key_folder(self._root, key)
        with _told(self._root):
            try:
                newest = gen.look(folder)
            except FileNotFoundError:
                return False
            if newest.ended or newest.token != token:
                return False
            target = os.path.join(folder, gen.generation_name(token) + ".broken")
            value = {
                "v": 1, "key": key, "token": token, "who": who, "reason": reason, "at": self._env.now(),
                "process": self._env.process().to_json(),
            }  # fmt: skip
            temporary = f"{target}-{self._env.uuid()}"
            if not gen.put_if_absent(target, temporary, value):
                return False
            os.unlink(temporary)
            return True

    def records(self, key: str) -> list[dict[str, object]]:
        """What `end` did to the key, oldest first."""
        folder = gen.key_folder(self._root, key)
        with _told(self._root):
            if not os.path.isdir(folder):
                return []
            names = sorted(name for name in os.listdir(folder) if name.endswith(".broken"))
            found = []
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    found.append(json.loads(file.read()))
            return found

    def close(self) -> None:
        """Let go of the threads that sleep in the kernel."""
        self._parked.clear()  # threads that still sleep in the kernel give their place straight back

    def _make(self, folder: str) -> None:
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
        if self._root not in _checked:
            check_link(self._root, self._env)
            _checked.add(self._root)


class _FileGrant:
    """One generation, and the place at the head of the kernel queue if we had it."""

    def __init__(self, folder: str, token: int, claim: str, ask: Ask, place: _FilePlace, env: Environment) -> None:
        self.token = token
        self._folder = folder
        self._claim = claim
        self._ask = ask
        self._place = place
        self._env = env
        self._beats = 0

    def renew(self) -> bool:
        self._beats += 1
        beat = {"beat": self._beats, "until": self._env.now() + self._ask.lease_s}
        path = os.path.join(self._folder, gen.generation_name(self.token) + ".beat")
        with _told(self._folder):
            try:
                with open(path, "wb") as file:
                    file.write(json.dumps(beat).encode())
            except FileNotFoundError:
                return False  # the folder is gone
            return self.check()  # after the beat: whoever looks later than this has seen it

    def check(self) -> bool:
        with _told(self._folder):
            try:
                newest = gen.look(self._folder)
            except FileNotFoundError:
                return False
        return newest.token == self.token and not newest.ended

    def release(self) -> Release:
        with _told(self._folder):
            try:
                outcome = gen.release(self._folder, self.token, self._claim)
            finally:
                self._place.leave()
            gen.prune(self._folder, self.token)
        return outcome


class _FilePlace:
    """The kernel queue, and patience where it says nothing (another host, a paused head)."""

    def __init__(
        self, folder: str, kernel: KernelPlace, parked: dict[str, KernelPlace], env: Environment, lease_s: float
    ) -> None:
        self.folder = folder
        self._kernel = kernel
        self._parked = parked
        self._env = env
        self._look_s = min(_LOOK_S, lease_s / 10)
        self._pause_s = min(_PAUSE_S_MIN, self._look_s)
        self._waited = False

    def may_try(self, ask: Ask) -> bool:
        """False for a waiter that has just come while others stand in the kernel queue."""
        return self._kernel.enter() or self._waited or not ask.waits

    def wait(self, limit_s: float) -> None:
        self._waited = True
        jitter = 0.5 + self._env.random()
        if self._kernel.inside:
            self._env.sleep(min(limit_s, self._pause_s * jitter))
            self._pause_s = min(self._pause_s * 2, self._look_s)
        else:
            self._kernel.wait(min(limit_s, self._look_s * jitter))

    def leave(self) -> None:
        self._kernel.leave(self._parked, os.path.join(self.folder, "queue"))


@contextlib.contextmanager
def _told(folder: str) -> Iterator[None]:
    """An error of the file system becomes one of ours."""
    try:
        yield
    except OSError as e:
        raise StorageError(
            f"The lock folder {folder} failed: {e}. Check space and permissions there.", folder=folder
        ) from e
