"""Hunts the mutants: the simulator has to notice every one of them.

`python -m tests.simulation.hunt [SECONDS] [NAME...]` tries each for so many seconds of CPU and prints what caught it. A
hunt for all of them that nobody survives writes the table in mutants.md.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from multiprocessing import Pool
from pathlib import Path

from lakelatch.errors import LakeLatchError

from . import (
    mutants_of_appends,
    mutants_of_commits,
    mutants_of_coordinators,
    mutants_of_disks,
    mutants_of_neighbours,
    mutants_of_rebase,
    mutants_of_services,
    mutants_of_several,
    mutants_of_signs,
    mutants_of_streams,
)
from .install import simulated
from .mutant import MUTANTS
from .shape import STREAMING, Shape
from .world import prepare, run, words

BROKEN = "by nobody, it does not run: "
DOCUMENT = Path(__file__).with_name("mutants.md")
_BEGIN, _END = "<!-- printed by make mutants -->\n", "<!-- the end of what is printed -->\n"
__all__ = [
    "MUTANTS",
    "broken",
    "hunt",
    "mutants_of_appends",
    "mutants_of_commits",
    "mutants_of_coordinators",
    "mutants_of_disks",
    "mutants_of_neighbours",
    "mutants_of_rebase",
    "mutants_of_services",
    "mutants_of_several",
    "mutants_of_signs",
    "mutants_of_streams",
]


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The library with one rule broken."""
    prepare()
    with ExitStack() as stack:
        for patch in MUTANTS[name].patches():
            stack.enter_context(patch)
        yield


def hunt(name: str, seconds: float, schedules: float = inf) -> tuple[int, float, str]:
    """How many schedules it took to notice the mutant, CPU seconds, and by what; "" when none of so many did."""
    began, seed = time.process_time(), 0
    with broken(name), simulated():
        while seed < schedules and time.process_time() - began < seconds:
            seed += 1
            try:
                run(_shape(name, seed))
            except (AssertionError, LakeLatchError) as e:
                return seed, time.process_time() - began, words(e)
    return seed, time.process_time() - began, ""


def _shape(name: str, seed: int) -> Shape:
    shape = MUTANTS[name].suits(Shape.of(seed).alone())
    # On merge-on-read tables nobody writes, or writers of one kind: a mutant that wants others gets a table for them.
    fits = shape.mix in ("appends", "buckets", "columns", *STREAMING) if shape.writers else True
    return shape if fits else replace(shape, appends=False, merge_on_read=False, streams=0)


def _hunt(task: tuple[str, float]) -> tuple[str, tuple[int, float, str]]:
    try:
        return task[0], hunt(*task)
    except Exception:  # the world that hangs on it cannot travel to the parent
        return task[0], (0, 0.0, BROKEN + traceback.format_exc()[-600:])


def main(seconds: float, names: list[str]) -> int:
    survivors, rows = 0, []
    with Pool() as pool:
        for name, (schedules, spent, caught) in pool.imap(_hunt, [(n, seconds) for n in names or MUTANTS]):
            print(f"{name}: {MUTANTS[name].why}")
            what = f"caught by schedule {schedules} after {spent:.1f} s: {caught[:200]}"
            print(f"    {what if caught else f'SURVIVED {schedules} schedules'}", flush=True)
            survivors += not caught or caught.startswith(BROKEN)
            rows.append(f"| `{name}` | {schedules:,} | {spent:.1f} |\n")
    print(f"{len(names or MUTANTS) - survivors} of {len(names or MUTANTS)} mutants caught")
    if not names and not survivors:
        print_into(DOCUMENT, "".join(rows))
    return 1 if survivors else 0


def print_into(document: Path, rows: str) -> None:
    """The table of the document is what the hunt has found, and not what somebody typed."""
    before, begin, rest = document.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, f"{document} has no place for the table"
    assert end, f"{document} has no end of the table"
    head = "| Mutant | Schedules | Seconds |\n|---|---:|---:|\n"
    document.write_text(f"{before}{begin}{head}{rows}{end}{after}")


if __name__ == "__main__":
    given = sys.argv[1:]
    limit = float(given.pop(0)) if given and given[0].replace(".", "").isdigit() else 60.0
    sys.exit(main(limit, given))
