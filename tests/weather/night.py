"""Hours of weather in slices: each has its lock, its store and its seed, and may be the last one for now.

    python -m tests.weather.night --hours 8 [--slice 150] [--locks redis zookeeper] [--stores s3]

``build/weather-night/slices.jsonl`` has a line for each slice that has ended, and ``index.html`` the sum of all. An interrupted
night loses the slice that it was in; the next one goes on with the slice after the last that has ended.
``--measured FILE`` runs nothing and adds the sum to what FILE has of earlier nights: tests/weather/measured.json, from which the
table in docs/guarantees.md is made.
"""

from __future__ import annotations

import argparse
import html
import json
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .hosts import unavailable
from .judge import Recovery, quantiles
from .run import LOCKS, PLACES, STORES, Weather
from .table import LEASE_S

LONG_MINUTES = 5.0  # a shorter life says nothing of what grows
FOLDER = Path("build/weather-night")
MEASURED = Path(__file__).with_name("measured.json")

Slice = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument(
        "--slice", type=float, default=150.0, help="seconds of weather in a slice; its calm and end take a minute"
    )
    parser.add_argument("--locks", choices=LOCKS, nargs="+", default=LOCKS)
    parser.add_argument("--stores", choices=STORES, nargs="+", default=STORES)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of its state")
    parser.add_argument("--measured", type=Path, help="write the sum of all slices there, and run none")
    given = parser.parse_args()
    if given.measured:
        before = json.loads(given.measured.read_text()) if given.measured.exists() else {}
        given.measured.write_text(json.dumps(added(before, measured(slices(given.folder))), indent=1) + "\n")
        return
    if reason := unavailable():
        sys.exit(f"weather needs network namespaces: {reason}. Run it as root on Linux")
    given.folder.mkdir(parents=True, exist_ok=True)
    for ends in (signal.SIGTERM, signal.SIGINT):  # give back what the machine has lent
        signal.signal(ends, lambda *_: sys.exit("interrupted; the next night goes on with this slice"))
    until = time.monotonic() + given.hours * 3600
    places = [each for each in PLACES if each[0] in given.locks and each[1] in given.stores]
    while time.monotonic() < until:
        number = len(slices(given.folder))
        lock, store = places[number % len(places)]
        done = one(given.folder, number, lock, store, seconds=given.slice, writers=given.writers)
        with (given.folder / "slices.jsonl").open("a") as log:
            log.write(json.dumps(done) + "\n")
        (given.folder / "index.html").write_text(page(slices(given.folder)))
        print(
            f"{number}: {lock}, {store}: {done['commits']} commits, {done['findings'] or 'everything held'}", flush=True
        )
    sys.exit(any(each["findings"] for each in slices(given.folder)))


def slices(folder: Path) -> list[Slice]:
    """Return the slices that have ended, in their order."""
    log = folder / "slices.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def one(folder: Path, number: int, lock: str, store: str, *, seconds: float, writers: int) -> Slice:
    """Run a slice; one that cannot be run is a finding."""
    done: Slice = {"number": number, "lock": lock, "store": store, "seconds": seconds, "commits": 0, "recoveries": [],
                   "operations": {}, "used": {}, "at": datetime.now(UTC).isoformat(timespec="seconds")}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="llw-", ignore_cleanup_errors=True) as scratch:
        weather = Weather(Path(scratch), lock=lock, store=store, writers=writers, seed=number)
        try:
            weather.begin()
            report = weather.blow(seconds)
        except Exception as e:
            return done | {"findings": [f"the slice could not be run: {e}", traceback.format_exc()]}
        finally:
            weather.close()
        if report.findings:
            kept = folder / f"history-{number}.jsonl"
            kept.write_text("".join(json.dumps(each) + "\n" for each in report.events))
    return done | {
        "recoveries": report.recoveries, "findings": report.findings, "operations": report.figures["operations"],
        "commits": report.figures["commits"], "used": report.figures["used"],
    }  # fmt: skip


