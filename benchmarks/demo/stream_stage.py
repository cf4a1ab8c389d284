"""The parent of the demonstration of streams: four jobs and a compaction at once, one job killed and started again."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ..errors import ConflictError
from ..occ.check import check
from ..occ.entries import Commit
from ..occ.table import Table, create
from ..occ.table import open as open_table
from .stage import Child, WriterFailed
from .story import KEY
from .verdict import by_hudi
from .wide_row import Source, joined, schema_of

VICTIM = "arrivals"
_PATIENCE_S = 600.0


class StreamStage:
    """One run on one table.

    Args:
        spark: the streams whose jobs are PySpark's.
        say: told what happens, a line each.
    """

    def __init__(
        self, found: tuple[Source, ...], folder: Path, *, spark: frozenset[str], seed: int, say: Callable[[str], None]
    ) -> None:
        self.sources, self.folder, self.url, self._say = found, folder, str(folder / "wide"), say
        self._spark, self._seed = spark, seed
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._jobs: dict[str, Child] = {}
        self.landed: Counter[str] = Counter()
        self.lost, self.compactions = 0, 0

    def make_table(self) -> None:
        """Make the empty table, its streams, and the events of each job."""
        streams = {each.name: {"columns": each.columns, "ordering": each.ordering} for each in self.sources}
        create(self.url, record_key=KEY, schema=schema_of(self.sources), streams=streams, bucket_count=4).close()
        for source in self.sources:
            batches = []
            for number, rows in enumerate(source.events(self._seed)):
                batches.append(str(self.folder / f"{source.name}-{number}.parquet"))
                pq.write_table(rows, batches[-1])
            facts = {"table": self.url, "stream": source.name, "batches": batches, "spark": source.name in self._spark}
            (self.folder / f"{source.name}.json").write_text(json.dumps(facts))

    def perform(self) -> None:
        """Run all jobs to their end, one of them twice, and compact meanwhile and at the end."""
        over = threading.Event()
        with open_table(self.url, writer="compactor") as table:
            compactor = threading.Thread(target=self._compact, args=(table, over), name="compactor")
            compactor.start()
            try:
                for source in self.sources:
                    self._start(source.name, *["doomed"] * (source.name == VICTIM))
                self._direct()
            finally:
                over.set()
                compactor.join()
                for job in self._jobs.values():
                    job.close()
            table.rollback_failed_writes(wait=True)
            self._done(table.compact())

    def _start(self, name: str, *arguments: str) -> None:
        self._jobs[name] = Child(name, self.folder / f"{name}.json", self._events, *arguments)

    def _direct(self) -> None:
        running, killed, give_up = {each.name for each in self.sources}, False, time.monotonic() + _PATIENCE_S
        while running:
            try:
                event = self._events.get(timeout=max(give_up - time.monotonic(), 0.01))
            except queue.Empty:
                raise WriterFailed(
                    f"no end after {_PATIENCE_S:g} s; still running: {', '.join(sorted(running))}"
                ) from None
            name, kind = event["writer"], event["event"]
            if kind == "landed":
                self.landed[name] += 1
                self.lost += event["lost"]
                self._say(f"{name} landed batch {event['batch'] + 1} ({event['instant']})")
                if name == VICTIM and not killed and event["batch"] == 1:
                    killed = True
                    self._jobs[name].kill()
            elif kind == "ended" and event["code"] == -signal.SIGKILL and killed and name == VICTIM:
                self._say(f"{name} was killed with SIGKILL; it starts again, with its first batch")
                self._start(name)
            elif kind == "ended":
                if event["code"]:
                    raise self._jobs[name].failure(event["code"])
                running.discard(name)

    def _compact(self, table: Table, over: threading.Event) -> None:
        while not over.wait(0.5):
            with suppress(ConflictError):  # another state is compacted the next time
                self._done(table.compact())

    def _done(self, executed: Any) -> None:
        if executed is not None:
            self.compactions += 1
            self._say(f"compaction {executed.instant} merged {executed.files} files")

    def verdict(self) -> list[tuple[str, bool]]:
        """Return each thing that must be true, and whether it is."""
        expected, names = joined(self.sources), schema_of(self.sources).names
        with open_table(self.url, writer="judge") as table:
            read = table.read(columns=names).to_arrow()
            commits = [each for each in table.session.log.entries() if isinstance(each, Commit)]
            writers = {each.writer for each in commits}
            damage = [each for each in check(table.store).findings if each.severity == "damage"]
        ours = read.sort_by(KEY).to_pylist()
        return [
            (f"{len(expected):,} wide rows equal the join of the four sources, row for row", ours == expected),
            ("hudi-rs reads the same", by_hudi(Path(self.url)).select(names).sort_by(KEY).to_pylist() == expected),
            (f"{sum(self.landed.values())} batches landed, and none was lost to another", self.lost == 0),
            (f"{self.compactions} compactions, meanwhile and at the end", self.compactions > 0),
            ("every stream wrote", {each.name for each in self.sources} <= writers),
            ("`check` finds no damage", not damage),
        ]

    def who_wrote_when(self) -> list[tuple[str, str]]:
        """Return a line of marks for each stream and the compactions, along the slots of the log."""
        with open_table(self.url, writer="judge") as table:
            commits = [each for each in table.session.log.entries() if isinstance(each, Commit)]
        lines = {each.name: "" for each in self.sources} | {"compactor": ""}
        for commit in commits:
            if commit.writer in lines and not commit.empty:
                for name in lines:
                    lines[name] += "█" if name == commit.writer else "·"
        return list(lines.items())
