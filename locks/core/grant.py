"""What a backend grants, and the reasons why a grant ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..interface import Release

EXPIRED, STOLEN, UNREACHABLE, MAX_HOLD, FORKED = "expired", "stolen", "unreachable", "max_hold", "forked"
RELEASED = "released"  # not a loss, but the lease is as gone
NO_ANSWER = "a renewal was sent and not answered"

MEANING = {
    EXPIRED: "its deadline passed before it was renewed (this process was paused or too slow)",
    STOLEN: "somebody else ended it or took the key over",
    UNREACHABLE: "the lock backend did not answer any renewal before the deadline",
    MAX_HOLD: "it was held for as long as max_hold allows",
    FORKED: "it belongs to the parent process; a child of fork holds nothing",
    RELEASED: "it was released",
}


class Grant(Protocol):
    """A granted key. Methods raise `LakeLatchError` or `OSError` when no answer came.

    A grant that was handed over while its contender waited also has ``asked_at``, a local monotonic
    time before the hand-over. Otherwise the lease runs from before `Backend.try_grant`.
    """

    token: int

    def renew(self) -> bool:
        """Renew the grant. False when it is no longer ours."""
        ...

    def check(self) -> bool:
        """Whether the backend still has this grant as the holder."""
        ...

    def release(self) -> Release:
        """End this grant and free its resources; never touches a successor's. Idempotent."""
        ...

    def listen(self, call: Callable[[str], None]) -> None:
        """Have ``call`` told the reason (``STOLEN``, ``EXPIRED``) if the backend itself brings the news that the grant
        has ended; at once if it has ended already, on any thread, more than once if need be; ``call`` returns quickly.
        A backend that brings no news does nothing.
        """
        ...


RenewMany = Callable[[list[Grant]], "list[bool | Exception]"]
