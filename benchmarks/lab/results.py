"""Figures of a run, computed from its operations; stored results, and how those of two folders differ."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from ..errors import InputError
from .operations import ABORTED, DONE, Operation, read_operations

RESULTS = "results.jsonl"
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
        "lost_tries": _reasons(one.reason for each in counted for one in each.tries if one.reason),
        "aborts": _reasons(each.reason for each in counted if each.outcome == ABORTED),
        "errors": _reasons(each.reason for each in counted if each.outcome not in (DONE, ABORTED)),
        "latency_ms": _percentiles([each.ended - each.intended for each in done]),
        "latency_curve_ms": _curve([each.ended - each.intended for each in done]),
        "lock_wait_ms": _percentiles(waits),
        "lock_wait_curve_ms": _curve(waits),
        "lock_held_ms": _percentiles(held),
        "lock_held_share": round(_held_within(counted, elapsed) / elapsed, 4),
        "never_begun": 0,  # the runner knows
        "late_starts": sum(each.began - each.intended > _LATE_S for each in counted),
        "longest_silence_s": round(_silence(done, elapsed), 3),
        "fairness": _fairness(by_role),
        "roles": {role: _of_role(them, elapsed) for role, them in by_role.items()},
    }


def _reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Count reasons: the most common ones, cut to a length at which they can be compared."""
    return dict(Counter(each[:80] for each in reasons).most_common(8))


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds, by name."""
    return {f"p{share * 100:g}" if share < 1 else "max": _ms(percentile(seconds, share)) for share in SHARES}


def _curve(seconds: Sequence[float]) -> list[float]:
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
        "latency_ms": _percentiles([each.ended - each.intended for each in done]),
    }


# --- stored results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of the rounds' values; zeros if there are none."""
        found = list(values)
        return cls(median(found), min(found), max(found)) if found else cls(0.0, 0.0, 0.0)

    def text(self, digits: int = 1) -> str:
        """Return ``12.3 (11.0 to 13.1)``, without the range if it equals the median."""
        if f"{self.least:.{digits}f}" == f"{self.most:.{digits}f}":
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.most:.{digits}f})"


@dataclass(slots=True)
class Cell:
    """All rounds of one system in one scenario with one number of writers."""

    scenario: str
    about: str
    writers: int
    system: str
    ours: bool
    configuration: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def good(self) -> list[dict[str, Any]]:
        """The rounds that finished, with a correct table."""
        return [run for run in self.runs if "goodput" in run and not run.get("partial")]

    @property
    def wrong(self) -> str:
        """The reason why there is no figure; "" if every round is good."""
        return next((str(run["failed"]) for run in self.runs if "failed" in run), "")

    def spread(self, *path: str) -> Spread:
        """Return one figure over the rounds, by its names in a run; zeros if any round was wrong: its rate means nothing."""
        runs: list[Any] = [] if self.wrong else self.good
        for name in path:
            runs = [run[name] for run in runs]
        return Spread.of(runs)

    @property
    def goodput(self) -> Spread:
        """Acknowledged operations per second."""
        return self.spread("goodput")

    @property
    def fixed(self) -> int:
        """Operations that each writer made, if a run goes on until all have; 0 if it ends by the clock.

        Compare such runs by their seconds. A run that ends by the clock credits a system for letting one writer starve the
        rest.
        """
        return int(self.good[0].get("operations", 0)) if self.good else 0

    @property
    def until_all(self) -> Spread:
        """Seconds until the last writer had made its operations."""
        return self.spread("seconds")

    def count(self, name: str) -> int:
        """Return a number summed over all rounds."""
        return sum(run[name] for run in self.good)

    def reasons(self, name: str) -> Counter[str]:
        """Return numbers by reason over all rounds."""
        found: Counter[str] = Counter()
        for run in self.good:
            found.update(run[name])
        return found


