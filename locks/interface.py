"""The contract between lock providers and their callers.

A *lock* is a key. A *lease* is the proof that one owner holds it until a deadline, with a *token*: an integer that
grows with every grant of that key. A lease gives progress but does not exclude a paused
holder for good, so a writer attaches the token or validates again (docs/protocol.md).

    t=0   A acquires, lease 10 s, token 7
    t=1   A is suspended
    t=11  A's lease has ended; B acquires, token 8
    t=12  A wakes up; A's local deadline has passed, so `ensure_held` raises without a request

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
    """The outcome of `Lease.release`."""

    RELEASED = "released"
    WAS_LOST = "was lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """The current holder of a key.

    ``since`` and ``until`` are wall-clock seconds as the holder wrote them. ``queue`` lists the
    waiting owners, next one first, as far as the backend shows them.
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
    """The audit record of `LockProvider.break_lease`. ``at`` is in wall-clock seconds."""

    key: str
    token: int
    reason: str
    who: str
    at: float


class Lease(Protocol):
    """A lock held until ``deadline`` (local monotonic seconds) unless renewed, released or lost.

    A context manager that releases on exit. An unnoticed loss is raised there as `LockLostError`;
    if the body failed, its exception stays and gets a note.
    After an explicit `release` inside the block, leaving it does nothing.
    """

    key: str
    owner: str
    token: int

    @property
    def deadline(self) -> float:
        """The local monotonic time after which the lease must not be relied on; renewals move it."""
        ...

    @property
    def lost(self) -> str | None:
        """The reason: expired, stolen, unreachable, max_hold, forked, or "released"; None while the lease is held."""
        ...

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        ...

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call ``call`` once with the reason, within a second of the loss.

        Callbacks run one after another on their own thread, so keep them short. If the lease is
        already lost, ``call`` runs at once on the caller's thread.
        """
        ...

    def release(self) -> Release:
        """Release the lock. Never raises for a lost lease and never touches a successor's."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class Capabilities(Protocol):
    """The guarantees of a lock service. The table of providers in the docs is generated from it.

    ``fair``: waiters are served in order. ``durable_tokens``: tokens survive a restart of the
    backend. ``lifts_tokens``: the backend can grant above a token it never gave
    (``token_above=``). A backend that cannot raises `TokenRegressedError` instead of granting a
    smaller token, and callers that store tokens compare them as (generation, token).
    """

    # Plain attributes will do; they are only read.
    @property
    def fair(self) -> bool: ...
    @property
    def durable_tokens(self) -> bool: ...
    @property
    def lifts_tokens(self) -> bool: ...


class LockProvider(Capabilities, Protocol):
    """A source of leases on keys, opened by URL (`open_provider`).

    It connects at first use, so it can be pickled and survives a fork.
    """

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
        """Return a lease with a token greater than ``token_above``, or None when the key is busy.

        ``lease_s=None`` takes the value of the URL.
        """
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
        """Wait for the key and return its lease.

        Raises `LockTimeoutError`, which names the holder.
        """
        ...

    def inspect(self, key: str) -> Holder | None:
        """Return the current holder of the key, or None."""
        ...

    def break_lease(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the lease with ``token`` and keep an audit record.

        Return False when it is not the holder.
        """
        ...

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the last `BREAKS_KEPT` break records of the key, oldest first."""
        ...

    def close(self) -> None:
        """Stop this provider's threads. Releases no other lease. Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...
