"""The result of a write of rows run by `run`, and the bounds of its retries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from ...arguments import Isolation, unknown_argument
from ...errors import BatchLandedError, InputError
from ...hudi.timeline import WriteStat
from ...progress import ProgressOption
from ..entries import BatchGiven

if TYPE_CHECKING:
    from ..turns import Asked
    from .retry import RunResult
    from .transaction import Transaction


# Other arguments of the verbs, suggested for a misspelled one.
_OF_VERBS = (
    "rows",
    "keys",
    "where",
    "set",
    "missing",
    "new_columns",
    "zone",
    "partition",
    "partitions",
    "sort",
    "sort_by",
)


class Retries(TypedDict, total=False):
    """The bounds of a write's retries, named and defaulted as in `Table.run`."""

    attempts: int
    timeout_s: float
    backoff_s: float
    lost_work_max_s: float | None
    isolation: Isolation | None
    reserve: Asked | None
    reserve_after: int | None
    batch: BatchGiven | None
    note: Mapping[str, str] | None


class WriteOptions(Retries, total=False):
    """The bounds of the retries, and a progress callback, or True for a bar on stderr.

    ``progress`` is called with a `Progress` of the rows done so far for each file that is written; an error it raises
    ends and aborts the write.
    """

    progress: ProgressOption | None


def refuse_unknown(given: Mapping[str, Any], options: type[Retries] = Retries) -> None:
    """Raise `InputError` for an argument that is none of these options."""
    known = [name for kind in (Retries, options) for name in kind.__annotations__]
    if unknown := set(given) - set(known):
        raise InputError(unknown_argument(min(unknown), known, more=_OF_VERBS))


@dataclass(frozen=True, repr=False)
class WriteResult:
    """A committed write; ``instant`` is None if there was nothing to change, or its transaction has not ended yet.

    Attributes:
        instant: requested time T.
        completion: completion time C, the ``after`` of an incremental reader.
        attempts: the number of runs of the transaction; all but the last lost to another writer.
        losses: the errors of the lost attempts.
        stats: one entry for each file written.
        wasted_s: seconds that the lost attempts took.
        took_s: seconds of all attempts, with what was waited for.
        repeated: its ``batch`` was committed before, so nothing was written; ``instant`` is that of the newest batch of
            its source.
    """

    operation: str
    instant: str | None
    completion: str | None
    attempts: int
    losses: tuple[Exception, ...]
    stats: tuple[WriteStat, ...]
    wasted_s: float = 0.0
    repeated: bool = False
    took_s: float = 0.0

    @classmethod
    def of(cls, done: RunResult[Transaction]) -> WriteResult:
        """Make the result of a run whose function returned its transaction."""
        commit, changes = done.commit, done.value.workspace.changes
        return cls(
            changes.label.lower(),
            commit.instant if commit else None,
            commit.completion if commit else None,
            done.attempts,
            done.losses,
            changes.stats if commit else (),
            done.wasted_s,
            took_s=done.took_s,
        )

    @classmethod
    def again(cls, operation: str, error: BatchLandedError) -> WriteResult:
        """Make the result of a write whose batch was committed before."""
        return cls(operation, error.instant, None, 0, (), (), repeated=True)

    @property
    def inserted(self) -> int:
        """Inserted rows."""
        return sum(s.num_inserts for s in self.stats)

    @property
    def updated(self) -> int:
        """Updated rows."""
        return sum(s.num_updates for s in self.stats)

    @property
    def deleted(self) -> int:
        """Deleted rows of rewritten file groups; neither an overwrite nor a drop of partitions counts the rows that go."""
        return sum(s.num_deletes for s in self.stats)

    @property
    def files(self) -> int:
        """Files written."""
        return len(self.stats)

    @property
    def bytes(self) -> int:
        """Bytes of these files."""
        return sum(s.file_size for s in self.stats)

    def __repr__(self) -> str:
        if self.repeated:
            return f"<{self.operation}: its batch landed before, by {self.instant}; nothing was written again>"
        if self.instant is None and not self.stats:
            return f"<{self.operation}: nothing to change>"
        rows = ", ".join(f"{getattr(self, name):,} {name}" for name in ("inserted", "updated", "deleted"))
        files = f"{self.files:,} file{'' if self.files == 1 else 's'}"
        if self.instant is None:
            return f"<{self.operation}, not committed yet: {rows}; {files}, {self.bytes:,} bytes>"
        tries = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}, {self.took_s:.3g} s"
        return f"<{self.operation} {self.instant}: {rows}; {files}, {self.bytes:,} bytes; {tries}>"
