"""How a transaction ends: the result of one that landed, and the sentences that the writer of one that did not reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ...conflict import Conflict
from ...errors import (
    BatchLandedError,
    CommitError,
    CommitStateUnknownError,
    ConflictError,
    CorruptTableError,
    DuplicateKeyError,
    RolledBackError,
    StorageError,
)
from ...hudi.files import FileGroupId
from ..entries import Batch, Begin, Commit
from ..log import LogState

T = TypeVar("T")
_SHOWN = 3  # file groups of an overlap that a message names


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A transaction that landed.

    Attributes:
        instant: its requested time T.
        completion: its completion time C, the checkpoint for incremental readers.
        slot: its place in the log; what began after it has seen it.
        published: False when the entry is in but the timeline could not be written; the next writer does that.
    """

    instant: str
    completion: str
    slot: int
    published: bool = True


class Attempt(Protocol):
    """What a message needs to know of a transaction."""

    url: str
    operation: str

    @property
    def instant(self) -> str: ...


class Winner(Protocol):
    """What a message names of another transaction."""

    @property
    def instant(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def writer(self) -> str: ...


def is_over(attempt: Attempt, state: str) -> CommitError:
    """Something was asked of a transaction that has ended."""
    return CommitError(
        f"transaction {attempt.instant} is over ({state}); begin a new one", table=attempt.url, instant=attempt.instant
    )


def ended_by_others(attempt: Attempt) -> RolledBackError:
    """Its heartbeat had stopped, or it looked so."""
    return RolledBackError(
        f"{attempt.url}: transaction {attempt.instant} was ended by another writer, because its heartbeat had stopped for "
        "the table's time-out. Nothing of it landed; run the write again",
        table=attempt.url,
        instant=attempt.instant,
    )


def refuse_landed(url: str, state: LogState, batch: Batch | None) -> None:
    """Raise `BatchLandedError` when the batch, or a later one of its source, has landed up to here."""
    last = state.batches.before(batch)
    if last is None or batch is None:
        return
    before = "" if last.batch == batch else f"; the newest is {last.batch.number}"
    raise BatchLandedError(
        f"{url}: {batch} landed before, by {last.instant}{before}. Nothing was written again, and there is nothing to do",
        table=url,
        instant=last.instant,
        source=batch.source,
        number=batch.number,
        last=last.batch.number,
    )


def log_made_anew(attempt: Attempt) -> RolledBackError:
    """Its candidates are not known, so it must not land."""
    return RolledBackError(
        f"{attempt.url}: the commit log was made anew while {attempt.instant} was open, so what landed meanwhile is not "
        "known. Nothing of it landed; run the write again",
        table=attempt.url,
        instant=attempt.instant,
    )


def forgotten(url: str, instant: str, restore: str) -> CommitStateUnknownError:
    """It landed and was taken back, and nobody knows any more when it had landed."""
    return CommitStateUnknownError(
        f"{url}: {instant} had landed, at a time that is not known any more, when restore {restore} took it back; no state has "
        "had its rows since. Run it again if they should be there",
        table=url,
        instant=instant,
    )


def outcome_unknown(attempt: Attempt, error: BaseException, *, asked: bool) -> CommitStateUnknownError:
    """It was about to end, and the log could not be told so; ``asked``: somebody who had been asked to may still land it."""
    why = str(error) or type(error).__name__
    return CommitStateUnknownError(
        f"{attempt.url}: {attempt.instant} "
        + ("may still land by the entry of another writer" if asked else "may have landed")
        + f", because its end could not be written ({why}). Nothing was deleted; `lakelatch timeline` shows what became of it",
        table=attempt.url,
        instant=attempt.instant,
    )


def not_shown(attempt: Attempt, error: BaseException) -> CommitStateUnknownError:
    """It is in the log, and JVM writers, who go by the timeline alone, do not see it."""
    return CommitStateUnknownError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} is in the log but not on the timeline, and JVM writers that share "
        f"the table's lock may commit over it: {error}. Nothing was deleted. The next writer publishes it, unless another engine "
        f"has committed before; then `lakelatch adopt` decides. `lakelatch timeline` shows what became of it",
        table=attempt.url,
        instant=attempt.instant,
    )


def waited_in_vain(attempt: Attempt, conflict: Conflict, *, planned: bool) -> ConflictError:
    """Whoever goes first has not ended within the time that we wait for others; ``planned``: a plan was not executed."""
    error = lost_against(attempt, conflict, pending="is planned" if planned else "is still running")
    error.add_note(f"waited for {conflict.winner.instant} of {conflict.winner.writer} as long as yield_wait_s allows")
    if planned:
        error.add_note(
            f"`lakelatch services execute {attempt.url} {conflict.winner.instant}` executes that plan, `lakelatch services "
            f"cancel {attempt.url} {conflict.winner.instant}` ends it"
        )
    return error


