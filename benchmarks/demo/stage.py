"""The parent: makes the table, starts the writers, decides who goes when, kills one, and shows what became of all.

    all writers    begin, write their files, and wait
    doomed         is killed with SIGKILL there; a writer that lives finds it dead and rolls it back
    arrivals       goes first and lands
    the others     go all at once; anyone who overlaps what landed since its begin loses and runs again

So the conflicts and the rollback are certain, and the rest is left to the race.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..occ.entries import Begin, Commit, End
from ..occ.table import Table, create
from ..occ.table import open as open_table
from .cluster import Cluster
from .show import Row, Screen
from .story import KEY, ORDERING, PARTITION, Story, Task
from .verdict import Finding, outcome_of, writers_of

_PATIENCE_S = 300.0
_MARKERS = ".hoodie/.temp"


@dataclass(frozen=True)
class Place:
    """The table's place, and what its writers run on.

    Attributes:
        files: the folder of this machine in which the table's objects are files, for readers that share no code with us.
        storage: options of the store.
        settings: of the table, beside those of the story.
        spark: of the writers' Spark sessions; none for sessions of one process.
        cluster: on which they run.
    """

    url: str
    files: Path
    storage: dict[str, str] = field(default_factory=dict, repr=False)
    settings: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    cluster: Cluster | None = None


class WriterFailed(Exception):
    """A writer process ended otherwise than the story says."""


class Child:
    """One writer process, and the thread that puts its events into a queue, each with the writer's name.

    The last event is ``ended``, with the exit code. ``command``: another program than `writer`.
    """

    def __init__(
        self,
        name: str,
        job: Path,
        events: queue.Queue[dict[str, Any]],
        *arguments: str,
        command: list[str] | None = None,
    ) -> None:
        self._name, self._events, self._log = name, events, job.with_suffix(".log")
        scratch = job.parent / "spark" / name
        scratch.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as errors:
            self.process = subprocess.Popen(
                command or [sys.executable, "-m", "lakelatch.demo.writer", str(job), str(scratch), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=scratch,
                text=True,
            )
        threading.Thread(target=self._listen, name=f"listen-{name}", daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(json.JSONDecodeError):  # the last line of one that is killed
                self._events.put(json.loads(line) | {"writer": self._name})
        self._events.put({"event": "ended", "writer": self._name, "code": self.process.wait()})

    def go(self) -> None:
        """Let it commit."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and its last event says how
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def failure(self, code: int) -> WriterFailed:
        """Return the error that tells how it ended."""
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        return WriterFailed(f"{self._name} ended with code {code}:\n{tail}")


