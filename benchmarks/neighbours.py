"""Measure Hudi's JVM writers and ours on one table.

    python -m benchmarks.neighbours rate     [--lock file|zookeeper]      commits of ours beside an idle JVM, against alone
    python -m benchmarks.neighbours fairness [--lock ...] [--attempts 3]  a JVM job of 15 s on file groups that ours upsert
    python -m benchmarks.neighbours import   [--commits 1000]             foreign commits taken over at once
    python -m benchmarks.neighbours kills    [--lock ...] [--type ...] [--commits 50] [--kills 12]
                                             both sides write the same file groups, and die at random moments

Needs what `scripts/ensure_jvm.sh` fetches. All on a local disk; the table has two buckets.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.bench.servers import started
from lakelatch.demo.neighbours import job_options
from lakelatch.demo.stage import Child
from lakelatch.demo.verdict import by_hudi
from lakelatch.hudi.timeline import Instant, encode_commit, file_name, from_epoch_ms
from lakelatch.occ.check import check
from lakelatch.occ.entries import Commit

from ._report import machine, percentile, show

COLUMNS = pa.schema([("id", pa.string()), ("value", pa.int64())])
INSTALLED = Path(__file__).parents[1] / ".cache" / "jvm"
PROGRAM = Path(__file__).with_name("demo") / "hudi_job.py"
KEYS = 8
PATIENCE_S = 1200.0
PAUSE_S = 0.3  # between two upserts of ours


def rows(who: str, value: int) -> list[dict[str, Any]]:
    return [{"id": f"{who}-{key}", "value": value} for key in range(KEYS)]


@contextmanager
def lock_url(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a lock that JVM writers can take."""
    if kind == "file":
        yield f"file://{folder}/table/.hoodie?jvm=lock&jvm_expire=1m"
    else:
        with started(kind) as server:
            yield f"{server.url}/hudi?key=benchmark"


