"""One lock, or several, in a ``with`` block, an ``async with`` block or around a function."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from ..arguments import function, number
from ..environment import SYSTEM, Environment
from ..errors import InputError, LakeLatchError, LockError
from .core import LeasedLocks
from .interface import Holder, Lease, LockProvider
from .lock_url import normal_key
from .registry import open_provider
from .revocation import Listening, ask_revoke

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger("lakelatch.locks")

_P = ParamSpec("_P")
_R = TypeVar("_R")
_L = TypeVar("_L")  # what the block gets: a lease, or a tuple of them
WAIT_S = 60.0


class _Hold:
    """A lease that a block holds; the block keeps it alive."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    def kept(self, *_: object) -> None:
        """Do nothing. A block calls this at its end, so it keeps this object alive until then."""


# (process, thread or task, place, key) -> the hold of a block. A second block would wait for the first for ever: refuse it.
_held: weakref.WeakValueDictionary[tuple[int, object, str, str], _Hold] = weakref.WeakValueDictionary()


@overload
def lock(  # type: ignore[overload-overlap] # a str is an iterable of str, and matches here first
    url: object, key: str, *, wait_s: float = ..., lease_s: float | None = ..., token_above: int = ..., reason: str = ...,
    max_hold_s: float | None = ..., on_lost: Callable[[str], object] | None = ...,
    on_revoke: Callable[[Holder], object] | None = ..., env: Environment = ...,
) -> Lock[Lease]: ...  # fmt: skip
@overload
def lock(
    url: object, key: Iterable[str], *, wait_s: float = ..., lease_s: float | None = ..., token_above: int = ...,
    reason: str = ..., max_hold_s: float | None = ..., on_lost: Callable[[str], object] | None = ...,
    on_revoke: Callable[[Holder], object] | None = ..., env: Environment = ...,
) -> Lock[tuple[Lease, ...]]: ...  # fmt: skip
def lock(
    url: object,
    key: str | Iterable[str],
    *,
    wait_s: float = WAIT_S,
    lease_s: float | None = None,
    token_above: int = 0,
    reason: str = "",
    max_hold_s: float | None = None,
    on_lost: Callable[[str], object] | None = None,
    on_revoke: Callable[[Holder], object] | None = None,
    env: Environment = SYSTEM,
) -> Lock[Any]:
    """Return a lock to use as a context manager, an async context manager or a decorator. Sends no request yet.

        with lakelatch.lock("redis://redis1", "nightly report", wait_s=600) as lease:
            write(report, token=lease.token)

    Several keys are always taken in the same order, so two callers never deadlock; the block gets their leases as a
    tuple in the order given. If one cannot be had within ``wait_s``, all are released.

    Args:
        url: a lock URL, an open `LockProvider`, or a client: `redis.Redis`, `kazoo.client.KazooClient`, DynamoDB's client,
            resource or Table of boto3. An object passed in is never closed here.
        key: the name of the lock, or several names.
        wait_s: how long to wait for all keys together; 0 tries once.
        lease_s: how long the lease lasts without renewal; the URL's by default.
        token_above: the lease's token is larger than this.
        reason: shown to others while the lock is held.
        max_hold_s: the lease ends after this, even if it is renewed.
        on_lost: called with the reason when a lease is lost. Keep it short.
        on_revoke: called once with the `Holder` of the request when another process asks for the lock back
            (`Lock.ask_revoke`). The lock stays held until the block ends; the call may ask the work to stop.
        env: clock and threads; ``async with`` needs threads that run by themselves, which `FakeEnvironment` does not have.

    Under ``async with`` both callbacks run in the event loop and may be coroutine functions.

    Raises `LockTimeoutError` when the wait is over, `LockLostError` at the end of a block that did not notice its loss, and
    `LockError` at once when this thread or task already holds the key in such a block: locks are not re-entrant.
    """
    keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Iterable) else ()
    if not keys or not all(isinstance(each, str) for each in keys):
        raise InputError(f"The keys of a lock are one text or several, not {key!r}", key=str(key))
    number(wait_s, "wait_s", least=0, endless=True)
    for called, name in ((on_lost, "on_lost"), (on_revoke, "on_revoke")):
        if called is not None:
            function(called, name)
    options = {"lease_s": lease_s, "token_above": token_above, "reason": reason, "max_hold_s": max_hold_s}
    return Lock(url, keys, isinstance(key, str), wait_s, options, on_lost, on_revoke, env)


