"""The parts of a plan's work: each is self-contained, so that any process can run it.

A part is idempotent: it writes the same files with the same rows under the same names wherever and however often it runs.
An execution hands its parts to a `Runner`: this process, one after another, or tasks of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from ...errors import ConfigError
from ...hudi.timeline import WriteStat
from ...storage import Store
from ..liveness import delete_data_file

if TYPE_CHECKING:
    from ..session import Session


class Executing(Protocol):
    """The runner's view of an execution: the plan's T, the service's name, the table."""

    @property
    def instant(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def session(self) -> Session: ...


class Part(Protocol):
    """One piece of a plan's work. Pickles."""

    @property
    def bytes(self) -> int | None:
        """The bytes that it reads, as a measure of its work; None if the plan does not say."""

    def run(self) -> list[WriteStat]:
        """Do the work and return the files that were written."""


# Runs all parts, in any order; yields the result of each when it is done.
Runner = Callable[[Executing, Sequence[Part]], Iterable[list[WriteStat]]]


def one_by_one(_execution: Executing, parts: Sequence[Part]) -> Iterator[list[WriteStat]]:
    """Run the parts one after another in this process."""
    for part in parts:
        yield part.run()


def refuse_no_runner(runner: object) -> None:
    """Raise `ConfigError` if the runner cannot be called."""
    if not callable(runner):
        raise ConfigError(
            f"runner={runner!r} cannot be called; leave it out, or use the methods of SparkTable; nothing was planned"
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of a data file; idempotent."""

    store: Store
    path: str
    bytes: ClassVar[int] = 64 << 10  # a request takes about as long as reading these

    def run(self) -> list[WriteStat]:
        """See `Part`."""
        delete_data_file(self.store, self.path)
        return []
