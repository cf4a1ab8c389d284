"""Batches of sources in a schedule: many are sent again, by the same writer or by others, and each lands once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lakelatch.occ.entries.batches import NOTHING
from lakelatch.occ.entries.entries import Begin, Commit, End, LogEntry, Open

from .history import Anomaly, Attempt

SOURCES = ("one", "two")


class Sent:
    """Hands out batches. Chosen by a luck of its own, so that the schedules without them stay what they are."""

    def __init__(self, seed: int) -> None:
        self._luck, self._bound = random.Random(seed * 31 + 7), random.Random(seed * 31 + 8)
        self._last: dict[str, int] = {}

    def next(self, newest: Callable[[str], int | None]) -> tuple[Any, ...] | None:
        """None, a new one, or one that somebody has sent already; a third of them follow the ``newest`` that its writer knows."""
        found = self._any()
        if found is None or self._bound.random() < 0.67:
            return found
        after = newest(found[0])
        return found if after is not None and after >= found[1] else (*found, after)

    def _any(self) -> tuple[str, int] | None:
        luck = self._luck
        if luck.random() < 0.2:
            return None
        source = luck.choice(SOURCES)
        last = self._last.get(source, -1)
        again = last >= 0 and luck.random() < 0.5
        number = luck.randint(max(last - 1, 0), last) if again else last + 1
        self._last[source] = max(last, number)
        return source, number


def judge_batches(entries: Iterable[LogEntry], attempts: Sequence[Attempt]) -> None:
    """Raise `Anomaly` unless each batch that landed, and was not taken back, landed once and after those before it."""
    open_now: set[str] = set()
    last: dict[str, tuple[int, str]] = {}
    standing: list[tuple[str, int, str]] = []
    landed: dict[tuple[str, int], str] = {}
    newest = {source: {NOTHING} for source in SOURCES}  # at any time
    follows = {each.instant: each.after for each in attempts if each.after is not None}
    for entry in entries:
        match entry:
            case Begin():
                open_now.add(entry.instant)
            case End():
                open_now.discard(entry.instant)
            case Open():
                open_now = {begin.instant for begin in entry.open}
                carried = {each.batch.source: (each.batch.number, each.instant) for each in entry.batches}
                if carried != last:
                    raise Anomaly(
                        f"the epoch that begins at slot {entry.slot} knows of batches {carried}, and not {last}"
                    )
            case Commit() if entry.instant in open_now:
                open_now.discard(entry.instant)
                if entry.restores:
                    undone = {name.partition("_")[0] for name in entry.undone}
                    standing = [each for each in standing if each[2] not in undone]
                    last = {source: (number, instant) for source, number, instant in standing}
                if entry.batch is not None:
                    source, number = entry.batch.source, entry.batch.number
                    if source in last and last[source][0] >= number:
                        raise Anomaly(f"{entry.instant} landed {entry.batch}, and {last[source]} had landed before")
                    if entry.instant in follows and follows[entry.instant] != last.get(source, (NOTHING, ""))[0]:
                        raise Anomaly(f"{entry.instant} follows {follows[entry.instant]}, and not {last.get(source)}")
                    last[source] = number, entry.instant
                    newest.setdefault(source, {NOTHING}).add(number)
                    standing.append((source, number, entry.instant))
                    landed[source, number] = entry.instant
    for each in attempts:
        if each.outcome == "repeated" and not any(s == each.batch[0] and n >= each.batch[1] for s, n in landed):
            raise Anomaly(f"{each.name} was told that {each.batch} had landed, and nothing of {each.batch[0]} has")
        if each.outcome == "out of order" and not any(n != each.after for n in newest[each.batch[0]]):
            raise Anomaly(f"{each.name} follows {each.after} of {each.batch[0]}, which was the newest, and was refused")
        if each.outcome == "committed" and each.batch[0] and landed.get(each.batch) is None:
            raise Anomaly(f"{each.name} has landed, and the log does not say that it was {each.batch}")
