"""docs/contention.md: measured by the lab, kept in benchmarks/results, and written from what is kept.

    python -m benchmarks.contention --folder DIR     measure with tables in DIR, keep, write the page
    python -m benchmarks.contention                  write the page again from what is kept

DIR should be on a disk, and the machine quiet. Everything that is interrupted leaves page and kept run as they were.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakelatch.bench import Cell, Contender, Plan, Progress, Results, Scenario, contenders, load, measure, read
from lakelatch.bench.report import aborted, charts, conditions, lateness, standalone

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks/results/contention"
PAGE = ROOT / "docs/contention.md"
PICTURES = ROOT / "docs/contention"
TITLE = "# Contention, measured\n\n<!-- written by python -m benchmarks.contention, do not edit -->\n"
# The peers do not look whether a new key is there already.
BEST = {"unique_keys": False}
PEERS = ("delta-rs", "pyiceberg/best", "ducklake/best", "ducklake/files")
# The charts of the page, by the first word of their titles; the lab's own report has all.
_SHOWN = ("Goodput", "Latency")


@dataclass(frozen=True, slots=True)
class Part:
    """Scenarios that are measured with the same numbers of writers, for some seconds or until each has done its work."""

    scenarios: tuple[str, ...]
    writers: tuple[int, ...]
    peers: tuple[str, ...] = PEERS
    operations: int = 0

    def loaded(self) -> tuple[Scenario, ...]:
        """Return the scenarios; those of fixed work have a name of their own, so that they stand beside the timed ones."""
        found = map(load, self.scenarios)
        if not self.operations:
            return tuple(found)
        return tuple(
            replace(each, name=f"{each.name}, {self.operations} by each writer", operations=self.operations)
            for each in found
        )


PARTS = (
    # The headline. In a run that ends by the clock a system gains by letting all writers but one starve.
    Part(("appends", "partitions"), (16,), operations=8),
    Part(("appends", "partitions", "hot"), (1, 4, 16)),
    Part(("counter",), (1, 4, 8, 16)),
    Part(("appends", "partitions"), (32,), ()),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise about one of our cells.

    Attributes:
        figure: of our cell, among all of its scenario.
        bound: the least that is wanted, or the most.
    """

    scenario: str
    writers: int
    what: str
    figure: Callable[[Cell, list[Cell]], float]
    bound: float
    least: bool = True
    digits: int = 2

    def told(self, system: str, cells: list[Cell]) -> str:
        """The figure of one of our systems, in bold where it misses the goal."""
        mine = [cell for cell in cells if cell.system == system and cell.writers == self.writers]
        if not mine:
            return "**not measured**"
        if mine[0].wrong or not mine[0].good:
            return "**no rate**"
        value = self.figure(mine[0], cells)
        words = f"{value:.{self.digits}f}"
        return words if (value >= self.bound if self.least else value <= self.bound) else f"**{words}**"


def _times_best_peer(ours: Cell, cells: list[Cell]) -> float:
    """0 where no peer has a rate."""
    peers = [cell.goodput.median for cell in cells if not cell.ours and cell.writers == ours.writers]
    return ours.goodput.median / max(peers) if any(peers) else 0.0


def _times_as_soon(ours: Cell, cells: list[Cell]) -> float:
    """Return the best peer's seconds until all writers are done, of ours; 0 where no peer came to its end."""
    peers = [cell.until_all.median for cell in cells if not cell.ours and cell.good and not cell.wrong]
    return min(peers) / ours.until_all.median if peers else 0.0


def _aborted(ours: Cell, _: list[Cell]) -> float:
    return ours.count("aborted")


def _evenness(ours: Cell, _: list[Cell]) -> float:
    return ours.spread("fairness", "ratio").median


def _kept(ours: Cell, cells: list[Cell]) -> float:
    """Return the share of its best rate over all numbers of writers."""
    return ours.goodput.median / max(cell.goodput.median for cell in cells if cell.system == ours.system)


def _attempts(ours: Cell, _: list[Cell]) -> float:
    return ours.spread("attempts_per_commit").median


GOALS = (
    *(
        Goal(
            f"{scenario}, 8 by each writer",
            16,
            "times as fast as the best peer, until all are done",
            _times_as_soon,
            10,
            digits=1,
        )
        for scenario in ("appends", "partitions")
    ),
    *(
        goal
        for scenario in ("appends", "partitions")
        for goal in (
            Goal(scenario, 16, "times the best peer", _times_best_peer, 10, digits=1),
            Goal(scenario, 16, "false aborts", _aborted, 0, least=False, digits=0),
            Goal(scenario, 16, "slowest to fastest writer", _evenness, 0.8),
            Goal(scenario, 32, "of the rate with the best number of writers", _kept, 0.8),
        )
    ),
    Goal("counter", 8, "times the best peer", _times_best_peer, 2, digits=1),
    Goal("counter", 8, "attempts for each increment", _attempts, 1.3, least=False),
)


def measured(folder: Path, seconds: float, rounds: int, most: int) -> list[dict[str, Any]]:
    """All parts with up to ``most`` writers, one after another: the lines of one ``results.jsonl``."""
    machine: dict[str, Any] = {}
    lines: list[dict[str, Any]] = []
    for part in PARTS:
        writers = tuple(each for each in part.writers if each <= most)
        if not writers:
            continue
        with tempfile.TemporaryDirectory() as out:
            plan = Plan(
                part.loaded(), tuple(_contenders(part)), Path(out, "out"), writers=writers,
                seconds=seconds, rounds=rounds, place=str(folder),
            )  # fmt: skip
            measure(plan, _tell)
            found = [json.loads(line) for line in (plan.out / "results.jsonl").read_text().splitlines()]
        machine = machine or found[0]
        for line in found[1:]:
            line.pop("folder", None)  # of the histories, which are not kept
            if line not in lines:  # a peer that is left out, once
                lines.append(line)
    machine["plan"] |= {"scenarios": [], "writers": [], "place": "a folder on a disk"}
    return [machine, *lines]


