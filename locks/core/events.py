"""Lock events for observers such as metrics.py. Without an observer they cost nothing."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Called on the thread where it happens, so each call is short and never raises."""

    def waited(self, scheme: str, key: str, seconds: float, *, granted: bool) -> None:
        """An `acquire` or `try_acquire` has ended."""
        ...

    def renewed(self, scheme: str, key: str, outcome: str, late_s: float) -> None:
        """A renewal was answered: "ok", "refused", or "failed"; ``late_s`` after it was due."""
        ...

    def ended(self, scheme: str, key: str, seconds: float, reason: str) -> None:
        """A lease was given back ("released") or lost, after ``seconds``."""
        ...

    def broke(self, scheme: str, key: str) -> None:
        """This process broke somebody's lease."""
        ...


class _Current:
    observer: Observer | None = None


current = _Current()


def observe(observer: Observer | None) -> None:
    """Tell ``observer`` what happens to all locks of this process from now on, instead of the one before."""
    current.observer = observer


def scheme_of(place: str) -> str:
    """What metrics are labelled by: there are few schemes, and never more than that."""
    return place.partition(":")[0]
