"""The progress of a transaction's Spark jobs, reported while they run.

Spark's status tracker counts the tasks; an accumulator brings the output of finished ones here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...progress import Progress, ProgressCallback
from ..tasks import Sums

_LOOK_S = 0.2  # as often as Spark's own bar on the console is drawn


class JobProgress:
    """A reporter of how many tasks of the jobs with a tag have ended, of those that Spark has planned so far.

    Spark plans as it goes, so the total may grow, and shrink by stages whose output turns out to exist already.

    Attributes:
        written: the accumulator that tasks add files, rows and bytes to. Of a task that ran several times Spark counts one run.
        answered: how many tasks have answered the caller; Spark's tracker may count them later.
    """

    def __init__(self, context: Any, tag: str, told: ProgressCallback, what: str) -> None:
        self._context, self._tag, self._told, self._what = context, tag, told, what
        self._jobs = context._jsc.sc().statusTracker()  # PySpark's own does not look jobs up by tag
        self._tracker = context.statusTracker()
        self._ended: dict[int, tuple[int, int]] = {}  # tasks of jobs that run no more
        self.written = context.accumulator((0, 0, 0), Sums())
        self.answered = 0
        self._last: Progress | None = None
        self._error: BaseException | None = None

    @contextmanager
    def watching(self) -> Iterator[JobProgress]:
        """Report from a thread while the block runs jobs, and from this one when it is done; the thread ends with the block.

        Raises:
            BaseException: an exception of the progress function. The jobs are cancelled.
        """
        from pyspark.accumulators import _accumulatorRegistry

        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), name=f"lakelatch-progress-{self._tag}", daemon=True)
        thread.start()
        try:
            yield self
        except Exception as e:
            _stop(thread, over)
            # Spark's error for a cancelled job does not give the reason.
            if self._error is not None:
                raise self._error from e
            raise
        finally:
            _stop(thread, over)
            # PySpark would keep it as long as the session lives.
            _accumulatorRegistry.pop(self.written.aid, None)
        if self._error is not None:
            raise self._error
        # The tracker counts the last tasks only after the job has returned to us; on a busy machine, all of them.
        total = max(self._counted(over=True)[1], self.answered)
        self._tell(total, total)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            if self._error is None:
                try:
                    self._tell(*self._counted())
                except BaseException as e:  # noqa: BLE001 - raised where the write was called
                    self._error = e
            if self._error is not None:
                # At each turn: a job that starts after the tag was cancelled is not cancelled.
                self._context.cancelJobsWithTag(self._tag)

    def _tell(self, done: int, total: int) -> None:
        now = Progress(self._what, done, total, "tasks", *self.written.value)
        if total and now != self._last:
            self._last = now
            self._told(now)

    def _counted(self, *, over: bool = False) -> tuple[int, int]:
        """Return tasks that have ended, and all; when it is ``over``, stages that have not begun never will."""
        done = total = 0
        for number in self._jobs.getJobIdsForTag(self._tag):
            if number not in self._ended:
                job = self._tracker.getJobInfo(number)
                if job is None:  # so old that Spark has forgotten it
                    continue
                runs = job.status == "RUNNING"
                found = self._of_stages(job.stageIds, all_of_them=runs and not over)
                if runs:
                    done, total = done + found[0], total + found[1]
                    continue
                self._ended[number] = found
            done, total = done + self._ended[number][0], total + self._ended[number][1]
        return done, total

    def _of_stages(self, numbers: Any, *, all_of_them: bool) -> tuple[int, int]:
        done = total = 0
        for number in numbers:
            stage = self._tracker.getStageInfo(number)
            if stage is not None and (all_of_them or stage.numCompletedTasks or stage.numActiveTasks):
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
        return done, total


def _stop(thread: threading.Thread, over: threading.Event) -> None:
    over.set()
    thread.join()
