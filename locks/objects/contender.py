"""A contender for a lock object and its grant; both resolve requests without an answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from ...errors import LockUnavailableError
from ...storage import Outcome, Put
from ..interface import Release
from .pacing import Found, Pace, Rhythm
from .record import LockObject, Names, broken_of, ms

TRIES = 5


class LockObjects(Protocol):
    """The part of the backend that contenders and grants call."""

    @property
    def where(self) -> str:
        """The store's name, for messages."""

    def write(self, path: str, body: bytes, tag: str | None) -> Put:
        """Replace the version with that tag, or create the object."""

    def now(self) -> float:
        """Return the server's time."""

    def look(self, names: Names) -> Found | None:
        """Return the lock object as it is now, or None."""

    def told(self) -> AbstractContextManager[None]:
        """Translate errors inside the block, so that they name the lock."""

    def withdraw(self, place: ObjectPlace) -> None:
        """Make sure that no unanswered write of ``place`` can give it the lock from now on."""


class ObjectPlace:
    """One wait for one key; ``unsure`` holds the version on which an unanswered write may still be carried out."""

    def __init__(self, backend: LockObjects, names: Names, owner: str, pace: Pace, rhythm: Rhythm) -> None:
        self.names = names
        self.owner = owner
        self.pace = pace
        self.rhythm = rhythm
        self.unsure: tuple[str | None] | None = None
        self.wait = pace.wait
        self._backend = backend

    def leave(self) -> None:
        if self.unsure is not None:
            self._backend.withdraw(self)


class ObjectGrant:
    """A grant: the version of the object that we wrote last."""

    def __init__(self, backend: LockObjects, place: ObjectPlace, lease_s: float, found: Found) -> None:
        self.token = found.lock.token
        self._backend = backend
        self._names = place.names
        self._rhythm = place.rhythm
        self._lease_s = lease_s
        self._found = found

    def renew(self) -> bool:
        return self._replace(lambda lock: replace(lock, valid_until_ms=ms(self._backend.now() + self._lease_s)))

    def check(self) -> bool:
        with self._backend.told():
            found = self._backend.look(self._names)
        return found is not None and found.lock.owner == self._found.lock.owner and not found.lock.expired

    def release(self) -> Release:
        ours = self._replace(lambda lock: replace(lock, expired=True))
        if ours:
            self._rhythm.left(self._found)
        return Release.RELEASED if ours else Release.WAS_LOST

    def listen(self, call: Callable[[str], None]) -> None:
        """Do nothing: a store sends no notifications."""

    def _replace(self, change: Callable[[LockObject], LockObject]) -> bool:
        """Replace our own version.

        Without a clear answer the owner in the object says what happened.
        """
        backend, owner = self._backend, self._found.lock.owner
        with backend.told():
            for _ in range(TRIES):
                new = change(self._found.lock)
                put = backend.write(self._names.lock, new.encode(), self._found.tag)
                if put.done and put.tag is not None:
                    self._found = Found(new, put.tag)
                    return True
                found = backend.look(self._names)
                if found is None:
                    return False
                if found.lock == new:
                    self._found = found
                    return True
                if found.lock.owner != owner:
                    # Taken by another after our release was carried out, unless a break came before it.
                    broken = [record.token for record in broken_of(self._names.key, found.lock)]
                    return put.outcome is Outcome.UNKNOWN and new.expired and self.token not in broken
                if found.lock.expired:
                    return False
                self._found = found  # an earlier write of ours was carried out late
        raise LockUnavailableError(
            f"The store at {backend.where} gave no clear answer {TRIES} times about lock {self._names.key!r} (token "
            f"{self.token}). It ends at the latest when its lease does",
            key=self._names.key,
            token=self.token,
        )
