"""Lock events for observers such as metrics.py. Without an observer they cost nothing."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """A receiver of lock events. Called on the thread where they happen, so each call is short and never raises."""

    def asked(self, scheme: str, key: str) -> None:
        """Record that a lock is asked for, before anything else of it happens."""
        ...

    def waited(self, scheme: str, key: str, seconds: float, *, granted: bool) -> None:
        """Record that an `acquire` or `try_acquire` has ended."""
        ...

    def renewed(self, scheme: str, key: str, outcome: str, late_s: float) -> None:
        """Record the answer to a renewal: "ok", "refused", or "failed". ``late_s`` is the time since it was due."""
        ...

    def ended(self, scheme: str, key: str, seconds: float, reason: str) -> None:
        """Record that a lease was released ("released") or lost, after ``seconds``."""
        ...

    def broke(self, scheme: str, key: str) -> None:
        """Record that this process broke a lease."""
        ...


class _Current:
    observer: Observer | None = None


current = _Current()


def observe(observer: Observer | None) -> None:
    """Report all lock events of this process to ``observer`` from now on, instead of the previous one."""
    current.observer = observer


def scheme_of(place: str) -> str:
    """The label of metrics: a URL's scheme, of which there are only a few."""
    return place.partition(":")[0]