def _contenders(part: Part) -> list[Contender]:
    default, skipped = contenders(peers=part.peers)
    for words in skipped:
        print(words, file=sys.stderr)
    best, _ = contenders(settings=BEST)
    return [default[0], *best, *default[1:]]


def _tell(progress: Progress) -> None:
    if progress.finished and progress.finished[-1].get("told") is None:
        run = progress.finished[-1]
        run["told"] = True
        rate = run.get("goodput", run.get("failed"))
        print(
            f"{progress.run}/{progress.runs} {run['scenario']} {run['writers']} {run['system']}: {rate}",
            file=sys.stderr,
        )


# --- the page --------------------------------------------------------------------------------------------------------


def text(results: Results) -> str:
    """The page."""
    return TITLE + "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    machine = results.machine
    yield ""
    yield conditions(results)
    if machine["load"] > machine["cores"] / 2:
        yield ""
        yield (
            f"**Other programs used this machine meanwhile** (load {machine['load']:g} on {machine['cores']} cores): the figures "
            "show what the lab tells, and not yet who is faster."
        )
    yield ""
    yield "[What the columns mean](bench.md#results). `make bench-docs FOLDER=DIR` makes these runs and writes this page."
    yield ""
    yield from goals(results)
    for scenario, cells in results.scenarios().items():
        cells = sorted(cells, key=lambda cell: cell.writers)
        yield ""
        yield f"## {scenario[:1].upper()}{scenario[1:]}"
        yield ""
        yield f"{cells[0].about[:1].upper()}{cells[0].about[1:]}."
        yield ""
        for name, words, _ in _pictures(scenario, cells):
            yield f"![{words}](contention/{name})"
        yield ""
        yield from _table(cells)
        yield ""
        yield from (f"- {late}" for cell in cells if (late := lateness(cell)))
    yield ""
    yield "Configurations:"
    yield ""
    yield from (f"- {name}: {words}" for name, words in {c.system: c.configuration for c in results.cells()}.items())
    yield from (f"- not measured: {words}" for words in results.skipped)
    yield ""


def _table(cells: list[Cell]) -> Iterator[str]:
    """Fewer columns than the lab's own report has."""
    fixed = any(cell.fixed for cell in cells)
    first = "s until all are done | /s" if fixed else "/s"
    yield f"| writers | system | {first} | aborted | p50 ms | p99 ms | slowest to fastest |"
    yield f"|---:|---|{'---:|' * (6 if fixed else 5)}"
    for cell in cells:
        if cell.wrong or not cell.good:
            words = cell.wrong or "ended before its end"
            yield f"| {cell.writers} | {cell.system} | **{words}** |{' |' * (5 if fixed else 4)}"
            continue
        p50, p99 = (f"{cell.spread('latency_ms', p).median:.1f}" for p in ("p50", "p99"))
        evenness = cell.spread("fairness", "ratio").median
        until_all = f"{cell.until_all.text(2)} | " if fixed else ""
        rate = cell.goodput.text().replace(" to ", "\N{EN DASH}")
        yield f"| {cell.writers} | {cell.system} | {until_all}{rate} | {aborted(cell)} | {p50} | {p99} | {evenness:.2f} |"


def goals(results: Results) -> Iterator[str]:
    """Return the promises as a table with a column for each of our systems."""
    cells = results.scenarios()
    ours = list(dict.fromkeys(cell.system for cell in results.cells() if cell.ours))
    yield f"| | goal | {' | '.join(ours)} |"
    yield f"|---|---:|{'---:|' * len(ours)}"
    for goal in GOALS:
        told = " | ".join(goal.told(system, cells.get(goal.scenario, [])) for system in ours)
        bound = f"{'>=' if goal.least else '<='} {goal.bound:g}"
        yield f"| {goal.scenario}, {goal.writers} writers: {goal.what} | {bound} | {told} |"


def _pictures(scenario: str, cells: list[Cell]) -> Iterator[tuple[str, str, str]]:
    """Name of the file, words, and the picture."""
    colours = {system: number for number, system in enumerate(dict.fromkeys(cell.system for cell in cells))}
    # One number of writers, as runs of fixed work have, is no curve.
    for chart in charts(cells, colours) if len({cell.writers for cell in cells}) > 1 else []:
        kind = chart.title.split()[0]
        if kind in _SHOWN:
            yield f"{scenario}-{kind.lower()}.svg", f"{scenario}: {chart.title}", standalone(chart)


def pictures(results: Results) -> dict[str, str]:
    """Each picture of the page by its file's name."""
    return {
        name: drawn
        for scenario, cells in results.scenarios().items()
        for name, _, drawn in _pictures(scenario, sorted(cells, key=lambda cell: cell.writers))
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, help="measure, with tables in this folder, which should be on a disk")
    options.add_argument("--seconds", type=float, default=4.0, help="of each system, scenario and number of writers")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--most", type=int, default=64, help="leave larger numbers of writers out, to try it")
    given = options.parse_args()
    if given.folder is not None:
        if not given.folder.is_dir():
            options.error(f"{given.folder} is no folder; make it on the disk that shall be measured")
        lines = measured(given.folder, given.seconds, given.rounds, given.most)
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = read(KEPT)
    PAGE.write_text(text(results))
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    for name, drawn in pictures(results).items():
        (PICTURES / name).write_text(drawn)
    print(f"written: {PAGE.relative_to(ROOT)}, {PICTURES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