def measured(done: Sequence[Slice]) -> dict[str, Any]:
    """Return the sum of slices.

    Times without a commit count for a fault where it came alone, and for a backend whatever came.
    """
    by_kind: dict[str, list[Recovery]] = defaultdict(list)
    by_lock: dict[str, list[Recovery]] = defaultdict(list)
    faults: Counter[str] = Counter()
    for each in done:
        for kinds, until_commit_s, silence_s in each["recoveries"]:
            faults.update(kinds)
            found = Recovery(tuple(kinds), until_commit_s, silence_s)
            by_lock[each["lock"]].append(found)
            if len(kinds) == 1:
                by_kind[kinds[0]].append(found)
    operations: Counter[str] = Counter()
    for each in done:
        for name, count in each["operations"].items():
            operations[name.rpartition(" ")[2]] += count
    return {
        "hours": round(sum(each["seconds"] for each in done) / 3600, 1),
        "slices": len(done),
        "lease_s": LEASE_S,
        "commits": sum(each["commits"] for each in done),
        "told": dict(sorted(operations.items())),
        "findings": [f"slice {each['number']}: {finding}" for each in done for finding in each["findings"]],
        "faults": {kind: _figures(by_kind[kind]) | {"befell": count} for kind, count in sorted(faults.items())},
        "locks": {lock: _figures(found) for lock, found in sorted(by_lock.items())},
        "used": [
            {"lock": each["lock"], "store": each["store"], "who": name.partition(" ")[0]} | used
            for each in done
            for name, used in each["used"].items()
            if used["minutes"] >= LONG_MINUTES
        ],
    }


def added(one: Any, other: Any, name: str = "") -> Any:
    """Return two nights as one: counts are added, and of two quantiles or leases the larger stands."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: added(one.get(key), other.get(key), key) for key in {**one, **other}}
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, list):
        return one + other
    return max(one, other) if name in ("p50", "p99", "max", "lease_s") else round(one + other, 1)


def _figures(found: Iterable[Recovery]) -> dict[str, Any]:
    found = list(found)
    return {
        "until_the_next_commit_s": quantiles(
            [each.until_commit_s for each in found if each.until_commit_s is not None]
        ),
        "longest_without_a_commit_s": quantiles([each.silence_s for each in found]),
    }


def page(done: Sequence[Slice]) -> str:
    """Return the sum of all slices as HTML."""
    total = measured(done)

    def table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
        head = "<tr><th>what<th>times<th>after healing p50<th>p99<th>longest silence p50<th>p99<th>max"
        lines = [
            f"<tr><td>{html.escape(name)}<td>{each.get('befell', each['longest_without_a_commit_s']['n'])}"
            + "".join(f"<td>{each['until_the_next_commit_s'].get(key, '')}" for key in ("p50", "p99"))
            + "".join(f"<td>{each['longest_without_a_commit_s'].get(key, '')}" for key in ("p50", "p99", "max"))
            for name, each in rows.items()
        ]
        return f"<h2>{html.escape(title)}</h2><table>{head}{''.join(lines)}</table>"

    held = "".join(f"<li><pre>{html.escape(each)}</pre>" for each in total["findings"]) or "<li>Everything held."
    used = "".join(
        f"<tr><td>{html.escape(each['who'])}, {each['lock']}, {each['store']}<td>{each['minutes']}<td>{each['megabytes']}"
        f"<td>{each['memory_growth']:+.1%}<td>{each['descriptors']}<td>{each['descriptors_growth']:+.1%}"
        for each in total["used"]
    )
    return f"""<!doctype html><meta charset="utf-8"><title>A night of weather</title>
<style>body{{font:14px system-ui;margin:24px;color:#222;background:#fff}} td,th{{padding:2px 12px;text-align:right}}
td:first-child{{text-align:left}} pre{{white-space:pre-wrap;margin:0}}</style>
<h1>{total["hours"]} h of weather in {total["slices"]} slices</h1>
<p>{total["commits"]} commits; operations told {html.escape(json.dumps(total["told"]))}. Seconds; leases of {LEASE_S:g} s. Network
delays come from proxies: no <code>netem</code> is used.</p>
<h2>What held</h2><ul>{held}</ul>
{table("By fault, where it came alone", total["faults"])}{table("By lock, whatever came", total["locks"])}
<h2>Memory and descriptors of who lived long, last third against the second</h2>
<table><tr><th>who<th>minutes<th>MB<th>growth<th>descriptors<th>growth{used}</table>
"""


if __name__ == "__main__":
    main()
