"""A write of rows with its input read and checked, before it runs in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..turns import Watchful

if TYPE_CHECKING:
    from ..workspace import Workspace


class Writer(Watchful, Protocol):
    """A transaction that writes rows; its workspace is another one after it has begun anew."""

    @property
    def workspace(self) -> Workspace: ...


@dataclass(frozen=True)
class Write:
    """One write: ``stage`` does it in a transaction begun as ``operation``, and again in each further attempt."""

    operation: str
    stage: Callable[[Writer], None]
