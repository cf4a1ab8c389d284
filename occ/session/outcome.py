"""The end of a transaction: the result of a commit, and the error messages of the other ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ...conflict import Conflict
from ...errors import (
    BatchConflictError,
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
from ..entries import NOTHING, Batch, Begin, Commit
from ..log import LogState

T = TypeVar("T")
_SHOWN = 3  # file groups named in a message


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A committed transaction.

    Attributes:
        instant: its requested time T.
        completion: its completion time C, the checkpoint for incremental readers.
        slot: its place in the log; transactions that began after it have seen it.
        published: False if the entry is in the log but the timeline could not be written; the next writer does that.
    """

    instant: str
    completion: str
    slot: int
    published: bool = True


class AttemptFacts(Protocol):
    """The facts of a transaction that a message needs."""

    url: str
    operation: str

    @property
    def instant(self) -> str: ...


class Winner(Protocol):
    """The facts of another transaction that a message names."""

    @property
    def instant(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def writer(self) -> str: ...


def is_over(attempt: AttemptFacts, state: str) -> CommitError:
    """The error for using a transaction that has ended."""
    return CommitError(
        f"transaction {attempt.instant} is over ({state}); begin a new one", table=attempt.url, instant=attempt.instant
    )


def ended_by_others(attempt: AttemptFacts) -> RolledBackError:
    """The error of a transaction that others rolled back, because its heartbeat had stopped or seemed to."""
    return RolledBackError(
        f"{attempt.url}: transaction {attempt.instant} was ended by another writer, because its heartbeat had stopped for "
        "the table's time-out. Nothing of it landed; run the write again",
        table=attempt.url,
        instant=attempt.instant,
    )


def refuse_landed(url: str, state: LogState, batch: Batch | None) -> None:
    """Raise unless the batch may be committed in this state.

    Raises:
        BatchLandedError: it, or a later one of its source, is committed.
        BatchConflictError: it follows a batch that is not the newest of its source.
    """
    if batch is None:
        return
    last = state.batches.last(batch.source)
    newest = NOTHING if last is None else last.batch.number
    if last is not None and newest >= batch.number:
        before = "" if newest == batch.number else f"; the newest is {newest}"
        raise BatchLandedError(
            f"{url}: {batch} landed before, by {last.instant}{before}. Nothing was written again, and there is nothing to do",
            table=url,
            instant=last.instant,
            source=batch.source,
            number=batch.number,
            last=newest,
        )
    if batch.after is not None and batch.after != newest:
        wanted = "is to be the first of its source" if batch.after == NOTHING else f"follows {batch.after}"
        found = "there is none (any more)" if last is None else f"the newest is {newest}, by {last.instant}"
        raise BatchConflictError(
            f"{url}: {batch} {wanted}, and {found}. Nothing was written. Ask last_batch({batch.source!r}), and make the batch "
            "that begins there",
            table=url,
            instant=last.instant if last else None,
            source=batch.source,
            number=batch.number,
            last=None if last is None else newest,
        )


def refuse_open(url: str, state: LogState) -> None:
    """Raise `CommitError` if transactions are open: those began without the lock, and neighbours would not know of them."""
    if found := [each for each in state.open.values() if not each.waits]:
        named = ", ".join(f"{each.operation} {each.instant} of {each.writer}" for each in found[:_SHOWN])
        raise CommitError(
            f"{url}: neighbours cannot be let in while transactions are open that began without them: {named}. Nothing was "
            "changed; try again when they have ended",
            table=url,
            instants=tuple(each.instant for each in found),
        )


def log_made_anew(attempt: AttemptFacts) -> RolledBackError:
    """The error of a transaction whose log was replaced: the commits since its begin are unknown, so it must not commit."""
    return RolledBackError(
        f"{attempt.url}: the commit log was made again while {attempt.instant} was open, so what landed meanwhile is not "
        "known. Nothing of it landed; run the write again",
        table=attempt.url,
        instant=attempt.instant,
    )


def forgotten(url: str, instant: str, restore: str) -> CommitStateUnknownError:
    """The error for a commit that was taken back and whose completion time is no longer known."""
    return CommitStateUnknownError(
        f"{url}: {instant} had landed, at a time that is not known any more, when restore {restore} took it back; no state has "
        "had its rows since. Run it again if they should be there",
        table=url,
        instant=instant,
    )


def nothing_left(url: str, what: str, error: BaseException) -> StorageError:
    """The error of a transaction that landed nothing because its process got no more memory or threads."""
    told = StorageError(
        f"{url}: {what} ended, because this process got no more memory or threads ({str(error) or type(error).__name__}). "
        "Nothing landed, and it is safe to run it again: with more memory, or with fewer rows at once",
        table=url,
    )
    told.__cause__ = error
    return told


def outcome_unknown(attempt: AttemptFacts, error: BaseException, *, asked: bool) -> CommitStateUnknownError:
    """The error if the abort could not be written; ``asked``: another writer may still commit it, by its request."""
    why = str(error) or type(error).__name__
    return CommitStateUnknownError(
        f"{attempt.url}: {attempt.instant} "
        + ("may still land by the entry of another writer" if asked else "may have landed")
        + f", because its end could not be written ({why}). Nothing was deleted; `lakelatch timeline` shows what became of it",
        table=attempt.url,
        instant=attempt.instant,
    )


def not_shown(attempt: AttemptFacts, error: BaseException) -> CommitStateUnknownError:
    """The error for a commit that is in the log and not visible to JVM writers, which read only the timeline."""
    return CommitStateUnknownError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} is in the log but not on the timeline, and JVM writers that share "
        f"the table's lock may commit over it: {error}. Nothing was deleted. The next writer publishes it, unless another engine "
        f"has committed before; then `lakelatch adopt` decides. `lakelatch timeline` shows what became of it",
        table=attempt.url,
        instant=attempt.instant,
    )