class Beside:
    """A table, its JVM jobs and its writers in plain Python."""

    def __init__(self, folder: Path, lock: str, **kind: Any) -> None:
        self.folder, self.url = folder, str(folder / "table")
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.children: dict[str, Child] = {}
        self.table = lakelatch.create(
            self.url, record_key="id", schema=COLUMNS, bucket_count=2, lock=lock, neighbours="hudi",
            heartbeat_interval_s=0.5, heartbeat_timeout_s=10.0, yield_wait_s=60.0, **kind,
        )  # fmt: skip
        self.table.upsert(rows("start", 0))
        self.options = job_options(self.table)
        if self.table.config.merge_on_read:
            self.options |= {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}

    def jvm(self, name: str, rounds: list[list[dict[str, Any]]], **more: Any) -> None:
        """Start a JVM job of these rounds."""
        job = self.folder / f"{name}.json"
        job.write_text(json.dumps({"table": self.url, "options": self.options, "rounds": rounds, **more}))
        jar = INSTALLED / "jars/hudi-spark3.5-bundle_2.12-1.2.0.jar"
        command = [str(INSTALLED / "venv/bin/python"), str(PROGRAM), str(jar), str(job)]
        self.children[name] = Child(name, job, self.events, command=command)

    def python(self, name: str, first: int, count: int) -> None:
        """Start a process of ours that upserts these rounds."""
        command = [sys.executable, "-m", "benchmarks.neighbours", "writer", self.url, name, str(first), str(count)]
        job = self.folder / f"{name}.json"
        self.children[name] = Child(name, job, self.events, command=["env", f"PYTHONPATH={Path.cwd()}", *command])

    def until(self, name: str, kind: str) -> dict[str, Any]:
        """Wait for an event of one of them."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            with suppress(queue.Empty):
                event = self.events.get(timeout=1.0)
                if event["writer"] == name and event["event"] == kind:
                    return event
                if event["writer"] == name and event["event"] == "ended" and event["code"]:
                    raise self.children[name].failure(event["code"])
        raise TimeoutError(f"{name} has not {kind}")

    def close(self) -> None:
        for child in self.children.values():
            child.close()
        self.table.close()

    def by_jvm(self) -> list[dict[str, Any]]:
        self.jvm("judge", [])
        return list(self.until("judge", "rows")["rows"])


def upsert(table: lakelatch.Table, who: str, value: int) -> None:
    """One round of ours, again until it lands."""
    table.run(lambda txn: txn.upsert(rows(who, value)), operation="upsert")


def upserts(table: lakelatch.Table, seconds: float, who: str = "ours") -> tuple[float, list[float]]:
    """Commits a second, and the seconds of each."""
    began, took = time.monotonic(), list[float]()
    while time.monotonic() < began + seconds:
        before = time.monotonic()
        upsert(table, who, len(took))
        took.append(time.monotonic() - before)
    return len(took) / (time.monotonic() - began), took


def rate(given: argparse.Namespace, folder: Path) -> None:
    with lock_url(given.lock, folder) as lock:
        beside = Beside(folder, lock)
        alone = lakelatch.create(
            str(folder / "alone"),
            record_key="id",
            schema=COLUMNS,
            bucket_count=2,
            lock=lock.replace("benchmark", "alone"),
        )
        beside.jvm("idle", [rows("idle", 0)], idle_s=PATIENCE_S)
        beside.until("idle", "landed")
        found: dict[str, list[tuple[float, list[float]]]] = {"alone": [], "beside": []}
        for _ in range(given.rounds):
            found["alone"].append(upserts(alone, given.seconds))
            found["beside"].append(upserts(beside.table, given.seconds))
        for name, told in found.items():
            per_s = statistics.median(each for each, _ in told)
            p50 = percentile([one for _, each in told for one in each], 0.5)
            show(name, {"commits_s": round(per_s, 1), "p50_ms": round(p50 * 1000, 1)})
        beside.close()
        alone.close()


def fairness(given: argparse.Namespace, folder: Path) -> None:
    with lock_url(given.lock, folder) as lock:
        beside = Beside(folder, lock)
        for number in range(given.rounds):
            alone = _every_second(beside, number, lambda told: len(told) < 20)
            beside.jvm(f"slow-{number}", [rows("slow", number)], slow_s=15.0)
            beside.until(f"slow-{number}", "began")
            events: list[dict[str, Any]] = []

            def goes_on(_: list[float], events: list[dict[str, Any]] = events) -> bool:
                with suppress(queue.Empty):
                    while True:
                        events.append(beside.events.get_nowait())
                return all(each["event"] not in ("landed", "ended") for each in events)

            during = _every_second(beside, number, goes_on)
            attempts = next((each["attempt"] for each in events if each["event"] == "landed"), None)
            show(f"round {number}", {"attempts": attempts, "share_of_our_rate": round(during / alone, 2)})
        beside.close()


def _every_second(beside: Beside, value: int, goes_on: Callable[[list[float]], bool]) -> float:
    """Upsert every second, or as soon as the one before has landed; the commits a second."""
    began, landed = time.monotonic(), list[float]()
    while goes_on(landed):
        due = time.monotonic() + 1.0
        upsert(beside.table, "ours", value)
        landed.append(time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))
    return len(landed) / (time.monotonic() - began)


def imports(given: argparse.Namespace, folder: Path) -> None:
    with lock_url("file", folder) as lock:
        beside = Beside(folder, lock)
        (slice_, *_) = beside.table.snapshot().file_slices()
        last = beside.table.session.timeline().commits[-1]
        body = encode_commit(beside.table.session.timeline().metadata(last), replace=False)
        now = int(time.time() * 1000) - 2 * given.commits
        for number in range(given.commits):  # each the same files again, which is no skip as they name no older version
            at = from_epoch_ms(now + 2 * number), from_epoch_ms(now + 2 * number + 1)
            (folder / "table/.hoodie/timeline" / file_name(Instant(at[0], "commit", "completed", at[1]))).write_bytes(
                body
            )
        before = time.monotonic()
        beside.table.upsert(rows("ours", 1))
        took = time.monotonic() - before
        known = sum(each.imported for each in beside.table.session.log.entries() if isinstance(each, Commit))
        show("import", {"commits": known, "seconds": round(took, 2), "of": slice_.path})
        beside.close()


def kills(given: argparse.Namespace, folder: Path) -> None:
    luck = random.Random(given.seed)
    with lock_url(given.lock, folder) as lock:
        beside = Beside(folder, lock, type=given.type)
        names = ("jvm", "python")
        next_round, landed, lost = Counter[str](), Counter[str](), Counter[str]()
        killed, failed = Counter[str](), Counter[str]()
        acknowledged: dict[str, int] = {}

        def start(name: str) -> None:
            # One that was killed may have landed its round: it goes on behind it.
            first = next_round[name]
            if name == "jvm":
                beside.jvm(name, [rows(name, number) for number in range(first, first + given.commits)], first=first)
            else:
                beside.python(name, first, 100 * given.commits)

        def due() -> float:
            return time.monotonic() + luck.uniform(1.0, 30.0 if killed["python"] + killed["jvm"] < given.kills else 1e9)

        for name in names:
            start(name)
        kill_at, running = due(), set(names)
        give_up = time.monotonic() + given.minutes * 60
        while running:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{landed} after {given.minutes} minutes")
            if time.monotonic() > kill_at and running == set(names) and killed.total() < given.kills:
                victim = min(names, key=lambda each: (killed[each], each))
                killed[victim] += 1
                beside.children[victim].kill()
                kill_at = due()
            with suppress(queue.Empty):
                event = beside.events.get(timeout=0.05)
                name, kind = event["writer"], event["event"]
                if kind == "landed":
                    landed[name] += 1
                    acknowledged |= {each["id"]: each["value"] for each in rows(name, event["round"])}
                    next_round[name] = event["round"] + 1
                    if landed[name] % 10 == 0:
                        show(name, {"landed": landed[name], "lost": lost[name], "killed": dict(killed)})
                elif kind == "lost":
                    lost[name] += 1
                elif kind == "began":
                    next_round[name] = max(next_round[name], event["round"])
                elif kind == "ended" and event["code"] == -9:
                    next_round[name] += 1  # the round that it died in may have landed
                    start(name)
                elif kind == "ended" and event["code"]:
                    # A JVM job fails where it has listed an instant that a rollback takes away; its scheduler runs it again.
                    failed[name] += 1
                    print(beside.children[name].failure(event["code"]), file=sys.stderr)
                    if failed[name] > given.kills:
                        raise beside.children[name].failure(event["code"])
                    start(name)
                elif kind == "ended":
                    running.discard(name)
            enough = all(landed[each] >= given.commits for each in names) and killed.total() >= given.kills
            if enough and running:
                for name in running:
                    beside.children[name].close()
                break
        table = beside.table
        table.rollback_failed_writes(wait=True)
        table.upsert(rows("end", 1))
        found = [
            table.read().to_arrow().to_pylist(),
            by_hudi(folder / "table").select(COLUMNS.names).to_pylist(),
            beside.by_jvm(),
        ]
        told = [sorted((each["id"], each["value"]) for each in each_) for each_ in found]
        gone = {key: value for key, value in acknowledged.items() if dict(told[0]).get(key, -1) < value}
        imported = sum(each.imported for each in table.session.log.entries() if isinstance(each, Commit))
        damage = [each.message for each in check(table.store, deep=True).findings if each.severity == "damage"]
        show(
            f"{given.lock}, {given.type}",
            {
                "landed": dict(landed), "lost_and_ran_again": dict(lost), "killed": dict(killed), "failed": dict(failed),
                "imported": imported,
                "acknowledged_rows_lost": gone, "readers_agree": told[0] == told[1] == told[2], "damage": damage,
            },
        )  # fmt: skip
        beside.close()
        if gone or damage or not told[0] == told[1] == told[2]:
            raise SystemExit(1)


def writer(url: str, name: str, first: str, count: str) -> None:
    """A process of ours, killed by its parent."""
    out = sys.stdout
    with lakelatch.open(url, writer=name) as table:
        for number in range(int(first), int(first) + int(count)):
            print(json.dumps({"event": "began", "round": number}), file=out, flush=True)
            upsert(table, name, number)
            print(json.dumps({"event": "landed", "round": number}), file=out, flush=True)
            time.sleep(PAUSE_S)


def main() -> None:
    if sys.argv[1:2] == ["writer"]:
        return writer(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["rate", "fairness", "import", "kills"])
    parser.add_argument("--lock", choices=["file", "zookeeper"], default="file")
    parser.add_argument("--type", choices=["copy_on_write", "merge_on_read"], default="copy_on_write")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakelatch-neighbours-", ignore_cleanup_errors=True) as name:
        show("machine", machine())
        works = {"rate": rate, "fairness": fairness, "import": imports, "kills": kills}
        works[given.work](given, Path(name))
    return None


if __name__ == "__main__":
    main()
