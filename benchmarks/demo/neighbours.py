"""The demonstration of neighbours: JVM jobs of Hudi, a PySpark job and plain Python write one table, one of each side killed.

Each writer has rows of its own in file groups that all of them change, and repeats a round until it has landed. So the rows
at the end follow from the rounds, whoever loses to whom.
"""

from __future__ import annotations

import json
import queue
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import ConfigError
from ..occ.check import check
from ..occ.doctor import writer_options
from ..occ.entries import Commit
from ..occ.table import Table, create
from ..occ.table import open as open_table
from .stage import Child, WriterFailed
from .verdict import by_hudi

COLUMNS = pa.schema([("id", pa.string()), ("writer", pa.string()), ("round", pa.int64())])
JVM = {"ingest": 3, "compacting": 2}  # name -> rounds
OURS = {"spark": 4, "plain": 6}
ROLES = {
    "ingest": "a Spark 3.5 job of JVM Hudi",
    "compacting": "the same, with inline compaction",
    "spark": "PySpark 4 upserts",
    "plain": "plain Python deletes",
}
KILLED = ("ingest", "plain")  # one of each side, once
KEYS, TO_DELETE = 20, 60  # of each writer; deleted by plain Python, ten a round
_PATIENCE_S, _FAILURES_MAX = 900.0, 3
_BUNDLE, _PYTHON = "jars/hudi-spark3.5-bundle_2.12-1.2.0.jar", "venv/bin/python"


