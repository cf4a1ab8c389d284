"""The interface of a backend's grant, and the reasons why a grant ends."""

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
        """Renew the grant. Return False when it is no longer ours."""
        ...

    def check(self) -> bool:
        """Return whether the backend still has this grant as the holder."""
        ...

    def release(self) -> Release:
        """End this grant and free its resources; never touches a successor's. Idempotent."""
        ...

    def listen(self, call: Callable[[str], None]) -> None:
        """Call ``call`` with the reason (``STOLEN``, ``EXPIRED``) when the backend notifies us that the grant has ended.

        If it has ended already, the call comes at once. It may come on any thread and more than once; ``call`` returns quickly.
        A backend without notifications does nothing.
        """
        ...


RenewMany = Callable[[list[Grant]], "list[bool | Exception]"]
