"""Guard for an append whose entry may be in the log: then a store error must not claim that nothing was committed."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ...errors import CommitStateUnknownError, CorruptTableError, StorageError


class OutcomeGuard:
    """Context of one append. After `about`, an error of the store becomes `CommitStateUnknownError`.

        t=0  W's commit entry gets no answer; it is in the log
        t=1  a restore takes the commit back, and the epochs of both are removed
        t=2  W's entry is put once more, where that epoch was, and does not count
        t=3  W reads on to learn the outcome of its transaction, and the store is out of reach

    An error at t=3 that claims nothing was committed would make W do the same work twice.
    """

    def __init__(self, url: str) -> None:
        self._url, self._what, self._instant = url, "", ""

    def about(self, what: str, instant: str) -> None:
        """Name the object in doubt and its transaction: it got no answer, or may stand where it does not count."""
        self._what, self._instant = what, instant

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._what and isinstance(exc, StorageError | CorruptTableError):
            raise CommitStateUnknownError(
                f"{self._url}: {self._what} may have landed, and what became of it could not be looked up ({exc}). Nothing was "
                "deleted; `lakelatch timeline` shows it",
                table=self._url,
                instant=self._instant,
            ) from exc