class NeighbourStage:
    """One run on one table; ``jvm`` is the folder that scripts/ensure_jvm.sh fills."""

    def __init__(self, folder: Path, jvm: Path, say: Callable[[str], None]) -> None:
        self.folder, self._files, self._installed, self._say = folder, folder / "table", jvm, say
        self.url = str(self._files)
        for needed in (_BUNDLE, _PYTHON):
            if not (jvm / needed).exists():
                raise ConfigError(f"the JVM jobs need {jvm / needed}; scripts/ensure_jvm.sh fetches it")
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._jobs: dict[str, Child] = {}
        self._to_kill = set(KILLED)
        self.landed: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def make_table(self) -> None:
        """Make the table with the first rows of every writer, and a job for each."""
        lock = f"file://{self.url}/.hoodie?jvm=lock&jvm_expire=1m"  # what a JVM killed with the lock costs
        table = create(
            self.url, record_key="id", schema=COLUMNS, type="merge_on_read", bucket_count=2, lock=lock, neighbours="hudi",
            heartbeat_interval_s=0.5, heartbeat_timeout_s=5.0, yield_wait_s=30.0,
        )  # fmt: skip
        with table:
            table.upsert(
                [row for name in (*JVM, "spark") for row in _rows(name, -1)]
                + _rows("old", -1, TO_DELETE)
                + _rows("last", -1, 1)
            )
            options = job_options(table)
        compacts = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
        for name, rounds in JVM.items():
            more = compacts if name == "compacting" else {"hoodie.compact.inline": "false"}
            self._write(name, options=options | more, rounds=[_rows(name, number) for number in range(rounds)])
        self._write("judge", options=options, rounds=[])
        for name, count in OURS.items():
            self._write(name, beside=name, rounds=count)

    def _write(self, name: str, **facts: Any) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps({"table": self.url, **facts}))

    def perform(self) -> None:
        """Run all writers to their end, and two of them twice."""
        with open_table(self.url, writer="stage") as table:
            try:
                for name in (*JVM, *OURS):
                    self._start(name)
                self._direct(table)
            finally:
                for job in self._jobs.values():
                    job.close()
            table.rollback_failed_writes(wait=True)
            table.delete(["old-0", "last-0"])  # imports what JVM jobs have committed since the last commit of ours

    def _start(self, name: str) -> None:
        job, command = self.folder / f"{name}.json", None
        if name not in OURS:
            program = Path(__file__).with_name("hudi_job.py")
            command = [str(self._installed / _PYTHON), str(program), str(self._installed / _BUNDLE), str(job)]
        self._jobs[name] = Child(name, job, self._events, *(["doomed"] * (name in self._to_kill)), command=command)

    def _direct(self, table: Table) -> None:
        running, give_up, aimed = {*JVM, *OURS}, time.monotonic() + _PATIENCE_S, False
        while running:
            if time.monotonic() > give_up:
                raise WriterFailed(f"no end after {_PATIENCE_S:g} s; still running: {', '.join(sorted(running))}")
            if aimed and self._is_at_work(table):
                aimed = False
                self._kill("ingest")
            with suppress(queue.Empty):
                event = self._events.get(timeout=0.02 if aimed else 0.5)
                name, kind = event["writer"], event["event"]
                if kind == "began" and name == "ingest" and event["round"] == 1:
                    aimed = name in self._to_kill
                elif kind == "written" and name in self._to_kill:
                    self._kill(name)
                elif kind == "landed":
                    self.landed[name] += 1
                    self._say(f"{name:<12}landed round {event['round'] + 1}")
                elif kind == "lost":
                    self.lost[name] += 1
                    self._say(f"{name:<12}lost round {event['round'] + 1} to another, and runs again")
                elif kind == "ended" and event["code"] == -signal.SIGKILL:
                    self._say(f"{name:<12}was killed with SIGKILL in the middle of its work; it starts again")
                    self._start(name)
                elif kind == "ended" and event["code"]:
                    # Two JVM jobs that roll back the same loser at the same time: one of them fails. Schedulers run it again.
                    self.failed[name] += 1
                    if name not in JVM or self.failed[name] > _FAILURES_MAX:
                        raise self._jobs[name].failure(event["code"])
                    self._say(f"{name:<12}failed, as JVM jobs do that clean up at the same time; it starts again")
                    self._start(name)
                elif kind == "ended":
                    running.discard(name)

    def _is_at_work(self, table: Table) -> bool:
        """Return whether a JVM job is between its begin and its commit, and nobody has the lock, so that it can be killed."""
        lock = self._files / ".hoodie/lock"
        return any(each.state == "inflight" for each in table.session.log.pending(now=True)) and not lock.exists()

    def _kill(self, name: str) -> None:
        self._to_kill.discard(name)
        self._jobs[name].kill()

    def verdict(self) -> Iterator[tuple[str, bool]]:
        """Yield each thing that must be true, and whether it is."""
        rounds = {**JVM, "spark": OURS["spark"]}
        expected = {row["id"]: row for name, count in rounds.items() for row in _rows(name, count - 1)}
        with open_table(self.url, writer="judge") as table:
            ours = table.read().to_arrow().to_pylist()
            commits = [each for each in table.session.log.entries() if isinstance(each, Commit)]
            damage = [each for each in check(table.store, deep=True).findings if each.severity == "damage"]
        imports = sum(each.imported for each in commits)
        kinds = {each.action for each in commits if each.imported}
        for name, found in (
            ("Python", ours),
            ("hudi-rs", by_hudi(self._files).select(COLUMNS.names).to_pylist()),
            ("the JVM", self._by_jvm()),
        ):
            same = len(found) == len(expected) and {row["id"]: row for row in found} == expected
            yield (
                f"{name} reads {len(expected)} rows: of each writer its last round, and nothing that was deleted",
                same,
            )
        yield f"{self.landed.total()} rounds landed, {self.lost.total()} lost to another and ran again", True
        yield f"{imports} commits of the JVM jobs are in our log, a compaction among them", "commit" in kinds
        yield "one of each side was killed in the middle of its work", not self._to_kill
        yield "`check --deep` finds no damage", not damage

    def _by_jvm(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        self._start("judge")
        while (event := self._events.get(timeout=_PATIENCE_S))["event"] != "ended":
            rows = event.get("rows", rows)
        if event["code"]:
            raise self._jobs["judge"].failure(event["code"])
        return rows


def job_options(table: Table) -> dict[str, str]:
    """Return the options of a JVM job that upserts into an unpartitioned table whose key is ``id``."""
    return writer_options(table.config, table.settings) | {
        "hoodie.table.name": table.config.name,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if table.config.merge_on_read else "COPY_ON_WRITE",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.write.lock.wait_time_ms_between_retry": "100",
        "hoodie.write.lock.client.num_retries": "600",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    }


def rows_to_write(name: str, number: int) -> pa.Table:
    """Return the rows of a writer in a round."""
    return pa.Table.from_pylist(_rows(name, number), COLUMNS)


def rows_to_delete(number: int) -> list[str]:
    """Return the keys that plain Python deletes in a round."""
    each = TO_DELETE // OURS["plain"]
    return [f"old-{key}" for key in range(number * each, (number + 1) * each)]


def _rows(name: str, number: int, count: int = KEYS) -> list[dict[str, Any]]:
    return [{"id": f"{name}-{key}", "writer": name, "round": number} for key in range(count)]
