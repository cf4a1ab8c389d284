"""The lock of one table: which one it is, taking it, and changing it while writers run.

The log says which lock is in force, and numbers it: a setting entry begins a new *generation* when the lock changes, or
when its tokens went back (a rebuilt server). Tokens compare as (generation, token). A lease belongs to the generation
that it was taken in, and a commit needs a lease of the generation that is in force at its slot.

    t=0  the lock is X, generation 1; A waits for X; C holds a lease on X and is suspended
    t=1  B holds X (C's lease has ended) and Y, and appends setting(lock Y, generation 2); it gives both back
    t=2  A gets X, but at the head of the log it finds generation 2: it gives X back and takes Y
    t=3  C wakes up and finds the same, whatever its clock says of its lease

So nobody commits under the old lock alone, and there is no moment without a lock: B's entry is as decisive as a commit.
A writer waits for Y while holding X only after reading that X is in force, so no two wait for each other.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from ...ahead import Task
from ...arguments import text
from ...environment import SYSTEM, Environment
from ...errors import ConfigError, InputError, LakeLatchError, LockError, LockLostError, TokenRegressedError
from ...locks import Lease, LockProvider, Release, check_url, open_provider, shown
from ...storage import Store
from ..entries import NO_LOCK, OWN_LOCK, LogEntry, Setting, Settings, lock_options
from ..log import CommitLog, LogState


class NoLease:
    """A lease that is always held and excludes nobody. A stored setting, never a fallback."""

    key, owner, token = "none", "nobody", 0
    deadline = math.inf
    lost: str | None = None

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Do nothing; this lease cannot be lost."""

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Do nothing; ``call`` is never called."""

    def release(self) -> Release:
        """Do nothing; there is nothing to give back."""
        return Release.RELEASED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass


OWN_LOCK_FOLDER = ".hoodie/.lakelatch/locks"
_KEPT_S = 1.0  # how long one handle may go on with a lease that it keeps; then the others come
_BACKWARDS_MAX = 3  # how often tokens may go back while one lease is taken; more, and the provider breaks its promise


def settled(lock: str, *, env: Environment = SYSTEM) -> str:
    """The canonical spelling of a lock setting, as stored. `ConfigError` if it cannot be opened or holds a secret."""
    text(lock, "lock", error=ConfigError)
    if lock.lower() in (OWN_LOCK, NO_LOCK):
        return lock.lower()
    # Also for third-party providers, because the URL is stored with the table and printed.
    check_url(lock)
    with open_provider(lock, env=env) as provider:
        return provider.url


def prove(lock: str, table: str, *, env: Environment) -> None:
    """Take the lock once, unless it is busy. Raises the provider's error if it cannot be taken."""
    if lock not in (OWN_LOCK, NO_LOCK):
        with open_provider(lock, env=env) as provider:
            lease = provider.try_acquire(table, reason="proving that the lock can be taken")
            if lease is not None:
                lease.release()


def _openable(lock: str) -> bool:
    """Return whether a stored lock can be opened at all: earlier versions accepted and stored more spellings."""
    with suppress(ConfigError):
        if lock not in (OWN_LOCK, NO_LOCK):
            check_url(lock)
        return True
    return False


_Opened = tuple[str, float]  # a lock, and the lease that it is opened for where its URL names none


def _opened(settings: Settings) -> _Opened:
    return settings.lock, settings.lease_s


