"""Refuse entries behind a prepared commit that has no outcome in its log, except begins and ends of others.

    t=0  X, over tables A and B, has prepared in A; B, its home, decides
    t=1  W commits in A, to rows that X has read or written
    t=2  X commits in B: its commit in A was validated on a state without W's

So a writer that meets it settles it first (`settle`). Settings are promises that a commit is validated against; they wait too.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import ConflictError
from ..entries import Commit, End, GroupCommit, LogEntry, Prepare, Setting
from .state import LogState


class UndecidedError(ConflictError):
    """A prepared commit of a transaction over several tables has no outcome in this log yet.

    Attributes:
        prepared: its entry.
    """

    def __init__(self, url: str, prepared: Prepare) -> None:
        commit, home = prepared.commit, prepared.home
        super().__init__(
            f"{url}: {commit.operation} {commit.instant} of {commit.writer} is part of transaction {home.instant} of {home.url} "
            "and waits for its outcome there, so nothing can land behind it. Nothing of ours landed, and a retry is safe; "
            "the next writer settles it, or `lakelatch rollback`",
            table=url,
            instant="",
            winner=commit.instant,
            winner_op=commit.operation,
            winner_writer=commit.writer,
            overlap=(),
            rule="a prepared commit waits for the outcome of its transaction",
        )
        self.prepared = prepared

    def __reduce__(self) -> tuple[object, ...]:
        commit = replace(self.prepared.commit, recent=None)  # it is in this process's memory
        return UndecidedError, (self.details["table"], replace(self.prepared, commit=commit))


def refuse_undecided(url: str, state: LogState, entry: LogEntry | None) -> None:
    """Raise `UndecidedError` if that entry must not go behind one of the prepared commits, or would end it."""
    if isinstance(entry, End):
        if (prepared := state.prepared.get(entry.instant)) is not None:
            raise UndecidedError(url, prepared)
    elif isinstance(entry, Commit | GroupCommit | Prepare | Setting):
        raise UndecidedError(url, next(iter(state.prepared.values())))
