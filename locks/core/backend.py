"""The interface that a lock service implements; `LeasedLocks` turns it into a provider.

memory.py has the smallest one. A backend tries a key once, waits in its own queue, reports who holds
a key and ends a grant. It hands out a `Grant` (grant.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...environment import Process
from ..interface import BreakRecord, Capabilities, Holder
from .lease import Grant


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One request for a key, as a backend sees it."""

    key: str
    owner: str
    process: Process
    lease_s: float
    max_hold_s: float | None
    token_above: int
    reason: str
    waits: bool  # True: the caller will wait, so it must not overtake earlier waiters


class Contender(Protocol):
    """One request's place in the backend's queue for a key."""

    def wait(self, limit_s: float) -> None:
        """Block until another try is worthwhile, at most ``limit_s``. The backend sets the pace."""
        ...

    def leave(self) -> None:
        """Withdraw from the queue, including any request whose answer was lost.

        Called once if there is no grant; otherwise the grant takes over the place.
        """
        ...


class Backend(Capabilities, Protocol):
    """A lock service. Raises `StorageError` or `LockError` when it cannot answer.

    ``max_leases`` is the measured number of leases that one process can keep alive (None: no
    limit); further ones are refused. ``requests`` counts the requests sent to the server.

    A backend that cannot count to 2^62 also has ``above_max``, the largest ``above`` it accepts.

    A backend may also have ``renew_many(grants: list[Grant]) -> list[bool | Exception]``: the answers of `Grant.renew`
    for grants of its own, in order, got in fewer round trips. Renewals of one place are never made at the same time
    as one another. Every request is bounded well below the lease, because it holds up the others.
    """

    @property
    def max_leases(self) -> int | None: ...
    @property
    def requests(self) -> int: ...

    def line_up(self, key: str) -> Contender:
        """Return a contender for one request. May register it with the service."""
        ...

    def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
        """Try once. Return None when the key is busy.

        Raises `TokenRegressedError` when no token above ``ask.token_above`` can be granted.
        """
        ...

    def inspect(self, key: str) -> Holder | None:
        """Return the current holder of the key, or None."""
        ...

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the grant with ``token`` and record the break. Return False when it is not the holder."""
        ...

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the break records of the key, oldest first."""
        ...

    def close(self) -> None:
        """Free connections and threads, after the provider was closed and its last lease ended.

        Idempotent.
        """
        ...
