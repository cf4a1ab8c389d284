"""The interface of an adapter: a class whose objects make a table, open sessions on it, and read it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..works import Session

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of a system.

    Attributes:
        name: ``default`` is a system without any settings.
        words: a description for the report, so that experts of the system can object.
        settings: the arguments of the adapter.
        tries: attempts of an operation that the lab makes with this system, with a jittered pause between two.
    """

    name: str
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 1


class System(Protocol):
    """An adapter. It is made from its settings in every process, so it holds no connection before a call.

    Attributes:
        package: the distribution whose version is reported.
        works: the verbs of `Session` that it supports.
        configurations: measured unless one is selected; the first is its best.

    A class may also have ``modules`` that it imports when it is used; ``artifacts``, versions by name of requirements that are no
    Python packages; ``missing()``, missing requirements; and ``server``, one of `servers.KINDS`, which each run starts.
    """

    package: ClassVar[str]
    works: ClassVar[frozenset[str]]
    configurations: ClassVar[tuple[Configuration, ...]]

    def __init__(self, settings: Mapping[str, Any]) -> None: ...

    def create(self, place: str, first: pa.Table) -> None:
        """Make the table at a place that is empty or absent, with its first rows.

        Raises:
            LakeLatchError: it cannot be measured there; the message says why.
        """
        ...

    def open(self, place: str, writer: str, priority: int) -> Session:
        """Open a session. The caller closes it, and uses it in one thread."""
        ...

    def rows(self, place: str) -> pa.Table:
        """Return all rows of the table, in the columns of `rows.SCHEMA`."""
        ...
