"""Weather: real servers and writers on hosts of their own, whose network, clocks, disks and processes fail by a seed.

    python -m tests.weather --seconds 120 --seed 1 [--lock LOCK] [--store s3|disk] [--page FILE]

`hosts` makes the hosts, `servers` the servers, `writer` is a process that writes, `faults` what befalls them, `judge` says
what held, and `page` draws it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from .faults import KINDS
from .hosts import unavailable
from .page import page
from .run import LOCKS, PLACES, STORES, Weather


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="of weather; the calm after it takes half a minute"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lock", choices=LOCKS, default="redis")
    parser.add_argument("--store", choices=STORES, default="s3")
    parser.add_argument("--writers", type=int, default=5)
    parser.add_argument(
        "--only", choices=KINDS, nargs="+", default=tuple(KINDS), help="the kinds of faults; all by default"
    )
    parser.add_argument("--page", type=Path, default=Path("build/weather.html"))
    parser.add_argument("--keep", type=Path, help="a new folder for logs and the history, which stays")
    given = parser.parse_args()
    if (given.lock, given.store) not in PLACES:
        parser.error(f"the JVM job of {given.lock} writes to a disk: --store disk")
    if reason := unavailable():
        sys.exit(f"weather needs network namespaces: {reason}. Run it as root on Linux")
    title = f"{given.seconds:.0f} s of weather, seed {given.seed}, {given.lock} lock, {given.store}"
    with tempfile.TemporaryDirectory(prefix="llw-", ignore_cleanup_errors=True) as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        weather = Weather(
            folder, lock=given.lock, store=given.store, writers=given.writers, seed=given.seed, kinds=given.only
        )
        try:
            weather.begin()
            report = weather.blow(given.seconds)
        finally:
            weather.close()
        if given.keep:
            (folder / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in report.events))
    given.page.parent.mkdir(parents=True, exist_ok=True)
    given.page.write_text(page(title, report), encoding="utf-8")
    print(json.dumps({"weather": title} | report.figures | {"findings": report.findings}, indent=1))
    print(given.page)
    if report.findings:
        sys.exit(1)


if __name__ == "__main__":
    main()
