"""The parts that the work of a plan consists of: each knows all that it needs, so that any process may do it.

A part writes the same files with the same rows under the same names wherever it runs, and however often. Whoever executes
a plan hands its parts to a `Runner`: this process, one after another, or tasks of Spark.
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
    """The execution of a plan, as a runner sees it: its T, its service's name, its table."""

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
        """Of the files that it reads, as a measure of its work; None where the plan does not tell."""

    def run(self) -> list[WriteStat]:
        """Do it; returns the files that it wrote."""


# Does all parts, in any order; yields for each, when it is done, what it returned.
Runner = Callable[[Executing, Sequence[Part]], Iterable[list[WriteStat]]]


def one_by_one(_execution: Executing, parts: Sequence[Part]) -> Iterator[list[WriteStat]]:
    """The runner of a process that does everything itself."""
    for part in parts:
        yield part.run()


def refuse_no_runner(runner: object) -> None:
    """Raise `ConfigError` for what cannot be called."""
    if not callable(runner):
        raise ConfigError(
            f"runner={runner!r} cannot be called; leave it out, or use the methods of SparkTable; nothing was planned"
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """A data file goes, which may have gone before."""

    store: Store
    path: str
    bytes: ClassVar[int] = 64 << 10  # a request takes about as long as reading these

    def run(self) -> list[WriteStat]:
        """See `Part`."""
        delete_data_file(self.store, self.path)
        return []
