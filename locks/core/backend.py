"""The interface that a lock service implements, and what several services share; `LeasedLocks` makes a provider of it.

A backend tries a key once, waits in its own queue, reports the holder of a key and ends a grant. Subclass `Backend`,
`Contender` and `Grant`: their optional abilities have defaults. memory.py has the smallest ones.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...environment import Process
from ..interface import BreakRecord, Holder, Release

EXPIRED, STOLEN, UNREACHABLE, MAX_HOLD, FORKED = "expired", "stolen", "unreachable", "max_hold", "forked"
RELEASED = "released"  # not a loss, but the lease is as gone

LEASES_MAX = 1000  # measured on the local servers (docs/locks.md); more has not been tried
_SHARE = 0.5  # of a third of the lease: the rest is for slow answers and for trying again
_REMEMBERED = 31
_WRITE_S_MIN = 0.0005
_NUMBER_MAX = 2.0**53  # larger ones are no process, and no moment of any clock


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


class Grant(Protocol):
    """A granted key. Methods raise `LakeLatchError` or `OSError` when no answer came."""

    token: int
    asked_at: float | None = None
    """A local monotonic time before the grant, for one that was handed over while its contender waited.

    None: the lease runs from before `Backend.try_grant`.
    """

    def renew(self) -> bool:
        """Renew the grant. Return False when it is no longer ours."""
        ...

    def check(self) -> bool:
        """Return whether the backend still has this grant as the holder."""
        ...

    def release(self) -> Release:
        """End this grant and free its resources; never touches a successor's. Idempotent."""
        ...

    def listen(self, call: Callable[[str], None]) -> None:  # noqa: ARG002 (for those that have notifications)
        """Call ``call`` with the reason (``STOLEN``, ``EXPIRED``) when the backend notifies us that the grant has ended.

        If it has ended already, the call comes at once. It may come on any thread and more than once; ``call`` returns quickly.
        A backend without notifications does nothing, which is the default.
        """
        return


class Contender(Protocol):
    """One request's place in the backend's queue for a key."""

    def wait(self, limit_s: float) -> None:
        """Block until another try is worthwhile, at most ``limit_s``. The backend sets the pace."""
        ...

    def leave(self) -> None:
        """Withdraw from the queue, including any request whose answer was lost.

        Called once if there is no grant; otherwise the grant takes over the place.
        """
        return


class Backend(Protocol):
    """A lock service. Raises `StorageError` or `LockError` when it cannot answer.

    Every request is bounded well below the lease, because it holds up the renewals of others.
    """

    fair: bool
    durable_tokens: bool
    lifts_tokens: bool
    """The guarantees; `lakelatch.locks.Capabilities` says what they mean."""
    max_leases: int | None = None
    """The measured number of leases that one process can keep alive; further ones are refused. None: no limit."""
    above_max: int = 2**62
    """The largest ``token_above`` that it accepts: tokens are integers of 64 bits somewhere, and must have room to grow."""
    batch_max: int = 1
    """The number of grants that `renew_many` renews at once. The release of one of them waits for the answer."""
    requests: int = 0
    """The number of requests sent to the server."""

    def lease_s_max(self) -> float:
        """Return the longest lease in seconds that the service allows; longer ones are shortened to it. May connect."""
        return math.inf

    def line_up(self, key: str) -> Contender:
        """Return a contender for one request. May register it with the service."""
        ...

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Try once. Return None when the key is busy.

        Raises `TokenRegressedError` when no token above ``request.token_above`` can be granted.
        """
        ...

    def renew_many(self, grants: Sequence[Grant]) -> list[bool | Exception]:
        """Return the answers of `Grant.renew` for grants of its own, in order.

        A service that renews several in one request overrides it and sets `batch_max`. Renewals of one place are never
        made at the same time as one another.
        """
        return [grant.renew() for grant in grants]

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
        """Free connections and threads, after the provider was closed and its last lease ended. Idempotent."""
        return


class Capacity:
    """The number of leases that one process can keep alive, estimated from the time of a write.

    One thread renews all leases, each by a request of its own, one after another, within a third of a lease.
    """

    def __init__(self, lease_s: float, guess_s: float) -> None:
        self._lease_s = lease_s
        self._writes_s = deque([guess_s], maxlen=_REMEMBERED)

    def took(self, seconds: float) -> None:
        """Record the duration of a write."""
        self._writes_s.append(seconds)

    @property
    def leases(self) -> int:
        """Estimate from the median of the last writes, so that a single slow one does not count."""
        write_s = sorted(self._writes_s)[len(self._writes_s) // 2]
        return max(1, min(LEASES_MAX, int(_SHARE * self._lease_s / 3 / max(write_s, _WRITE_S_MIN) + 1e-9)))


# Records may come from any writer.


def fields_of(text: str | bytes) -> dict[str, Any]:
    """Return the fields of a record in JSON; {} for anything but a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def number_in(facts: Mapping[str, Any], name: str, default: float | None = None) -> float | None:
    """Return a finite number of at least 0 among the fields of a record, or ``default`` if anything else is there."""
    value = facts.get(name)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX
    return float(value) if usable else default  # type: ignore[arg-type]


def facts_in(facts: Mapping[str, Any], *, since: float = 0.0) -> dict[str, Any]:
    """Return what a record tells of its holder, as `Holder` has it; fields that are missing or odd become harmless ones."""
    text = {name: each if isinstance(each := facts.get(name, ""), str) else "" for name in ("host", "reason")}
    return text | {
        "since": number_in(facts, "since", since),
        "until": number_in(facts, "until"),
        "pid": int(number_in(facts, "pid", 0.0) or 0.0),
    }


def break_of(key: str, value: Mapping[str, Any]) -> BreakRecord | None:
    """Return the break record in ``value``, or None if it is not one."""
    try:
        return BreakRecord(key, int(value["token"]), str(value["reason"]), str(value["who"]), float(value["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
