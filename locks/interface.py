"""The contract between a lock provider and everybody else.

A *lock* is a key. A *lease* is the proof that one owner holds it until a deadline, with a *token*: an integer that
grows with every grant of that key. No lease excludes a paused holder for good; it gives progress, and whoever
writes under it attaches the token or validates again (docs/protocol.md).

    t=0   A acquires, lease 10 s, token 7
    t=1   A is suspended
    t=11  A's lease has ended; B acquires, token 8
    t=12  A wakes up; A's local deadline has passed, so `ensure_held` raises before A asks anybody

The deadline is measured on the holder's own monotonic clock from *before* the request was sent, and a lease is
never revived after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

BREAKS_KEPT = 20


class Release(Enum):
    """What `Lease.release` found."""

    RELEASED = "released"
    WAS_LOST = "was lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key, readable by anybody: ``since`` and ``until`` are wall-clock seconds as the holder wrote them.

    ``queue`` names the owners that wait, the next one first, as far as the backend shows them.
    """

    key: str
    owner: str
    token: int
    since: float
    until: float | None
    reason: str = ""
    host: str = ""
    pid: int = 0
    queue: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BreakRecord:
    """That somebody ended a lease: the audit record of `LockProvider.break_lease`. ``at`` is in wall-clock seconds."""

    key: str
    token: int
    reason: str
    who: str
    at: float


class Lease(Protocol):
    """Held until ``deadline`` (local monotonic seconds) unless renewed, released or lost. A context manager.

    Leaving the block releases. A loss that nobody noticed is raised there as `LockLostError`; if the body failed, its
    exception stays and gets a note. After an explicit `release` inside the block, leaving it does nothing.
    """

    key: str
    owner: str
    token: int

    @property
    def deadline(self) -> float:
        """Local monotonic time after which the lease must not be relied on; renewals move it."""
        ...

    @property
    def lost(self) -> str | None:
        """Why it is gone: expired, stolen, unreachable, max_hold, forked, or "released"; None while it is held."""
        ...

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        ...

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call once with the reason, within a second of the loss, on a thread for such calls (at once and on this thread
        if it is lost already). Keep it short: calls are made one after another.
        """
        ...

    def release(self) -> Release:
        """Give the lock back. Never raises for a lost lease and never touches a successor's."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class Capabilities(Protocol):
    """What may be promised of a lock service; the table of providers in the docs is generated from it.

    ``fair`` says whether waiters are served in order; ``durable_tokens`` whether tokens survive a restart of the
    backend; ``lifts_tokens`` whether it can be told to grant above a token it never gave (``above=``). Where it cannot,
    asking raises `TokenRegressedError` instead of granting too small a one, and whoever keeps tokens compares them as
    (generation, token).
    """

    # Plain attributes will do; they are only read.
    @property
    def fair(self) -> bool: ...
    @property
    def durable_tokens(self) -> bool: ...
    @property
    def lifts_tokens(self) -> bool: ...


class LockProvider(Capabilities, Protocol):
    """Opened by URL (`open_provider`); holds addresses until first use, so it pickles and survives fork."""

    @property
    def url(self) -> str: ...

    def try_acquire(
        self,
        key: str,
        *,
        lease_s: float | None = None,
        token_above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
    ) -> Lease | None:
        """A lease whose token exceeds ``above``, or None when the key is busy. ``lease_s=None``: the URL's value."""
        ...

    def acquire(
        self,
        key: str,
        *,
        wait_s: float,
        lease_s: float | None = None,
        token_above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
    ) -> Lease:
        """Wait for the key. Raises `LockTimeoutError` naming the holder; nothing is held then."""
        ...

    def inspect(self, key: str) -> Holder | None:
        """Who holds the key now, or None."""
        ...

    def break_lease(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the lease that has ``token``, leaving an audit record; False when that is no longer the holder."""
        ...

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """What `break_lease` did to the key, oldest first; the last `BREAKS_KEPT` of them."""
        ...

    def close(self) -> None:
        """Release nothing of others, stop the own threads. Twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...