@dataclass(slots=True)
class Results:
    """A folder of results."""

    folder: Path
    machine: dict[str, Any]
    runs: list[dict[str, Any]]
    skipped: list[str]

    @property
    def partial(self) -> bool:
        """True if a run was interrupted."""
        return any(run.get("partial") for run in self.runs)

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """Runs without a figure."""
        return [run for run in self.runs if "failed" in run]

    def cells(self) -> list[Cell]:
        """Return the rounds by cell, in the order in which they were measured."""
        found: dict[tuple[str, int, str], Cell] = {}
        for run in self.runs:
            key = run["scenario"], run["writers"], run["system"]
            if key not in found:
                found[key] = Cell(*key[:1], run["about"], *key[1:], run["ours"], run["configuration"])
            found[key].runs.append(run)
        return list(found.values())

    def scenarios(self) -> dict[str, list[Cell]]:
        """Return cells by scenario."""
        found: dict[str, list[Cell]] = defaultdict(list)
        for cell in self.cells():
            found[cell.scenario].append(cell)
        return dict(found)

    def history(self, run: dict[str, Any]) -> tuple[list[Operation], dict[str, Any]]:
        """Return the operations of a run, and its facts; [] and {} if its folder is gone.

        Facts: ``start`` (monotonic seconds), ``strikes`` (injected faults), ``final`` (the last writer of each shared row).
        """
        folder = self.folder / str(run.get("folder", "nowhere"))
        try:
            facts = json.loads((folder / "run.json").read_text())
        except (OSError, ValueError):
            return [], {}
        return read_operations(folder.glob("writer-*.jsonl"), start=facts["start"]), facts


def read(folder: Path) -> Results:
    """Return the results in a folder. Raises `InputError` if there are none."""
    path = folder / RESULTS
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        kinds = [line["what"] for line in lines]
    except OSError as e:
        raise InputError(
            f"there are no results in {folder}: {e.strerror}; name the folder that was --out of a run"
        ) from e
    except (ValueError, KeyError, TypeError) as e:
        raise InputError(f"{path} is no file of results: {e}") from e
    if "machine" not in kinds:
        raise InputError(f"{path} is no file of results: it does not say on which machine they were taken")
    return Results(
        folder,
        next(line for line in lines if line["what"] == "machine"),
        [line for line in lines if line["what"] == "run"],
        [line["why"] for line in lines if line["what"] == "skipped"],
    )


# --- two folders ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell in both: ``ratio`` is the second's goodput to the first's; ``certain`` if their rounds do not overlap."""

    scenario: str
    writers: int
    system: str
    first: Spread
    second: Spread
    ratio: float
    certain: bool
    note: str = ""


def compare(first: Results, second: Results) -> tuple[list[Difference], list[str]]:
    """Return the common cells, and reasons to doubt the comparison."""
    theirs = {_key(cell): cell for cell in second.cells()}
    found = [_difference(cell, theirs[_key(cell)]) for cell in first.cells() if _key(cell) in theirs]
    doubts = [
        f"{name} is {first.machine.get(name)} in the first and {second.machine.get(name)} in the second"
        for name in ("cores", "memory_mib", "system", "python", "versions")
        if first.machine.get(name) != second.machine.get(name)
    ]
    for name in ("seconds", "operations", "place"):
        a, b = first.machine["plan"].get(name), second.machine["plan"].get(name)
        if a != b:
            doubts.append(f"{name} is {a} in the first and {b} in the second")
    return found, doubts


def _key(cell: Cell) -> tuple[str, int, str]:
    return cell.scenario, cell.writers, cell.system


def _difference(a: Cell, b: Cell) -> Difference:
    x, y = a.goodput, b.goodput
    ratio = y.median / x.median if x.median else 0.0
    apart = y.least > x.most or y.most < x.least
    note = "; ".join(f"{which}: {cell.wrong}" for which, cell in (("first", a), ("second", b)) if cell.wrong)
    return Difference(a.scenario, a.writers, a.system, x, y, ratio, apart and not note, note)
