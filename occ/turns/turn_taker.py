"""What a transaction shows of itself to those parts that let others go first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ...conflict import Claim, Conflict, Reservation, WriteSet
from ...hudi.files import FileGroupId
from ..entries import Begin
from ..session import Session


class TurnTaker(Protocol):
    """What a transaction shows of itself to take its turn.

    Attributes:
        claim: its rank among others, and what it has reserved.
        fresh: nothing was done with it yet, so that it could as well begin later.
        has_lock: it holds the table's lock.
        merges: what it wrote so far can be merged again.
        lost_on: the file groups on which it gives way.
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
        """What another open transaction will write, as far as it has said so."""

    def lost_already(self, groups: frozenset[FileGroupId], *, merges: bool) -> Conflict | None:
        """The conflict with what has landed since its begin, if it writes these file groups."""

    def size_of(self, groups: Collection[FileGroupId]) -> int:
        """Bytes of these file groups in its snapshot."""

    def abort(self, reason: str) -> None:
        """End it; nothing of it lands."""

    def begin_anew(self, reserved: Reservation | None) -> None:
        """In place of one that is over and had done nothing."""
