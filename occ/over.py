"""How a transaction ends: the result of one that landed, and the sentences that the writer of one that did not reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..conflict import Conflict
from ..errors import CommitError, ConflictError, RolledBackError

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
    instant: str
    operation: str


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


def log_made_anew(attempt: Attempt) -> RolledBackError:
    """Its candidates are not known, so it must not land."""
    return RolledBackError(
        f"{attempt.url}: the commit log was made anew while {attempt.instant} was open, so what landed meanwhile is not "
        "known. Nothing of it landed; run the write again",
        table=attempt.url,
        instant=attempt.instant,
    )


def lost_against(attempt: Attempt, conflict: Conflict) -> ConflictError:
    """Another writer landed first or goes first, and both cannot stand."""
    winner, overlap = conflict.winner, [str(group) for group in conflict.overlap]
    shown = ", ".join(overlap[:_SHOWN]) + (f" and {len(overlap) - _SHOWN} more" if len(overlap) > _SHOWN else "")
    when = "landed first" if winner.landed else "is still running"
    where = f" ({shown})" if shown else ""
    return ConflictError(
        f"{attempt.url}: {attempt.operation} {attempt.instant} lost against {winner.operation} {winner.instant} of "
        f"{winner.writer}, which {when}: {conflict.rule}{where}. Nothing of ours landed; {conflict.advice}",
        table=attempt.url,
        instant=attempt.instant,
        winner=winner.instant,
        winner_op=winner.operation,
        winner_writer=winner.writer,
        overlap=tuple(overlap),
        rule=conflict.rule,
    )