def reserved_by(url: str, operation: str, begin: Begin, wait_s: float) -> ConflictError:
    """It could not begin: another one has reserved the place, and kept it for longer than one waits."""
    assert begin.reserved is not None
    return ConflictError(
        f"{url}: {operation} waited {wait_s:g} s (yield_wait_s) for {begin.operation} {begin.instant} of "
        f"{begin.writer}, which has reserved {begin.reserved} and is still running. Nothing was written; run it again "
        "later, or raise yield_wait_s",
        table=url,
        instant="",
        **winner_facts(begin, f"it has reserved {begin.reserved}"),
    )


@dataclass(frozen=True, slots=True)
class Saved:
    """What was not done in vain: of the file slices that were still to be written, bytes and, by the pace so far, seconds.

    ``spent_s`` is what was.
    """

    seconds: float
    bytes: int
    spent_s: float

    def __str__(self) -> str:
        if not self.bytes:
            return ""
        return f"; {self.bytes:,} bytes of file slices are left as they are, about {self.seconds:.1f} s of work"

    def facts(self) -> dict[str, Any]:
        """For the details of an error."""
        return {"early": True, "saved_s": self.seconds, "saved_bytes": self.bytes, "spent_s": self.spent_s}


def beaten_early(attempt: Attempt, rival: Winner, overlap: Sequence[FileGroupId], saved: Saved) -> ConflictError:
    """Another writer is at work on the same file groups, and goes first."""
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} gave way to {rival.operation} {rival.instant} of "
        f"{rival.writer}, which is at work on the same file groups{_shown(overlap)}{saved}. Nothing of ours lands; run it "
        "again when that one has ended: Table.run does",
        table=attempt.url,
        instant=attempt.instant,
        **saved.facts(),
        **winner_facts(rival, "it is at work on the same file groups", overlap),
    )


def lost_early(attempt: Attempt, conflict: Conflict, saved: Saved) -> ConflictError:
    """Another writer has landed, so that ours would lose at its commit."""
    winner = conflict.winner
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} stops before its commit: {winner.operation} {winner.instant} of "
        f"{winner.writer} landed first: {conflict.rule}{_shown(conflict.overlap)}{saved}. Nothing of ours lands; "
        f"{conflict.advice}",
        table=attempt.url,
        instant=attempt.instant,
        **saved.facts(),
        **winner_facts(winner, conflict.rule, conflict.overlap),
    )


def undisturbed(look: Callable[[], T], lost: Callable[[], Exception | None], shown: Callable[[], object]) -> T:
    """What the look gives, which may be beside a restore that takes instants from the timeline, one after another.

    Args:
        lost: the error if a restore has landed since; of one that landed before, what is looked at is not concerned.
        shown: what the timeline shows; while that changes it is worth another look.
    """
    last: object = None
    while True:
        try:
            return look()
        except (CorruptTableError, StorageError) as e:
            if (error := lost()) is not None:
                raise error from e
            before, last = last, shown()
            if last == before or isinstance(e, StorageError):
                raise


def restored_below(attempt: Attempt, restore: Commit) -> ConflictError:
    """What its snapshot is made of is being taken away."""
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} lost against {restore.operation} {restore.instant} of "
        f"{restore.writer}, which landed first and takes back what ours reads. Nothing of ours landed; run the write again "
        "on the new snapshot: Table.run does",
        table=attempt.url,
        instant=attempt.instant,
        **winner_facts(restore, "a restore stands alone: nothing lands beside it"),
    )


def listed_beside(url: str, restore: Commit) -> ConflictError:
    """Files of a past state were listed, and perhaps some of them are gone."""
    return ConflictError(
        f"{url}: {restore.operation} {restore.instant} of {restore.writer} has landed meanwhile and takes back what was looked "
        "for. Nothing landed; run the write again on the new snapshot: Table.run does",
        table=url,
        instant="",
        **winner_facts(restore, "a restore stands alone: nothing lands beside it"),
    )


def lost_against(attempt: Attempt, conflict: Conflict, *, pending: str = "is still running") -> ConflictError:
    """Another writer landed first or goes first, and both cannot stand."""
    winner = conflict.winner
    when = "landed first" if winner.landed else pending
    error = DuplicateKeyError if conflict.final else ConflictError
    return error(
        f"{attempt.url}: {attempt.operation} {attempt.instant} lost against {winner.operation} {winner.instant} of "
        f"{winner.writer}, which {when}: {conflict.rule}{_shown(conflict.overlap)}. Nothing of ours landed; {conflict.advice}",
        table=attempt.url,
        instant=attempt.instant,
        **winner_facts(winner, conflict.rule, conflict.overlap),
    )


def winner_facts(winner: Winner, rule: str, overlap: Sequence[FileGroupId] = ()) -> dict[str, Any]:
    """The facts that every `ConflictError` has."""
    return {
        "winner": winner.instant,
        "winner_op": winner.operation,
        "winner_writer": winner.writer,
        "overlap": tuple(map(str, overlap)),
        "rule": rule,
    }


def _shown(overlap: Sequence[FileGroupId]) -> str:
    more = f" and {len(overlap) - _SHOWN} more" if len(overlap) > _SHOWN else ""
    return f" ({', '.join(map(str, overlap[:_SHOWN]))}{more})" if overlap else ""
