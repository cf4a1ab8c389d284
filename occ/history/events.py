"""The events of a table, as they happen: the entries of its log, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...locks import shown
from ..entries import Begin, Commit, End, LogEntry, Setting
from ..log import LogState, Tail
from ..session import Session


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        slot: its place in the log; events come in this order.
        event: ``begin``, ``plan``, ``commit``, ``abort``, ``rollback`` or ``setting``.
        instant: T; "" for a setting.
        completion: C of a commit.
        operation: the operation that the transaction began as; for a commit, its final one.
        writer: the writer; for a rollback, the one that was rolled back.
        reason: the reason of an end, or the changed settings.
        winner: T of the transaction that an aborted one lost against.
    """

    slot: int
    event: str
    instant: str = ""
    completion: str = ""
    operation: str = ""
    writer: str = ""
    reason: str = ""
    winner: str = ""


def follow(session: Session, *, after: str | None = None, every_s: float = 1.0, ends: bool = False) -> Iterator[Event]:
    """Yield the table's events, until the caller stops.

    Args:
        after: begin after this time (T or C); None: with the next event.
        every_s: seconds between two polls of the log while nothing happens; a poll costs one read and one listing.
        ends: stop at the head of the log instead of waiting for more.
    """
    # To follow from now on, the newest epoch is enough: it begins with the state so far.
    state, tail = LogState(), Tail(session.store, newest=after is None)
    told = after is not None
    while True:
        for entry in tail.read():
            event = _event(entry, state)
            state.apply(entry)
            # Compared by the largest time so far, which grows with the log, because an end has no time of its own.
            if event is not None and told and (after is None or state.top > after):
                yield event
        if ends:
            return
        told = True
        session.env.sleep(every_s)


def _event(entry: LogEntry, state: LogState) -> Event | None:
    """Return the event of an entry; None for entries on transactions that are over, and on the log itself."""
    match entry:
        case Begin():
            name = "begin" if entry.plan is None else "plan"
            return Event(entry.slot, name, entry.instant, operation=entry.operation, writer=entry.writer)
        case Commit() if entry.instant in state.open:
            changed = f"bucket_count={entry.buckets}" if entry.buckets else ""
            return Event(entry.slot, "commit", entry.instant, entry.completion, entry.operation, entry.writer, changed)
        case End() if entry.instant in state.open:
            begin = state.open[entry.instant]
            winner = entry.lost.winner if entry.lost else ""
            reason = entry.lost.rule if entry.lost else entry.reason
            return Event(
                entry.slot, entry.kind, entry.instant, "", begin.operation, begin.writer, reason, winner
            )  # fmt: skip
        case Setting():
            old = state.settings.plain()
            new = {name: value for name, value in entry.settings.plain().items() if value != old[name]}
            changed = ", ".join(f"{name}={shown(value) if name == 'lock' else value}" for name, value in new.items())
            return Event(entry.slot, "setting", writer=entry.who, reason=changed)
    return None
