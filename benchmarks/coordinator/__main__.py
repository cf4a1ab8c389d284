"""Measure a commit coordinator against the same without one, and against delta-rs.

    python -m benchmarks.coordinator --all [--rounds 3]      # a table in Markdown behind the raw numbers, about 20 minutes
    python -m benchmarks.coordinator [--store far,disk,memory,s3] [--writers 1,16,64] [--arms alone,coordinator] [--rounds 3]
                                     [--published s3-standard] [--commits 8] [--kills]
    python -m benchmarks.coordinator --memory                # of a coordinator with 256 connections and 100,000 file groups

Stores and arms: benchmarks/coordinator/rates.py. The arms take turns, and medians of the rounds are told. `--published`: each
request to ``far`` takes what is drawn from published latencies (benchmarks/latencies.py). `--commits`: until each writer has made
so many. `--kills`: the coordinator is killed half-way. `--events`: each writer has a stream of one wide row. `--profile FILE`
keeps the profile of one writer. versitygw and redis-server are looked for on the PATH.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Sequence
from typing import Any

from .._report import machine, show
from ..commits.simulated import measured
from ..latencies import STORES, Published
from .memory import memory
from .rates import measure, places

CONNECTIONS, GROUPS = 256, 100_000


def turns(
    kind: str,
    writers: int,
    arms: Sequence[str],
    rounds: int,
    *,
    latency: float | Published = 0.0,
    folder: str | None = None,
    **how: Any,
) -> dict[str, dict[str, Any]]:
    """Measure the arms in turn on new tables; return the medians of each arm's sound runs."""
    found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    with places(kind, latency, folder) as new:
        for number in range(rounds * len(arms)):
            arm, place = arms[number % len(arms)], new(number)
            one = measure(place, arm, writers, **how)
            show(kind, one)
            if "failed" not in one:
                found[arm].append(one)
            if "://" not in place.url:
                shutil.rmtree(place.url, ignore_errors=True)
    medians = {}
    for arm, runs in found.items():
        keys = [key for key in (runs[0] if runs else {}) if key not in ("arm", "writers")]
        medians[arm] = {"runs": len(runs)} | {key: statistics.median(each[key] for each in runs) for key in keys}
        show(f"{kind}, median", {"arm": arm, "writers": writers} | medians[arm])
    return medians


_COLUMNS = ("commits_s", "p50_ms", "p99_ms", "requests", "fair", "cpu_ms", "coordinator_cpu_ms")


def everything(rounds: int, seconds: float, folder: str | None) -> list[str]:
    """Measure all that the coordinator is to reach, and return it as Markdown."""
    lines = [
        f"| Store | writers | | runs | {' | '.join(_COLUMNS)} |",
        f"|---|---:|---|---:|{'---:|' * len(_COLUMNS)}",
    ]
    others = list[str]()

    def rates(kind: str, name: str, writers: int, *arms: str, latency: float | Published = 0.0, **how: Any) -> None:
        found = turns(kind, writers, arms, rounds, latency=latency, folder=folder, seconds=seconds, **how)
        for arm, facts in found.items():
            cells = " | ".join(str(facts.get(each, "")) for each in _COLUMNS)
            lines.append(f"| {name} | {writers} | {arm} | {facts['runs']} | {cells} |")

    far = "s3" if shutil.which("versitygw") else "far"
    others.append(f"- 20 ms a request: `{far}`" + ("" if far == "s3" else ", as versitygw is not on the PATH"))
    compared = ("delta",) if far == "s3" else ()
    for writers in (1, 16, 64):
        rates(far, "20 ms", writers, "alone", "coordinator", "at-once", *compared, latency=0.02)
        rates("disk", "disk", writers, "alone", "coordinator")
    for name in ("s3-standard", "s3-express"):
        rates("far", name, 64, "coordinator", "at-once", latency=STORES[name])
    for kind in ("memory", "disk"):
        found = turns(kind, 16, ("alone", "coordinator", "delta"), rounds, folder=folder, seconds=seconds, commits=8)
        told = ", ".join(f"{arm} {facts.get('all_s')} s" for arm, facts in found.items())
        others.append(f"- 16 writers until each has made 8 commits, {kind}: {told}")
    killed = turns("disk", 16, ("coordinator",), rounds, folder=folder, seconds=seconds, kills=True)["coordinator"]
    others.append(
        f"- kill -9 of the coordinator, 16 writers: the last first commit after {killed.get('first_s')} s, half of them after "
        f"{killed.get('median_first_s')} s; {killed.get('before')} commits a second before, {killed.get('after')} after"
    )
    held = memory(CONNECTIONS, GROUPS, 2)
    show("memory", held)
    others.append(f"- memory with {CONNECTIONS} connections and {GROUPS:,} file groups: {held['peak_mb']} MB at most")
    others += [
        "",
        "Virtual time, lock 5 ms:",
        "",
        "| Store | writers | in order: a second, p99 s | at once |",
        "|---|---:|---|---|",
    ]
    for name, latency in (("20 ms", None), *STORES.items()):
        for writers in (16, 64):
            cells = list[str]()
            for at_once in (False, True):
                facts = measured(
                    writers,
                    10,
                    0.02,
                    0.0,
                    1,
                    lock_s=0.005,
                    coordinated=True,
                    published=latency,
                    publish_at_once=at_once,
                )
                show(name, facts | {"at_once": at_once})
                cells.append(f"{facts['commits_per_s']}, {facts['p99_s']}")
            others.append(f"| {name} | {writers} | {' | '.join(cells)} |")
    return [*lines, "", *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--store", default="far,disk")
    parser.add_argument("--writers", default="1,16,64")
    parser.add_argument("--arms", default="alone,coordinator")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a run; 10 by default, 6 with --all")
    parser.add_argument("--commits", type=int, default=0, help="of each writer, instead of a time")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--request-ms", type=float, default=20.0)
    parser.add_argument("--published", choices=sorted(STORES), help="latencies of requests to `far`")
    parser.add_argument(
        "--folder", default=None, help="on the disk to be measured; the one for temporary files otherwise"
    )
    parser.add_argument("--rounds", type=int, default=1, help="the arms in turn, so often")
    parser.add_argument("--profile", default="", help="a file for the profile of one writer")
    given = parser.parse_args()
    import pyarrow.parquet  # noqa: F401 - imported once, and not by each writer

    import lakelatch.occ.table
    import lakelatch.server  # noqa: F401

    began, facts = time.monotonic(), machine("redis", "uvicorn", "deltalake")
    show("machine", facts)
    if given.all:
        found = everything(given.rounds, given.seconds or 6.0, given.folder)
        head = (
            f"{facts['cores']} cores, load before {facts['load_before']}, {(time.monotonic() - began) / 60:.0f} minutes"
        )
        print("\n".join(("", head, "", *found)))
        return
    if given.memory:
        show("memory", memory(given.connections, given.groups, 2))
        return
    for kind in given.store.split(","):
        for writers in map(int, given.writers.split(",")):
            turns(
                kind, writers, given.arms.split(","), given.rounds, folder=given.folder,
                latency=STORES[given.published] if given.published else given.request_ms / 1000, seconds=given.seconds or 10.0,
                commits=given.commits, kills=given.kills, events=given.events, profile=given.profile,
            )  # fmt: skip


if __name__ == "__main__":
    main()
