"""Runs the one Spark action of a write: named, cancelled with its transaction, answers collected.

Cancelling stops the tasks, but a Python worker goes on for up to some seconds. It looks for the transaction's
heartbeat before it opens a file and again before it publishes it, so nothing of a transaction that is over appears.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import LakeLatchError
from ..occ.staging import refuse_if_over
from ..occ.transaction import Transaction
from ..storage import Store
from .incoming import Shuffled
from .sizes import SIZES, JobSizes
from .tasks import ANSWER, JOB_TASK, Answer, Task, packed, unpack

_LOOK_S = 1.0
_CHANGED = ("spark.job.description", "spark.job.interruptOnCancel", JOB_TASK)


def tag_of(instant: str) -> str:
    """The tag of a transaction's Spark jobs: ``sc.cancelJobsWithTag`` with it stops them.

    Their group is the caller's.
    """
    return f"lakelatch-{instant}"


def collect(
    spark: Any, store: Store, txn: Transaction, rows: Any, task: Task, *, text: str, sizes: JobSizes = SIZES
) -> list[Answer]:
    """Run the task over the rows, once, and return what each of Spark's tasks answered.

    The rows of ``collect`` are exactly the winners, one for each task, whatever was run twice.

    Raises:
        RolledBackError: the transaction was ended by somebody else; its jobs are cancelled.
        LakeLatchError: what a task met.
    """
    with tagged(spark, store, txn.instant, text):
        if isinstance(rows, Shuffled) and len(told := packed(task, store)) <= sizes.property_bytes:
            spark.sparkContext.setLocalProperty(JOB_TASK, told)
            answers = rows.collect(store)
        else:
            frame = rows.rows if isinstance(rows, Shuffled) else rows
            answers = frame.mapInArrow(task, ANSWER).collect()
    return unpack(answers)


@contextmanager
def tagged(spark: Any, store: Store, instant: str, text: str) -> Iterator[None]:
    """Tag the jobs of this thread, so that they end with the transaction."""
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _CHANGED}
    context.addJobTag(tag_of(instant))
    context.setJobDescription(text)
    context.setInterruptOnCancel(True)
    done = threading.Event()
    watcher = threading.Thread(
        target=_cancel_when_over, args=(context, store, instant, done), name=f"lakelatch-watch-{instant}", daemon=True
    )
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobsWithTag(tag_of(instant))
        refuse_if_over(store, instant)  # the real reason, where it is one
        raise
    finally:
        done.set()
        context.removeJobTag(tag_of(instant))
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _cancel_when_over(context: Any, store: Store, instant: str, done: threading.Event) -> None:
    while not done.wait(_LOOK_S):
        try:
            refuse_if_over(store, instant)
        except LakeLatchError:
            # Again and again: a job that starts with a cancelled tag afterwards is not cancelled.
            context.cancelJobsWithTag(tag_of(instant))
