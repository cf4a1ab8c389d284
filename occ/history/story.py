"""The log's record of one transaction: its begin, its end, the commits in between, and the open ones at its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..entries import Begin, Commit, End, Open, Settings, Single
from ..log import LogState


@dataclass(slots=True)
class Story:
    """The log entries that concern one transaction.

    Attributes:
        begin: its begin; None if the epoch that it began in was removed.
        ending: its commit or end; None while it is open.
        settings: the settings at its end.
        landed: the commits that it was compared with at its end, in slot order.
        pending: the other open transactions at its end.
        attempts: earlier attempts of the same work, oldest first.
        whole: False if some of these commits may be missing, because old epochs were removed.
    """

    instant: str
    begin: Begin | None = None
    ending: Commit | End | None = None
    settings: Settings = field(default_factory=Settings)
    landed: list[Commit] = field(default_factory=list)
    pending: list[Begin] = field(default_factory=list)
    attempts: list[tuple[Begin, End]] = field(default_factory=list)
    whole: bool = True


def tell(entries: Iterable[Single], instant: str) -> Story | None:
    """Build the story of one transaction; return None if the log does not know it."""
    story, state = Story(instant), LogState()
    commits: dict[str, Commit] = {}
    ends: list[tuple[Begin, End]] = []
    first: int | None = None
    for entry in entries:
        first = entry.slot if first is None else first
        ours = state.open.get(instant)
        match entry:
            case Commit() | End() if entry.instant == instant and ours is not None and story.ending is None:
                story.begin, story.ending, story.settings = ours, entry, state.settings
                story.pending = [each for each in state.open.values() if each.instant != instant]
            case Commit() if entry.instant in state.open and story.ending is None:
                commits[entry.instant] = entry
            case End() if entry.instant in state.open:
                ends.append((state.open[entry.instant], entry))
            case Open() if entry.last is not None and story.ending is None:
                # The newest commit of a removed epoch: its slot is unknown, and so is whether the transaction had seen it.
                commits.setdefault(entry.last.instant, entry.last)
        state.apply(entry)
    if story.ending is None:
        story.begin, story.settings = state.open.get(instant), state.settings
        if story.begin is None:
            return None
    begin = story.begin
    assert begin is not None
    since = begin.planned_at if begin.plan is not None else begin.slot
    story.landed = sorted(
        (each for each in commits.values() if each.slot > since), key=lambda each: (each.slot, each.place)
    )
    # The age alone is not unique: several transactions may have begun at one slot.
    work = begin.age, begin.writer
    story.attempts = [(each, end) for each, end in ends if (each.age, each.writer) == work and each.slot < begin.slot]
    story.whole = first is not None and (first <= since or first <= 1)
    return story
