"""One stretch of time as lanes, one per writer, with no more detail than fits a picture. Pure.

A lane has its transactions one by one (``spans``) or, if there are too many to distinguish, counts in equal steps of time
(``bins``). So a page with 100,000 instants draws as few shapes as one with a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError
from .ledger import Ledger, Span

SHAPES = 1200
BINS = 160
ARROWS = 200
_NEWEST = 300
_LEAST_MS = 60_000
# Who was busy in the last minute counts as busy to the end: lanes do not change places between two transactions.
_BUSY_MS = 60_000
_GOOD = frozenset({"landed", "merged"})
_BAD = frozenset({"lost", "rolled back", "aborted", "taken back"})


def stretch(ledger: Ledger, since_ms: int | None, until_ms: int | None, *, now_ms: int) -> tuple[int, int]:
    """Return begin and end: as requested, or those of the newest few hundred transactions; ``since_ms`` 0 begins at the first
    one.

    Raises:
        InputError: it ends before it begins.
    """
    # T is above every T before it, and so ahead of the clock behind one whose clock was, or behind a burst.
    until = max([now_ms, *(each.begin_ms for each in ledger.newest(1))]) if until_ms is None else until_ms
    if since_ms is None:
        newest = ledger.newest(_NEWEST)
        first = min((each.begin_ms for each in newest), default=until)
        ends = [each.end_ms for each in newest if each.end_ms is not None]
        if until_ms is None and ends and len(ends) == len(newest):
            # Nothing is open: end the picture shortly after the last transaction, not now.
            until = min(until, max(ends) + max((max(ends) - first) // 20, 5000))
        since = min(first, until - _LEAST_MS)
    elif since_ms == 0:
        since = min([until - _LEAST_MS, *(lane[0].begin_ms for lane in ledger.lanes.values())])
    else:
        since = since_ms
    if since >= until:
        raise InputError(f"since_ms={since} is not before until_ms={until}; give an earlier one")
    return since, until


def picture(
    ledger: Ledger,
    holds: Mapping[str, Iterable[tuple[int, int]]],
    *,
    since_ms: int,
    until_ms: int,
    now_ms: int,
    lanes: int,
    skip: int = 0,
    writer: str = "",
    gone: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the lanes that were busy between two moments: a page of those that were busy last.

    On a page they stand in the order in which their writers appeared, so that a lane keeps its place while one looks.

    Args:
        ledger: the table's transactions.
        holds: by writer, when it was seen to hold the table's lock.
        since_ms: the beginning, in milliseconds since the epoch; ``until_ms`` the end.
        now_ms: open transactions are drawn until here.
        lanes: how many at most; ``skip`` leaves out that many of the first.
        writer: only lanes with this in their name.
        gone: by instant, when the writer of an open transaction was last heard, if it is dead or silent for too long.
    """
    gone = gone or {}
    wanted = writer.casefold()
    step = max((until_ms - since_ms) / BINS, 1.0)
    busy: list[tuple[int, str, list[Span]]] = []
    overview = [[0, 0, 0] for _ in range(BINS)]
    total = 0
    places = {name: place for place, name in enumerate(ledger.lanes)}
    for name, lane in ledger.lanes.items():
        if wanted and wanted not in name.casefold():
            continue
        seen = [
            each for each in lane
            if each.begin_ms <= until_ms and (now_ms if each.end_ms is None else each.end_ms) >= since_ms
        ]  # fmt: skip
        if not seen:
            continue
        total += len(seen)
        for each in seen:
            _count(overview, each, since_ms, step)
        last = max(now_ms + 1 if each.end_ms is None else each.end_ms for each in seen)
        busy.append((last, name, seen))
    busy.sort(key=lambda item: (-min(item[0], until_ms - _BUSY_MS), places[item[1]]))
    chosen = sorted(busy[skip : skip + lanes], key=lambda item: places[item[1]])
    detailed = _detailed(chosen)
    shown = [
        _lane(
            name, seen, holds.get(name, ()), gone,
            detailed=name in detailed, since_ms=since_ms, until_ms=until_ms, step=step,
        )
        for _, name, seen in chosen
    ]  # fmt: skip
    arrows = _arrows(ledger, shown)
    return {
        "since_ms": since_ms,
        "until_ms": until_ms,
        "now_ms": now_ms,
        "step_ms": step,
        "total": total,
        "lanes_total": len(busy),
        "skip": skip,
        "lanes": shown,
        "arrows": arrows[:ARROWS],
        "arrows_total": len(arrows),
        "overview": overview,
    }