class TableLease:
    """A lease and the generation that it was taken in.

    Attributes:
        until: the time of the monotonic clock before which it must not be given back (`TableLock.keep`).
        reused: another holder of this handle has gone on with it.
    """

    def __init__(self, lease: Lease, settings: Settings, table: str, keeper: TableLock | None = None) -> None:
        self.lease, self.token, self._keeper = lease, lease.token, keeper
        self.until, self.reused = 0.0, False
        self._settings, self._table = settings, table
        # Hudi's file lock does not exclude on some file systems, and its close() deletes any holder's file, so ask the
        # backend again before committing.
        self._fresh = "jvm" in lock_options(settings.lock)

    def token_at(self, state: LogState) -> int:
        """The token for an entry after ``state``. Raises `LockLostError` if another lease is in force."""
        now = state.settings
        if now.generation != self._settings.generation:
            what = "its tokens began again" if now.lock == self._settings.lock else f"it is {shown(now.lock)} now"
            raise self._lost(f"The lock of {self._table} was changed meanwhile: {what}", "moved")
        self.ensure_held(fresh=self._fresh)
        # The commit that it is kept for has its token.
        overtaken = self.token < state.token if self.until else self.token <= state.token
        if overtaken and not isinstance(self.lease, NoLease):
            raise self._lost(f"A commit has landed on {self._table} under a later lease", "overtaken")
        return self.token

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        self.lease.ensure_held(fresh=fresh)

    def is_in_force(self, state: LogState) -> bool:
        """Return whether `token_at` raises nothing, as far as this process knows."""
        return self.is_held and state.settings.generation == self._settings.generation and self.token >= state.token

    @property
    def is_held(self) -> bool:
        """True if it is held now, as far as this process knows, without a request."""
        try:
            self.ensure_held()
        except LockLostError:
            return False
        return True

    def _lost(self, what: str, reason: str) -> LockLostError:
        return LockLostError(
            f"{what} (own token {self.token}). Take the lock again and validate again before anything is published",
            key=self.lease.key, token=self.token, reason=reason,
        )  # fmt: skip

    def release(self) -> None:
        """Give the lock back, or, if that must wait, leave it to the handle."""
        if not (self.until and self._keeper and self._keeper.keep(self)):
            self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if not (self.until and self._keeper and self._keeper.keep(self)):
            self.lease.__exit__(exc_type, exc, tb)


