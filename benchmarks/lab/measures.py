"""Figures computed from the operations of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from .operations import ABORTED, DONE, Operation

SHARES = (0.5, 0.9, 0.99, 1.0)
CURVE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)
_LATE_S = 0.005


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest rank; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def figures(operations: list[Operation], seconds: float) -> dict[str, Any]:
    """Return all figures of one run.

    Args:
        operations: with times since the start.
        seconds: its duration; 0: until the last operation ended.
    """
    counted = [each for each in operations if not each.warm]
    elapsed = seconds or max((each.ended for each in counted), default=0.0) or 1e-9
    # Operations that ended later were part of the load, but do not count for the rate.
    done = [each for each in counted if each.outcome == DONE and each.ended <= elapsed]
    waits = [hold.granted - hold.asked for each in counted for hold in each.holds]
    held = [hold.released - hold.granted for each in counted for hold in each.holds if hold.released is not None]
    tries = sum(len(each.tries) for each in counted)
    by_role: dict[str, list[Operation]] = defaultdict(list)
    for each in counted:
        by_role[each.role].append(each)
    return {
        "seconds": round(elapsed, 3),
        "goodput": round(len(done) / elapsed, 2),
        "rows_per_s": round(sum(each.rows for each in done) / elapsed, 1),
        "done": sum(each.outcome == DONE for each in counted),
        "aborted": sum(each.outcome == ABORTED for each in counted),
        "failed_operations": sum(each.outcome not in (DONE, ABORTED) and bool(each.reason) for each in counted),
        "cut_off": sum(each.outcome not in (DONE, ABORTED) and not each.reason for each in counted),
        "attempts_per_commit": round(tries / max(sum(each.outcome == DONE for each in counted), 1), 3),
        "worst_attempts": max((len(each.tries) for each in counted), default=0),
        "lost_tries": dict(Counter(_few(t.reason) for each in counted for t in each.tries if t.reason).most_common(8)),
        "aborts": dict(Counter(_few(each.reason) for each in counted if each.outcome == ABORTED).most_common(8)),
        "errors": dict(
            Counter(_few(each.reason) for each in counted if each.outcome not in (DONE, ABORTED)).most_common(8)
        ),
        "latency_ms": spread([each.ended - each.intended for each in done]),
        "latency_curve_ms": curve([each.ended - each.intended for each in done]),
        "lock_wait_ms": spread(waits),
        "lock_wait_curve_ms": curve(waits),
        "lock_held_ms": spread(held),
        "lock_held_share": round(_held_within(counted, elapsed) / elapsed, 4),
        "never_begun": 0,  # the runner knows
        "late_starts": sum(each.began - each.intended > _LATE_S for each in counted),
        "longest_silence_s": round(_silence(done, elapsed), 3),
        "fairness": _fairness(by_role),
        "roles": {role: _of_role(them, elapsed) for role, them in by_role.items()},
    }


def _few(reason: str) -> str:
    return reason[:80]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds, by name."""
    return {f"p{share * 100:g}" if share < 1 else "max": _ms(percentile(seconds, share)) for share in SHARES}


def curve(seconds: Sequence[float]) -> list[float]:
    """Return milliseconds at each share of `CURVE`; [] for no values."""
    return [_ms(percentile(seconds, share)) for share in CURVE] if seconds else []


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _held_within(operations: list[Operation], elapsed: float) -> float:
    """Return the seconds of the run in which any writer held the lock.

    A holder records the release when the answer arrives. By then the next one may hold the lock, so the two records overlap;
    the common time counts once.
    """
    holds = [(hold.granted, hold.released) for each in operations for hold in each.holds if hold.released is not None]
    held, until = 0.0, 0.0
    for granted, released in sorted(holds):
        end = min(released, elapsed)
        held += max(end - max(granted, until), 0.0)
        until = max(until, end)
    return held


def _silence(done: list[Operation], elapsed: float) -> float:
    """Return the longest time in which no operation ended."""
    ends = sorted({0.0, elapsed, *(each.ended for each in done)})
    return max((b - a for a, b in pairwise(ends)), default=0.0)


def _fairness(by_role: dict[str, list[Operation]]) -> dict[str, Any]:
    """Return operations of the slowest and the fastest writer of the role with most writers."""
    most: dict[int, int] = {}
    for them in by_role.values():
        count = {each.writer: 0 for each in them}
        for each in them:
            count[each.writer] += each.outcome == DONE
        if len(count) > len(most):
            most = count
    least, best = min(most.values(), default=0), max(most.values(), default=0)
    return {
        "slowest": least,
        "fastest": best,
        "ratio": round(least / best, 3) if best else 0.0,
        "each": sorted(most.values()),
    }


def _of_role(operations: list[Operation], elapsed: float) -> dict[str, Any]:
    done = [each for each in operations if each.outcome == DONE]
    return {
        "done": len(done),
        "per_s": round(len(done) / elapsed, 2),
        "aborted": sum(each.outcome == ABORTED for each in operations),
        "attempts_per_commit": round(sum(len(each.tries) for each in operations) / max(len(done), 1), 3),
        "latency_ms": spread([each.ended - each.intended for each in done]),
    }


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Return median, least and greatest."""
    return (median(values), min(values), max(values)) if values else (0.0, 0.0, 0.0)