class Lock(Generic[_L]):
    """A lock that is taken for a block or a call. Make one with `lock`.

    It can be reused, also by many threads and tasks, which then wait for each other. It opens its provider at the
    first use and closes it when it is closed or dropped. It pickles; the copy opens its own provider.

    Async: the wait and the release run on their own thread, because the clients of most lock services block, and a second,
    asynchronous copy of each provider would be a second protocol to prove. The loop's executor is not used: waiters that
    fill it would keep the holder from its release. The lease is renewed by threads, also while the loop is busy. A task
    that is cancelled while it waits continues at once; its thread leaves the queue within a second, or a tenth of a lease
    if that is longer, and releases any grant that arrives until then. (A provider that is not built on `LeasedLocks` waits
    to the end of ``wait_s``.)
    """

    def __init__(
        self,
        url: object,
        keys: tuple[str, ...],
        single: bool,
        wait_s: float,
        options: dict[str, Any],
        on_lost: Callable[[str], object] | None,
        on_revoke: Callable[[Holder], object] | None,
        env: Environment,
    ) -> None:
        self._given = (url, keys, single, wait_s, options, on_lost, on_revoke, env)
        self._url, self._keys, self._single, self._wait_s, self._options, self._on_lost, self._on_revoke, self._env = (
            self._given
        )
        self._opening = threading.Lock()
        self._provider: LockProvider | None = None
        self._close: Callable[[], object] = lambda: None
        self._blocks: dict[object, list[ExitStack]] = {}  # of each thread or task

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, self._given

    def __repr__(self) -> str:
        return f"<lock {', '.join(map(repr, self._keys))}>"

    def close(self) -> None:
        """Close the provider that was opened here; the next use opens one again. Held leases stay held. Idempotent."""
        with self._opening:
            self._close()
            self._provider = None

    def ask_revoke(self, *, wait_s: float = WAIT_S, reason: str = "") -> bool:
        """Ask the holder to release the lock, several keys in turn; see `lakelatch.locks.ask_revoke`."""
        number(wait_s, "wait_s", least=0, endless=True)
        locks = self._open()
        until = self._env.monotonic() + wait_s
        answers = [
            ask_revoke(locks, key, wait_s=max(0.0, until - self._env.monotonic()), reason=reason, env=self._env)
            for key in self._keys
        ]
        return all(answers)

    # A block.

    def __enter__(self) -> _L:
        """Wait for the lock."""
        me = threading.get_ident()
        block, leases = self._take(me, self._on_lost, self._on_revoke, None)
        self._blocks.setdefault(me, []).append(block)
        return leases

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lock. Raises `LockLostError` for a loss that the block did not notice."""
        self._leave(threading.get_ident()).__exit__(exc_type, exc, tb)

    async def __aenter__(self) -> _L:
        """Wait for the lock on another thread."""
        import asyncio

        me, loop, wait = asyncio.current_task(), asyncio.get_running_loop(), _Wait()
        on_lost, on_revoke = (call and partial(_in_loop, loop, call) for call in (self._on_lost, self._on_revoke))
        granted: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            _settle(granted, lambda: wait.keep(self._take(me, on_lost, on_revoke, wait.is_given_up)))

        self._env.thread(work, name="lakelatch-wait")
        try:
            await granted
        except BaseException:  # cancelled, perhaps in the very moment of the grant
            if (taken := wait.give_up()) is not None:
                self._env.thread(partial(_give_back, taken[0]), name="lakelatch-wait")
            raise
        block, leases = wait.taken
        self._blocks.setdefault(me, []).append(block)
        return cast(_L, leases)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lock on another thread, which continues if this task is cancelled."""
        import asyncio

        block = self._leave(asyncio.current_task())
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def leave() -> None:
            block.__exit__(exc_type, exc, tb)

        self._env.thread(partial(_settle, left, leave), name="lakelatch-wait")
        await left

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Take the lock for each call. A parameter ``lease`` of the function gets the lease, unless the caller passes one."""
        wants = "lease" in inspect.signature(function).parameters
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"{function.__qualname__} is a generator: its lock would be given back before it does its work. "
                "Use `with lakelatch.lock(...)` inside it"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **named: Any) -> Any:
                async with self as lease:
                    return await function(*args, **({"lease": lease} if wants else {}) | named)

            return cast("Callable[_P, _R]", run_async)

        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            with self as lease:
                return function(*args, **({"lease": lease} if wants else {}) | named)

        return cast("Callable[_P, _R]", run)

    # Taking it.

    def _take(
        self,
        me: object,
        on_lost: Callable[[str], object] | None,
        on_revoke: Callable[[Holder], object] | None,
        given_up: Callable[[], bool] | None,
    ) -> tuple[ExitStack, _L]:
        """Return the leases and the stack that ends them; `me` is the thread or task that gets them."""
        locks = self._open()
        names = self._names(locks)
        # Third parties' providers need not have ``place``.
        place = getattr(locks, "place", locks.url.partition("?")[0])
        until = self._env.monotonic() + self._wait_s
        leases: dict[str, Lease] = {}
        # Before any key is taken, so that a refusal leaves nothing to release.
        for name in names:
            _refuse_second(me, place, name)
        # Every caller takes keys in this order, so waiters cannot form a cycle.
        with ExitStack() as block:
            for number, name in enumerate(sorted(names)):
                if number == 1:
                    _refuse_one_lock(locks, name, next(iter(leases.values())))
                left_s = max(0.0, until - self._env.monotonic())
                if isinstance(locks, LeasedLocks):
                    lease: Lease = locks.acquire(name, wait_s=left_s, given_up=given_up, **self._options)
                else:
                    lease = locks.acquire(name, wait_s=left_s, **self._options)
                leases[name] = block.enter_context(lease)
                hold = _held[os.getpid(), me, place, name] = _Hold(lease)
                block.push(hold.kept)
            for lease in leases.values():
                lease.ensure_held()  # the first may have been lost while another was waited for
            for lease in leases.values():
                # Only now that all are held: the caller's code must not hear of a lease that it never got.
                if on_lost is not None:
                    lease.on_lost(cast("Callable[[str], None]", on_lost))
                if on_revoke is not None:
                    block.enter_context(Listening(locks, lease, cast("Callable[[Holder], None]", on_revoke), self._env))
            found = tuple(leases[name] for name in names)
            return block.pop_all(), cast(_L, found[0] if self._single else found)

    def _names(self, locks: LockProvider) -> list[str]:
        """Return the keys as the provider spells them, in the order given."""
        spell = locks.spell if isinstance(locks, LeasedLocks) else normal_key
        names = [spell(key) for key in self._keys]
        if len(set(names)) < len(names):
            twice = next(key for key, name in zip(self._keys, names, strict=True) if names.count(name) > 1)
            raise InputError(
                f"The keys {', '.join(map(repr, self._keys))} at {locks.url} name the same lock twice, and would wait for "
                "themselves; name each lock once",
                key=twice,
            )
        return names

    def _leave(self, me: object) -> ExitStack:
        if me not in self._blocks:
            if len(self._blocks) != 1:
                raise LockError(f"{self!r} is left by a thread or task that has not entered it", key=self._keys[0])
            (me,) = self._blocks  # some frameworks enter and leave a block on different threads
        blocks = self._blocks[me]
        block = blocks.pop()
        if not blocks:
            del self._blocks[me]
        return block

    def _open(self) -> LockProvider:
        with self._opening:
            if self._provider is None:
                if callable(getattr(self._url, "try_acquire", None)):
                    self._provider = cast("LockProvider", self._url)
                else:
                    self._provider = open_provider(self._url, env=self._env)
                    # Not at the end of the process, which ends the connections anyway.
                    closing = weakref.finalize(self, _close, self._provider, self._env)
                    closing.atexit = False
                    self._close = closing
            return self._provider


def _close(locks: LockProvider, env: Environment) -> None:
    """Close; on a thread of its own where it would keep an event loop waiting."""
    if _runs_a_loop():
        env.thread(locks.close, name="lakelatch-close")
    else:
        locks.close()


def _runs_a_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # not imported: no loop
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _refuse_second(me: object, place: str, name: str) -> None:
    hold = _held.get((os.getpid(), me, place, name))
    if hold is not None and hold.lease.lost is None:
        token = hold.lease.token
        raise LockError(
            f"Lock {name!r} is held by this thread or task already (token {token}), and locks are not re-entrant: it would "
            "wait for itself. Hand the lease on to the code that needs it, or leave the first block before",
            key=name, token=token,
        )  # fmt: skip


def _refuse_one_lock(locks: LockProvider, name: str, lease: Lease) -> None:
    """Raise if all keys of the URL are one lock: the second key would wait for the first for ever."""
    holder = locks.inspect(name)
    if holder is not None and (holder.token, holder.owner) == (lease.token, lease.owner):
        raise InputError(
            f"All keys of {locks.url} are one lock, so {lease.key!r} and {name!r} would wait for each other; name one of them",
            key=name,
        )


class _Wait:
    """The hand-over between a waiting task and its thread: exactly one of the two gets the grant."""

    taken: tuple[ExitStack, Any]

    def __init__(self) -> None:
        self._mark = threading.Lock()
        self._granted = self._given_up = False

    def is_given_up(self) -> bool:
        """Return whether the task has stopped waiting."""
        return self._given_up

    def keep(self, taken: tuple[ExitStack, Any]) -> None:
        """Hand the grant to the task, or release it if the task has gone."""
        with self._mark:
            if not self._given_up:
                self._granted, self.taken = True, taken
                return
        _give_back(taken[0])

    def give_up(self) -> tuple[ExitStack, Any] | None:
        """Stop waiting for the task. Return a grant that has arrived already, for the caller to release, or None."""
        with self._mark:
            self._given_up = True
            return self.taken if self._granted else None


def _settle(future: asyncio.Future[None], call: Callable[[], None]) -> None:
    """Run ``call`` on this thread and settle ``future`` in its loop, if that still runs."""
    error: BaseException | None = None
    try:
        call()
    except BaseException as e:  # noqa: BLE001 (it is raised where it is awaited)
        error = e

    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    with suppress(RuntimeError):  # the loop has ended
        future.get_loop().call_soon_threadsafe(settle)


def _give_back(block: ExitStack) -> None:
    try:
        block.close()
    except LakeLatchError as e:
        _log.info("a lock that nobody wanted any more was lost: %s", e)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Run a callback in the loop; a coroutine function becomes a task."""
    from asyncio import ensure_future

    def run() -> None:
        found = call(*args)
        if isinstance(found, Awaitable):
            task = ensure_future(found)
            _callbacks.add(task)
            task.add_done_callback(_callbacks.discard)

    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(run)


_callbacks: set[asyncio.Future[Any]] = set()  # a loop keeps only weak references to its tasks