class TableLock:
    """The lock of a table, as one handle takes and changes it. Safe to share between threads.

    Attributes:
        expected: the lock that this writer was opened for; once the table has another, the writer is refused.
    """

    def __init__(self, log: CommitLog, store: Store, env: Environment, writer: str) -> None:
        self.expected: str | None = None
        self._log, self._store, self._env, self._writer = log, store, env, writer
        self._open: dict[_Opened, LockProvider] = {}
        self._used: list[_Opened] = []
        self._kept: TableLease | None = None  # given back by its last holder, and not yet to the others
        self._kept_from = 0.0
        self._keeping: list[Task[None]] = []
        self._mutex = threading.Lock()  # guards these; never held during a request
        self._first = log.state.settings.lock

    def provider(self, settings: Settings | None = None) -> tuple[LockProvider, str] | None:
        """The provider of the lock in force, or of other settings, and the key there; None for ``none://``."""
        opened = lock, lease_s = _opened(settings or self._log.state.settings)
        if lock == NO_LOCK:
            return None
        # In its own folder the table needs no name: hosts may see that folder under different paths.
        own = lock == OWN_LOCK
        # Encoded: a folder's name may have '#', '?' or '%'.
        place = f"{self._store.url}/{OWN_LOCK_FOLDER}"
        with self._mutex:
            if opened not in self._open:
                if not own:
                    self._refuse_unopenable(lock)
                # A session that outlives the lease would keep everybody out after its holder's death.
                self._open[opened] = open_provider(place if own else lock, env=self._env, lease_s=lease_s)
            return self._open[opened], "table" if own else self._store.url

    @contextmanager
    def _using(self, settings: Settings) -> Iterator[tuple[LockProvider, str] | None]:
        """Keep a provider open while it is used; providers of earlier locks and leases are closed after their last use."""
        opened = _opened(settings)
        with self._mutex:
            self._used.append(opened)
        try:
            yield self.provider(settings)
        finally:
            with self._mutex:
                self._used.remove(opened)
                past = set(self._open) - {*self._used, opened, _opened(self._log.state.settings)}
                closing = [self._open.pop(each) for each in past]
            for provider in closing:
                provider.close()

    def lease(
        self,
        why: str,
        *,
        max_hold_s: float | None = None,
        wait_s: float | None = None,
        lease_s: float | None = None,
    ) -> TableLease:
        """Take the lock in force, waiting for it, for ``wait_s`` at most; by default as long as the settings say.

        ``lease_s``: a shorter lease than that of the settings, if the lock's URL names none.

        Raises:
            LockTimeoutError: it was busy for the whole wait; names the holder.
            LockUnavailableError: its server does not answer. Nothing is ever written without the table's lock.
            ConfigError: it cannot be opened here, or differs from the one that this writer was opened for.
        """
        give_up = self._env.monotonic() + (self._log.state.settings.lock_wait_s if wait_s is None else wait_s)
        for _ in range(_BACKWARDS_MAX + 1):
            state = self._log.state
            settings = state.settings
            token_above = (
                state.token
            )  # read after the settings, because another thread's read of the log changes the token first
            self._refuse_unexpected(settings)
            if max_hold_s is None and (kept := self._take_kept(state)):
                return kept
            try:
                lease = self._acquire(
                    settings, why, give_up=give_up, token_above=token_above, max_hold_s=max_hold_s, lease_s=lease_s
                )
                if lease.token > token_above or settings.lock == NO_LOCK:
                    return TableLease(lease, settings, self._store.url, self)
                lease.release()
            except TokenRegressedError:
                pass
            except LakeLatchError as e:
                raise self._explained(e, settings.lock) from e
            self._begin_generation(settings, give_up)
        raise LockError(
            f"The lock {settings.lock} of {self._store.url} gives tokens that do not grow, so its leases cannot be told "
            "apart. Nothing is held; set another lock with `lakelatch locks set`",
            key=self._store.url,
        )

    # --- keeping it ------------------------------------------------------------------------------------------

    def keep(self, lease: TableLease) -> bool:
        """Keep a lease that its holder gives back until it may be; False if that is now. Called once for each holder.

        t=0  ours commits at C, and gives its lease back; until C + 0.2 s no clock of a neighbour may be asked
        t=1  ours begins again: it goes on with the lease that is kept, and waits for nothing
        t=2  it has gone on for a second: the next one of ours lines up with the others, who come first
        """
        now = self._env.monotonic()
        if now >= lease.until:
            return False
        with self._mutex:
            self._kept_from = self._kept_from if lease.reused else now
            self._kept = lease
            self._keeping = [each for each in self._keeping if not each.ended]
            self._keeping.append(Task(self._env, partial(self._let_go, lease)))
        return True

    def _let_go(self, lease: TableLease) -> None:
        while True:
            with self._mutex:
                if self._kept is not lease:
                    return
                left = lease.until - self._env.monotonic()
                if left <= 0:
                    self._kept = None
                    break
            self._env.sleep(left)
        lease.lease.release()

    def _take_kept(self, state: LogState) -> TableLease | None:
        with self._mutex:
            lease = self._kept
            if lease is None or self._env.monotonic() > self._kept_from + _KEPT_S or not lease.is_in_force(state):
                return None
            self._kept, lease.reused = None, True
            return lease

    @property
    def shared_with_jvm(self) -> bool:
        """True if JVM writers, which do not read the log, take the lock in force as well."""
        return bool(self._log.state.settings.shared_with_jvm)

    def free(self) -> TableLease | None:
        """A lease that excludes nobody, so that the log alone orders commits. None if JVM writers share the lock."""
        settings = self._log.state.settings
        self._refuse_unexpected(settings)
        return None if self.shared_with_jvm else TableLease(NoLease(), settings, self._store.url)

    def _acquire(
        self,
        settings: Settings,
        why: str,
        *,
        give_up: float,
        token_above: int = 0,
        max_hold_s: float | None = None,
        lease_s: float | None = None,
    ) -> Lease:
        with self._using(settings) as found:
            if found is None:
                return NoLease()
            return found[0].acquire(
                found[1],
                wait_s=max(give_up - self._env.monotonic(), 0.0),
                lease_s=None
                if "lease" in lock_options(settings.lock)
                else min(settings.lease_s, lease_s or settings.lease_s),
                token_above=token_above,
                reason=f"{self._writer}: {why}",
                max_hold_s=max_hold_s,
            )

    def _begin_generation(self, seen: Settings, give_up: float) -> None:
        """Begin a new generation, because the lock's tokens went back behind the last commit's; unless another writer has."""
        lease = self._acquire(seen, "beginning a new generation of tokens", give_up=give_up)

        def build(state: LogState) -> LogEntry | None:
            if state.settings.generation != seen.generation:
                return None
            lease.ensure_held()
            return Setting(replace(state.settings, generation=seen.generation + 1), self._writer)

        try:
            with suppress(LockLostError):  # the caller tries again
                self._log.append(build)
        finally:
            lease.release()

    # --- changing it -----------------------------------------------------------------------------------------

    def change(self, lock: str, *, jvm_writers_stopped: bool = False, **others: Any) -> Settings:
        """Put another lock in force, with ``others`` of the settings, while holding the old and the new one."""
        new = settled(lock, env=self._env)
        if new == OWN_LOCK and not self._store.url.startswith("file:"):
            raise ConfigError(
                f"the table's own lock needs a local folder, and {self._store.url} is none; name a lock URL, or none://"
            )
        now = self._log.catch_up().settings
        if new != now.lock:
            prove(new, self._store.url, env=self._env)
            if not jvm_writers_stopped:
                self._refuse_if_shared_with_jvm(now)
        give_up = self._env.monotonic() + now.lock_wait_s
        while True:
            old = self._lease_to_change(new)
            try:
                return self._change(old, new, others, give_up)
            except LockLostError:
                if self._env.monotonic() >= give_up:
                    raise
            finally:
                old.release()

    def _lease_to_change(self, new: str) -> TableLease:
        settings = self._log.state.settings
        # Nobody can hold it, so the log alone orders commits, as under none://.
        if not _openable(settings.lock):
            return TableLease(NoLease(), settings, self._store.url)
        return self.lease(f"changing the lock to {new}")

    def _change(self, old: TableLease, new: str, others: dict[str, Any], give_up: float) -> Settings:
        # Wait for nothing before it is certain that the old lock is in force, or two could wait for each other.
        state = self._log.catch_up()
        old.token_at(state)
        if state.settings.lock == new:
            fresh: Lease = NoLease()
        else:
            fresh = self._second(old, state.settings.changed(**others | {"lock": new}), give_up)

        def build(state: LogState) -> LogEntry | None:
            old.token_at(state)
            fresh.ensure_held()
            after = state.settings.changed(**others | {"lock": new})
            if after.lock != state.settings.lock:
                after = replace(after, generation=after.generation + 1)
            return Setting(after, self._writer) if after != state.settings else None

        try:
            self._log.append(build)
        finally:
            fresh.release()
        self._first, self.expected = new, self.expected and new
        return self._log.state.settings

    def _second(self, old: TableLease, settings: Settings, give_up: float) -> Lease:
        """Take a lease on the new lock. It may be the old lock under another URL, which is held already."""
        try:
            with self._using(settings) as found:
                if found is not None:
                    lease = found[0].try_acquire(found[1], reason=f"{self._writer}: becoming the table's lock")
                    if lease is not None:
                        return lease
                    holder = found[0].inspect(found[1])
                    if holder is not None and (holder.owner, holder.token) == (old.lease.owner, old.token):
                        return NoLease()
            return self._acquire(settings, "becoming the table's lock", give_up=give_up)
        except LakeLatchError as e:
            e.add_note(f"The lock of {self._store.url} stays what it was")
            raise

    # --- guards ----------------------------------------------------------------------------------------------

    def _refuse_unopenable(self, lock: str) -> None:
        try:
            check_url(lock)
        except ConfigError as e:
            raise ConfigError(
                f"The lock that is stored for {self._store.url} cannot be opened by anybody: {e}. Nothing was written. Give the "
                "table another one with `lakelatch locks set` or Table.set_lock",
                table=self._store.url,
            ) from e

    def _refuse_unexpected(self, settings: Settings) -> None:
        if self.expected is not None and settings.lock != self.expected:
            raise ConfigError(
                f"The lock of {self._store.url} is {shown(settings.lock)} now, and this writer was opened for {self.expected}. "
                "Nothing was written; open the table again with the new lock, or without naming one",
                table=self._store.url, lock=shown(settings.lock), expected=self.expected,
            )  # fmt: skip

    def _refuse_if_shared_with_jvm(self, settings: Settings) -> None:
        lock = settings.lock
        if shared := settings.shared_with_jvm:
            raise InputError(
                f"The lock of {self._store.url} is shared with JVM writers ({', '.join(shared)}= in {shown(lock)}); they do not "
                "read the log and would go on under the old lock. Stop them, configure them for the new one, and say so: "
                "--jvm-writers-stopped, or set_lock(url, jvm_writers_stopped=True)",
                table=self._store.url, lock=shown(lock),
            )  # fmt: skip

    def _explained(self, error: LakeLatchError, lock: str) -> LakeLatchError:
        """Add to the error which lock it is about, if the lock has changed since this handle first took it."""
        if lock == self._first:
            return error
        return type(error)(
            f"The lock of {self._store.url} was changed to {lock} (it was {shown(self._first)}), and this writer cannot take the "
            f"new one: {error}",
            **error.details,
        )

    def close(self) -> None:
        """Close the providers, once what is kept is given back; leases that are held stay held. Idempotent."""
        for each in self._keeping:
            each.wait()
        with self._mutex:
            closing, self._open = list(self._open.values()), {}
        for provider in closing:
            provider.close()
