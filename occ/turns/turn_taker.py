"""The view of a transaction for the code that lets others go first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ...conflict import Claim, Conflict, Reservation, WriteSet
from ...hudi.files import FileGroupId
from ..entries import Begin
from ..session import Session


class TurnTaker(Protocol):
    """The parts of a transaction needed to take its turn.

    Attributes:
        claim: its rank, and its reservation.
        fresh: nothing was done yet, so that it might as well begin later.
        has_lock: it holds the table's lock.
        merges: its writes so far can be merged again.
        lost_on: the file groups on which it yields.
    """

    url: str
    operation: str
    session: Session
    lost_on: tuple[FileGroupId, ...]

    @property
    def instant(self) -> str: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def fresh(self) -> bool: ...
    @property
    def has_lock(self) -> bool: ...
    @property
    def merges(self) -> bool: ...
    def announced(self, other: Begin) -> WriteSet:
        """The write set of another open transaction, as far as it has announced it."""

    def lost_already(self, groups: frozenset[FileGroupId], *, merges: bool) -> Conflict | None:
        """The conflict with a commit since its begin, if it writes these file groups; None if there is none."""

    def size_of(self, groups: Collection[FileGroupId]) -> int:
        """The bytes of these file groups in its snapshot."""

    def abort(self, reason: str) -> None:
        """End it; nothing of it is committed."""

    def begin_anew(self, reserved: Reservation | None) -> None:
        """Begin again in place of an attempt that is over and had done nothing."""