class Stage:
    """One run of the demonstration on one table."""

    def __init__(self, story: Story, folder: Path, screen: Screen, place: Place) -> None:
        self._story, self._folder, self._screen, self._place = story, folder, screen, place
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._tasks = {task.name: task for task in story.tasks}
        self._writers: dict[str, Child] = {}
        self._running: set[str] = set()
        self._written: set[str] = set()
        self._landed: set[str] = set()
        self._files: Counter[str] = Counter()  # data files, by the transaction that has written them
        self._lost: dict[str, dict[str, Any]] = {}
        self._attempts: dict[str, int] = {}
        self._killed = ""
        self._applications: dict[str, str] = {}  # Spark's ids
        self._losing = ""  # the transaction whose executor is to be killed
        self._executor_of = ""  # the writer whose executor was killed
        self._lost_tasks = 0
        self._released = False

    def make_table(self) -> None:
        """Make the table with its first rows, one file group for each month."""
        first = self._story.first
        settings = {"heartbeat_interval_s": 0.5, "heartbeat_timeout_s": 2.0, **self._place.settings}
        table = create(
            self._place.url,
            record_key=KEY,
            partition_by=PARTITION,
            ordering_field=ORDERING,
            schema=first.schema,
            rebase=False,  # or nobody would lose: what two upserts changed is merged again by itself
            writer="departures",
            storage=self._place.storage,
            **settings,
        )
        with table, table.transaction("insert") as txn:
            for month in sorted(first[PARTITION].unique().to_pylist()):
                with txn.new_file(f"{PARTITION}={month}") as new:
                    new.write(first.filter(pc.equal(first[PARTITION], month)))
        for name, rows in self._story.incoming.items():
            pq.write_table(rows, self._folder / f"{name}.parquet")
        self._screen.say(f"made {self._place.url} with {first.num_rows:,} flights, one file group for each month")

    def _job(self, task: Task) -> Path:
        """Return the file that tells a writer what to do."""
        job = self._folder / f"{task.name}.json"
        facts = {
            "table": self._place.url,
            "storage": self._place.storage,
            "spark": self._place.spark,
            "task": asdict(task),
            "rows": str(self._folder / f"{task.name}.parquet"),
        }
        job.write_text(json.dumps(facts))
        return job

    def perform(self) -> None:
        """Run all writers; all transactions are over when this returns."""
        with open_table(self._place.url, writer="stage", storage=self._place.storage) as table:
            try:
                for task in self._story.tasks:
                    self._writers[task.name] = Child(task.name, self._job(task), self._events)
                    self._running.add(task.name)
                self._direct(table)
            finally:
                for writer in self._writers.values():
                    writer.close()

    def _direct(self, table: Table) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        rolled_back = False
        while self._running:
            if time.monotonic() > deadline:
                raise WriterFailed(f"no end after {_PATIENCE_S:g} s; still running: {', '.join(sorted(self._running))}")
            with suppress(queue.Empty):
                self._heard(self._events.get(timeout=0.01 if self._losing else 0.1))
            if self._losing:
                self._kill_executor(table)
            if self._killed and not rolled_back:
                rolled_back = self._look_for_rollback(table)
            if rolled_back and not self._released and len(self._written) == len(self._writers):
                self._released = True
                self._screen.say("all have written; arrivals goes first, the others when it has landed")
                self._writers["arrivals"].go()

    def _heard(self, event: dict[str, Any]) -> None:
        name, kind = event["writer"], event["event"]
        say = self._screen.state
        if kind == "began":
            self._attempts[event["instant"]] = event["attempt"]
            self._aim(name, event["instant"])
            again = f" again, attempt {event['attempt']}" if event["attempt"] > 1 else ""
            say(name, f"began {event['instant']}{again}")
        elif kind == "written":
            self._files[event["instant"]] = event["files"]
            say(name, f"has written {event['files']} files" + ("" if name in self._written else ", waits"))
            self._written.add(name)
            if self._tasks[name].doomed:
                self._killed = event["instant"]
                self._writers[name].kill()
        elif kind == "lost":
            self._lost[event["instant"]] = event
            against = f"lost against {event['winner']}" if event["winner"] else "was rolled back"
            say(name, f"{against}; runs again on what is there now")
        elif kind == "landed":
            self._landed.add(name)
            say(name, f"landed at {event['completion']}")
            if name == "arrivals":
                for other, writer in self._writers.items():
                    if other != name and not self._tasks[other].doomed:
                        writer.go()
        elif kind in ("session", "executors"):
            self._applications[name] = event.get("application", "")
            self._lost_tasks += event.get("lost_tasks", 0)
        elif kind == "ended":
            self._ended(name, event["code"])

    def _ended(self, name: str, code: int) -> None:
        self._running.discard(name)
        if self._tasks[name].doomed and code == -signal.SIGKILL and self._killed:
            self._screen.state(name, f"killed with SIGKILL; its {self._files[self._killed]} files lie in the table")
        elif code or name not in self._landed:
            raise self._writers[name].failure(code)

    def _aim(self, name: str, instant: str) -> None:
        if self._tasks[name].loses_executor and not self._executor_of:
            self._losing, self._executor_of = instant, name

    def _kill_executor(self, table: Table) -> None:
        """End the writer's executor once a task has begun to write a file."""
        files = len(table.store.list(f"{_MARKERS}/{self._losing}", recursive=True))
        cluster, name = self._place.cluster, self._executor_of
        if not files or cluster is None:
            return
        for executor in cluster.executors(self._applications[name]):
            os.kill(executor, signal.SIGKILL)
        self._losing = ""
        self._screen.state(name, f"loses its executor by SIGKILL; {files} files had been begun")

    def executor_finding(self) -> Finding:
        """Check that the executor has died where it matters."""
        what = "an executor has died in the middle of its writes"
        return Finding(what, self._lost_tasks > 0, f"{self._lost_tasks} of its tasks ran again on another one")

    def _look_for_rollback(self, table: Table) -> bool:
        if table.session.log.outcome(self._killed) != "rollback":
            return False
        entry = outcome_of(list(table.session.log.entries()), self._killed)
        who = self._name_of(entry.who) if isinstance(entry, End) else "nobody"
        self._screen.state("doomed", f"rolled back by {who}, its files are deleted")
        return True

    def _name_of(self, who: str) -> str:
        pid = who.rpartition(":")[2]
        return next((n for n, w in self._writers.items() if str(w.process.pid) == pid), who)

    def rows(self, table: Table) -> list[Row]:
        """Return every transaction that ever began, in the order of the log."""
        log = list(table.session.log.entries())
        writers = writers_of(log)
        rows = []
        for begin in (e for e in log if isinstance(e, Begin)):
            instant = begin.instant
            row = Row(instant, writers[instant], begin.operation.lower(), retries=self._attempts.get(instant, 1) - 1)
            end = outcome_of(log, instant)
            files = self._files[instant]
            if end is None:
                row.outcome = "open"
            elif isinstance(end, Commit):
                row.ended, row.outcome = end.completion, "landed"
                if end.empty:
                    row.operation = "create"
            else:
                loss = self._lost.get(instant, {}).get("winner")
                row.outcome = f"lost to {loss}" if loss else f"aborted: {end.reason}"
                if end.kind == "rollback":
                    row.outcome = f"rolled back by {self._name_of(end.who)}"
                row.cleaned = f"{files} files"
            rows.append(row)
        return rows
