"""Stored results: reading a folder of them, and combining several rounds."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError
from .measures import middle
from .operations import Operation, read_operations

RESULTS = "results.jsonl"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of the rounds' values; zeros if there are none."""
        return cls(*middle(list(values)))

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

    def spread(self, figure: Callable[[dict[str, Any]], float]) -> Spread:
        """Return one figure over the rounds; zeros if any round was wrong, since its rate is meaningless."""
        return Spread.of([] if self.wrong else [figure(run) for run in self.good])

    @property
    def goodput(self) -> Spread:
        """Acknowledged operations per second."""
        return self.spread(lambda run: run["goodput"])

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
        return self.spread(lambda run: run["seconds"])

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
