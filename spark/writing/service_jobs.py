"""Table services by Spark's tasks: the parts of a plan, which other executors of the same plan run one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from ...hudi.timeline import WriteStat
from ...occ.services import Executing, Part, one_by_one
from ...occ.session import Session
from ...progress import ProgressOption, Reporter
from ..tasks import Answer, Task
from .incoming import Shuffled
from .jobs import collect
from .sizes import JobSizes


@dataclass
class PartsTask(Task):
    """Execute some parts of a plan; the rows are their numbers."""

    does: ClassVar = "does parts of a plan"
    parts: Sequence[Part]

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:  # noqa: ARG002 - names don't go by tasks
        """Execute them. Memory is that of one part."""
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        return Answer([stat for number in numbers for stat in self.parts[number].run()])


@dataclass(frozen=True)
class _Owner:
    """The owner of an execution's jobs; a plan never yields to a writer."""

    instant: str
    session: Session
    watcher: None = None


class ServiceJobs:
    """A `Runner`: tasks of Spark do the parts of a plan, or the driver where they are little work.

    Args:
        sizes: the driver works alone on files of ``driver_bytes`` together; 64 KiB stand for a file that is deleted.
        told: called with the progress: in tasks, or in file groups or files where the driver works alone.
    """

    def __init__(self, spark: Any, sizes: JobSizes, told: ProgressOption | None = None) -> None:
        self._spark, self._sizes, self._told = spark, sizes, told
        Reporter(told)  # refused before anything begins

    def __call__(self, execution: Executing, parts: Sequence[Part]) -> Iterator[list[WriteStat]]:
        """Run the parts; see `Runner`."""
        what, told = execution.operation, self._told if callable(self._told) else None
        unit = "files" if what == "clean" else "file groups"
        known = [part.bytes for part in parts if part.bytes is not None]
        if len(known) == len(parts) and sum(known) <= self._sizes.driver_bytes:
            report = Reporter(told, what, unit, len(parts))
            for each in one_by_one(execution, parts):
                report.add()
                yield each
            return
        count = len(parts) if len(known) < len(parts) else self._tasks(sum(known), len(parts))
        numbers = Shuffled(self._spark.range(0, len(parts), 1, count))
        instant, session = execution.instant, execution.session
        text = f"{what} {session.url}: {len(parts)} {unit} ({instant})"
        answers = collect(
            self._spark,
            session.store,
            _Owner(instant, session),
            numbers,
            PartsTask(tuple(parts)),
            text=text,
            sizes=self._sizes,
            told=told,
            what=what,
        )
        yield from (answer.stats for answer in answers)

    def _tasks(self, size: int, parts: int) -> int:
        """Return one task for each large part; small ones share some for each core."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        return min(parts, max(cores * self._sizes.tasks_per_core, size // self._sizes.task_bytes))