def clashed(attempt: AttemptFacts, what: str) -> CommitStateUnknownError:
    """The error for a commit that is on the timeline, while whose put another engine may have held the lock too."""
    return CommitStateUnknownError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} is on the timeline, but its lock was lost while it was put, and "
        f"another engine came in {what}. One may hide rows of the other, so it is not acknowledged; nothing was deleted. Read "
        "the rows: what is missing may be written again. `lakelatch check` names what was written over",
        table=attempt.url,
        instant=attempt.instant,
    )


def waited_in_vain(attempt: AttemptFacts, conflict: Conflict, *, planned: bool) -> ConflictError:
    """The error if the winner did not end in time; ``planned``: it is a plan that was not executed."""
    error = lost_against(attempt, conflict, pending="is planned" if planned else "is still running")
    error.add_note(f"waited for {conflict.winner.instant} of {conflict.winner.writer} as long as yield_wait_s allows")
    if planned:
        error.add_note(
            f"`lakelatch services execute {attempt.url} {conflict.winner.instant}` executes that plan, `lakelatch services "
            f"cancel {attempt.url} {conflict.winner.instant}` ends it"
        )
    return error


def reserved_by(url: str, operation: str, begin: Begin, wait_s: float) -> ConflictError:
    """The error of a transaction that could not begin, because another kept its reservation longer than the wait."""
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
    """Work saved by giving up early: bytes of slices not yet written and, by the pace so far, seconds.

    ``spent_s``: seconds of work already done, and lost.
    """

    seconds: float
    bytes: int
    spent_s: float

    def __str__(self) -> str:
        if not self.bytes:
            return ""
        return f"; {self.bytes:,} bytes of file slices are left as they are, about {self.seconds:.1f} s of work"

    def facts(self) -> dict[str, Any]:
        """The details of an error."""
        return {"early": True, "saved_s": self.seconds, "saved_bytes": self.bytes, "spent_s": self.spent_s}


def beaten_early(attempt: AttemptFacts, rival: Winner, overlap: Sequence[FileGroupId], saved: Saved) -> ConflictError:
    """The error of a writer that yields to a winner at work on the same file groups."""
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} gave way to {rival.operation} {rival.instant} of "
        f"{rival.writer}, which is at work on the same file groups{_shown(overlap)}{saved}. Nothing of ours lands; run it "
        "again when that one has ended: Table.run does",
        table=attempt.url,
        instant=attempt.instant,
        **saved.facts(),
        **winner_facts(rival, "it is at work on the same file groups", overlap),
    )


def lost_early(attempt: AttemptFacts, conflict: Conflict, saved: Saved) -> ConflictError:
    """The error of a writer that would lose at its commit, because another has committed."""
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
    """Return `look()`; repeat while a restore is still removing instants.

    Args:
        lost: returns the error if a restore was committed since the begin; earlier restores do not matter to the read.
        shown: returns the instants on the timeline; while they change, another read may succeed.
    """
    last: object = None
    while True:
        try:
            return look()
        except (CorruptTableError, StorageError) as e:
            if (error := lost()) is not None:
                raise error from e
            # An unchanged timeline means that no restore is at work, so the damage is real. A store that fails is not
            # read again.
            before, last = last, shown()
            if last == before or isinstance(e, StorageError):
                raise


def restored_below(attempt: AttemptFacts, restore: Commit) -> ConflictError:
    """The error of a transaction whose snapshot a restore removes."""
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} lost against {restore.operation} {restore.instant} of "
        f"{restore.writer}, which landed first and takes back what ours reads. Nothing of ours landed; run the write again "
        "on the new snapshot: Table.run does",
        table=attempt.url,
        instant=attempt.instant,
        **winner_facts(restore, "a restore stands alone: nothing lands beside it"),
    )


def listed_beside(url: str, restore: Commit) -> ConflictError:
    """The error for a listing of a past state during a restore: some of its files may be gone."""
    return ConflictError(
        f"{url}: {restore.operation} {restore.instant} of {restore.writer} has landed meanwhile and takes back what was looked "
        "for. Nothing landed; run the write again on the new snapshot: Table.run does",
        table=url,
        instant="",
        **winner_facts(restore, "a restore stands alone: nothing lands beside it"),
    )


def lost_against(attempt: AttemptFacts, conflict: Conflict, *, pending: str = "is still running") -> ConflictError:
    """The error of a writer that another beat: it committed first or goes first, and both cannot stand."""
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
