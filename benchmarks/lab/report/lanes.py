"""The timeline of a run, a lane for each writer: it shows waits and the winner of each conflict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..operations import DONE, Operation
from .svg import element, linear, picture, text, ticks, titled

LANES_MAX = 16
_BARS_MAX = 160  # in the window; more cannot be distinguished
_WIDE, _LEFT, _LANE, _TOP = 900.0, 92.0, 24.0, 8.0


def lanes(operations: list[Operation], strikes: Iterable[dict[str, Any]] = ()) -> str:
    """Return the picture of the part of a run in which most attempts were lost; "" if nothing was done.

    Lost attempts are red, successful ones grey, the lock's holder green with the wait for it thin before. An arrow leads from
    a lost attempt to the commit that it lost against, if the system reports it.
    """
    counted = [each for each in operations if not each.warm and each.tries and each.ended]
    writers = sorted({each.writer for each in counted})[:LANES_MAX]
    counted = [each for each in counted if each.writer in set(writers)]
    if not counted:
        return ""
    begin, end = window(counted)
    x = linear(begin, end, _LEFT, _WIDE - 8)
    row = {writer: _TOP + n * _LANE for n, writer in enumerate(writers)}
    high = _TOP + len(writers) * _LANE + 26
    roles = {each.writer: each.role for each in counted}
    inside = [
        element(
            "defs",
            element(
                "marker", element("path", d="M0 0L6 3L0 6z", class_="arrowhead"),
                id="to", markerWidth=6, markerHeight=6, refX=5, refY=3, orient="auto",
            ),
        )
    ]  # fmt: skip
    inside += list(_frame(begin, end, high, [(f"{w} {roles[w]}"[:15], row[w]) for w in writers]))
    seen = [each for each in counted if each.ended >= begin and each.began <= end]
    for each in seen:
        inside += list(_operation(each, row[each.writer], begin, end))
    inside += list(_arrows(seen, {each.commit: each for each in counted if each.commit}, row, begin, end))
    for strike in strikes:
        whom = strike["writer"]
        struck = writers if whom is None else [whom] if whom in row else []  # None: what befalls all of them
        for writer in struck if begin <= strike["at"] <= end else []:
            at = text("✕", x(strike["at"]), row[writer] + 16, text_anchor="middle", class_="strike")
            inside.append(titled(at, f"{'' if whom is None else f'writer {whom}: '}{strike['kind']}"))
    return picture(inside, "who did what when, a lane for each writer", wide=_WIDE, high=high)


def window(operations: list[Operation]) -> tuple[float, float]:
    """Return the time window with most lost attempts that holds as many operations as can be distinguished."""
    ordered = sorted(operations, key=lambda each: each.began)
    size = min(_BARS_MAX, len(ordered))
    lost = [len(each.tries) - 1 + (each.outcome != DONE) for each in ordered]
    score = best = sum(lost[:size])
    first = 0
    for at in range(size, len(ordered)):
        score += lost[at] - lost[at - size]
        if score > best:
            best, first = score, at - size + 1
    shown = ordered[first : first + size]
    return shown[0].began, max(each.ended if size == len(ordered) else each.began for each in shown)


def _frame(begin: float, end: float, high: float, names: list[tuple[str, float]]) -> Iterator[str]:
    x = linear(begin, end, _LEFT, _WIDE - 8)
    for mark in ticks(end - begin, 8):
        if begin + mark <= end:
            at = x(begin + mark)
            yield element("line", x1=at, x2=at, y1=_TOP, y2=high - 22, class_="grid")
            yield text(f"{(begin + mark):.2f} s", at, high - 8, text_anchor="middle")
    for name, y in names:
        yield text(name, 4, y + 15)


def _operation(each: Operation, y: float, begin: float, end: float) -> Iterator[str]:
    place = linear(begin, end, _LEFT, _WIDE - 8)

    def bar(start: float, stop: float, top: float, high: float, kind: str) -> str:
        left, right = place(max(start, begin)), place(min(stop, end))
        return element("rect", x=left, y=y + top, width=max(right - left, 0.8), height=high, class_=kind)

    for number, each_try in enumerate(each.tries, 1):
        if each_try.ended < begin or each_try.began > end:
            continue
        last = number == len(each.tries)
        landed = last and each.outcome == DONE and not each_try.reason
        words = f"{each.name} {each.work}, attempt {number}: {(each_try.ended - each_try.began) * 1000:.1f} ms"
        words += "" if landed else f", lost: {each_try.reason or each.reason or 'nobody knows'}"
        yield titled(bar(each_try.began, each_try.ended, 5.0, 14.0, "landed" if landed else "lost"), words)
    for hold in each.holds:
        released = hold.released if hold.released is not None else each.ended
        if released < begin or hold.asked > end:
            continue
        if hold.granted > begin:
            yield bar(hold.asked, hold.granted, 11.0, 2.0, "waits")
        words = f"{each.name} holds the lock for {(released - hold.granted) * 1000:.1f} ms"
        yield titled(bar(hold.granted, released, 8.0, 8.0, "held"), words)


def _arrows(
    seen: list[Operation], commits: dict[str, Operation], row: dict[int, float], begin: float, end: float
) -> Iterator[str]:
    x = linear(begin, end, _LEFT, _WIDE - 8)
    for each in seen:
        for lost in each.tries:
            winner = commits.get(lost.winner) if lost.winner else None
            if winner is not None and winner.writer in row and winner is not each and begin <= lost.ended <= end:
                to = min(max(winner.ended, begin), end)
                yield element(
                    "path", class_="arrow", marker_end="url(#to)",
                    d=f"M{x(lost.ended):.1f} {row[each.writer] + 12:.1f}L{x(to):.1f} {row[winner.writer] + 12:.1f}",
                )  # fmt: skip
