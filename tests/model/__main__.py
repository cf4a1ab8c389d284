"""An exhaustive state search of the commit protocol (docs/model.md): ``python -m tests.model`` runs all and prints a table.

``--traces`` tells how, ``--wide`` runs the long ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import inf

from . import features
from .cases import MISSING, SOUND, WIDE
from .explore import Result, explore
from .features import FEATURES, search
from .rules import Rules
from .search import Search


def main() -> None:
    """Print one line for each search."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Search the commit protocol's states.")
    parser.add_argument("--wide", action="store_true", help="run the searches that take minutes")
    parser.add_argument("--traces", action="store_true", help="print the shortest way to each fault")
    options = parser.parse_args()
    if options.wide:
        for name, bounds in WIDE.items():
            _line(
                f"protocol: {name}", lambda bounds=bounds: explore(Search(Rules(), bounds), states_max=inf, wide=True)
            )  # type: ignore[misc]
    else:
        for name, bounds in SOUND.items():
            _line(f"protocol: {name}", Search(Rules(), bounds).run)
    for title, feature in FEATURES.items():
        for name, bounds in (feature.wide if options.wide else feature.sound).items():
            _line(f"{title}: {name}", lambda title=title, bounds=bounds: search(title, bounds))  # type: ignore[misc]
    if not options.wide:
        for case in MISSING:
            _missing(case.rule, case.traps, Search(case.rules, case.bounds).run(), traces=options.traces)
        for each in features.MISSING:
            _missing(f"{each.feature}: {each.rule}={each.instead}", each.traps, each.search(), traces=options.traces)


def _line(name: str, run: Callable[[], Result]) -> None:
    started = time.process_time()
    result = run()
    seconds = time.process_time() - started
    print(f"{result.states:>10,}  {seconds:6.1f} s  {result.fault or 'no fault'}: {name}", flush=True)


def _missing(rule: str, traps: str, result: Result, *, traces: bool) -> None:
    print(f"without {rule} [{traps}]: {len(result.trace)} steps, {result.states:,} states: {result.fault}", flush=True)
    if traces:
        print(result)


if __name__ == "__main__":
    main()