def _detailed(chosen: list[tuple[int, str, list[Span]]]) -> set[str]:
    """Return the lanes shown in detail: the ones with the fewest transactions first, as long as there is room."""
    left, found = SHAPES, set()
    # Small lanes first: the most lanes get their details.
    for _, name, seen in sorted(chosen, key=lambda item: len(item[2])):
        left -= len(seen)
        if left < 0:
            break
        found.add(name)
    return found


def _count(bins: list[list[int]], span: Span, since_ms: int, step: float) -> None:
    """Count a transaction where it ended, or where it began if it is open."""
    place = int(((span.begin_ms if span.end_ms is None else span.end_ms) - since_ms) / step)
    if 0 <= place < len(bins):
        bins[place][0 if span.outcome in _GOOD else 1 if span.outcome in _BAD else 2] += 1


def _lane(
    name: str, seen: list[Span], holds: Iterable[tuple[int, int]], gone: Mapping[str, int], *,
    detailed: bool, since_ms: int, until_ms: int, step: float,
) -> dict[str, Any]:  # fmt: skip
    counts: dict[str, int] = {}
    for each in seen:
        counts[each.outcome] = counts.get(each.outcome, 0) + 1
    lane: dict[str, Any] = {"writer": name, "counts": counts, "spans": None, "bins": None, "waits": [], "holds": []}
    if not detailed:
        bins = [[0, 0, 0] for _ in range(BINS)]
        for each in seen:
            _count(bins, each, since_ms, step)
        lane["bins"] = [[place, *found] for place, found in enumerate(bins) if any(found)]
        return lane
    lane["spans"] = [span_json(each) | {"heard_ms": gone.get(each.instant)} for each in seen]
    lane["waits"] = [[before.end_ms, after.begin_ms] for before, after in _again(seen)]
    lane["holds"] = [[since, until] for since, until in holds if until >= since_ms and since <= until_ms]
    return lane


def _again(seen: list[Span]) -> Iterable[tuple[Span, Span]]:
    """Yield pairs of consecutive attempts of one piece of work: the time between them was waiting."""
    before: dict[int, Span] = {}
    for each in sorted(seen, key=lambda span: (span.begin_ms, span.instant)):
        previous = before.get(each.age)
        if previous is not None and each.age >= 0 and previous.end_ms is not None and previous.end_ms < each.begin_ms:
            yield previous, each
        before[each.age] = each


def _arrows(ledger: Ledger, shown: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return arrows from each loser to its winner, newest first, where both are visible."""
    seen = {span["instant"] for lane in shown for span in lane["spans"] or ()}
    lost = [ledger.spans[name] for name in seen if ledger.spans[name].winner in seen]
    lost.sort(key=lambda span: span.instant, reverse=True)
    return [{"loser": each.instant, "winner": each.winner, "reason": each.reason} for each in lost]


def span_json(span: Span) -> dict[str, Any]:
    """Return plain values."""
    return {
        "instant": span.instant,
        "operation": span.operation,
        "writer": span.writer,
        "begin_ms": span.begin_ms,
        "end_ms": span.end_ms,
        "outcome": span.outcome,
        "completion": span.completion,
        "winner": span.winner,
        "reason": span.reason,
        "reserved": span.reserved,
        "attempt": span.attempt,
        "wasted_s": span.wasted_s,
        "service": span.service,
        "partners": list(span.partners),
        "exact": span.exact,
    }
