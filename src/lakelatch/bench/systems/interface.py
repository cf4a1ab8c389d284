"""What an adapter is: a class whose objects make a table, open sessions on it, and read it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..works import Session

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a system is set.

    Attributes:
        name: ``default`` is what a user gets who sets nothing.
        words: for the report; whoever knows the system better can object.
        settings: what the adapter makes of it.
        tries: attempts of an operation that the lab makes with this system, with a jittered pause between two.
    """

    name: str
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 1


class System(Protocol):
    """An adapter. It is made from its settings in every process, so it holds no connection before a call.

    Attributes:
        package: the distribution whose version the report tells.
        works: the verbs of `Session` that it has.
        configurations: those that are measured where nobody asks for one; the first is its best.

    A class may also have ``modules`` that it imports when it is used; ``artifacts``, versions by name of what it needs and is no
    Python package; ``missing()``, what is not here and must be; and ``server``, one of `servers.KINDS`, which each run starts.
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
        """All rows of the table, in the columns of `rows.SCHEMA`."""
        ...
