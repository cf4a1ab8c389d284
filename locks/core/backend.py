"""What a lock service has to offer, so that `LeasedLocks` can make a provider of it.

The smallest one is in memory.py. A backend says how to take a key once, how to wait in its own line, who holds a key
and how to end that; `Grant` (held.py) is what it hands out.
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
    waits: bool  # True: the caller will wait, so it must not overtake those who wait already


class Contender(Protocol):
    """A place in the backend's own line for one key."""

    def wait(self, limit_s: float) -> None:
        """Block until another try is worth its cost, at most ``limit_s``. The backend decides the pace."""
        ...

    def leave(self) -> None:
        """Leave no trace, not even of a request whose answer was lost. Called once if no grant came; with a grant, the
        grant has taken the place over.
        """
        ...


class Backend(Capabilities, Protocol):
    """The few things that differ between lock services. Raises `StorageError` or `LockError` when it cannot answer.

    ``max_leases`` is the number of leases that one process can keep alive here, as measured (None: as many as fit in
    memory); more are refused. ``requests`` counts the requests that went to the server since the backend was opened.

    A backend that cannot count to 2^62 also has ``above_max``, the largest ``above`` that leaves it room to count on.

    A backend may also have ``renew_many(grants: list[Grant]) -> list[bool | Exception]``: the answers of `Grant.renew`
    for grants of its own, in order, got in fewer round trips. Renewals of one place are never made at the same time
    as one another. Every request is bounded well below the lease, because it holds up the others.
    """

    @property
    def max_leases(self) -> int | None: ...
    @property
    def requests(self) -> int: ...

    def line_up(self, key: str) -> Contender:
        """A place for one request; touches the backend if that needs to know who waits."""
        ...

    def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
        """One try; None when the key is busy. Raises `TokenRegressedError` where a token above ``ask.above`` cannot be had."""
        ...

    def inspect(self, key: str) -> Holder | None:
        """Who holds the key now."""
        ...

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Break the grant that has ``token`` and keep a record; False when it is not the holder."""
        ...

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """What `end` did to the key, oldest first."""
        ...

    def close(self) -> None:
        """Free connections and threads. Called when the provider is closed and its last lease has ended; twice is fine."""
        ...
