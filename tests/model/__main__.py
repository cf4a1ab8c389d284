"""``python -m tests.model``: run all searches and print a table (``--traces``: how; ``--wide``: the long ones)."""

from __future__ import annotations

import argparse
import time

from .cases import MISSING, SOUND, WIDE
from .explore import explore_wide
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
            started = time.monotonic()
            wide = explore_wide(Search(Rules(), bounds))
            print(
                f"{wide.states:>10,}  {time.monotonic() - started:6.1f} s  {wide.fault or 'no fault'}: {name}",
                flush=True,
            )
        return
    for name, bounds in SOUND.items():
        started = time.monotonic()
        result = Search(Rules(), bounds).run()
        print(
            f"{result.states:>10,}  {time.monotonic() - started:6.1f} s  {result.fault or 'no fault'}: {name}",
            flush=True,
        )
    for case in MISSING:
        result = Search(case.rules, case.bounds).run()
        print(
            f"without {case.rule} [{case.traps}]: {len(result.trace)} steps, {result.states:,} states: {result.fault}",
            flush=True,
        )
        if options.traces:
            print(result)


if __name__ == "__main__":
    main()
