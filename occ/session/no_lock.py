"""The lease of a table without a lock (``none://``): the log alone orders commits."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ...locks import Release


class NoLease:
    """A lease that is always held and excludes nobody. A stored setting, never a fallback."""

    key, owner, token = "none", "nobody", 0
    deadline = math.inf
    lost: str | None = None

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Do nothing; this lease cannot be lost."""

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Do nothing; ``call`` is never called."""

    def release(self) -> Release:
        """Do nothing; there is nothing to give back."""
        return Release.RELEASED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass
