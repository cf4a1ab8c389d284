"""Run the one Spark action of a write: named, cancelled with its transaction, answers collected.

Cancelling stops the tasks, but a Python worker may run for some more seconds. It checks for the transaction's
heartbeat before it opens a file and again before it publishes it, so no file of an ended transaction appears.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ConfigError, LakeLatchError, RolledBackError, StorageError
from ...occ.staging import refuse_if_over
from ...progress import ProgressCallback
from ...storage import Store
from ..shipping import shipped, workers_refusals
from ..tasks import ANSWER, JOB_TASK, Answer, CountedTask, Task, packed, unpack
from .incoming import Shuffled
from .job_progress import JobProgress
from .sizes import SIZES, JobSizes

if TYPE_CHECKING:
    from ...occ.session import Session
    from ...occ.transaction import Transaction
    from ...occ.turns import ConflictWatcher


class Owner(Protocol):
    """The owner of jobs, which end with it: a transaction, or the execution of a plan, which has no watcher."""

    @property
    def instant(self) -> str: ...
    @property
    def session(self) -> Session: ...
    @property
    def watcher(self) -> ConflictWatcher | None: ...


_LOOK_S = 1.0
_LOOK_OUT_S = (
    0.25  # where early conflict detection may end a job: each check is one listing for each writer ahead of ours
)
_SAME_PLACE = (
    "The keys, endpoint and clock that the workers have must lead to the same place. Give keys to `open(storage=...)`, which "
    "travel with the tasks, or put valid ones into the environment of every worker; a local folder has to be shared by all hosts"
)
_DESCRIPTION = "spark.job.description"
_CHANGED = (_DESCRIPTION, "spark.job.interruptOnCancel", JOB_TASK)


def tag_of(instant: str) -> str:
    """Return the tag of a transaction's Spark jobs: ``sc.cancelJobsWithTag`` with it stops them.

    Their group is the caller's.
    """
    return f"lakelatch-{instant}"


def collect(
    spark: Any,
    store: Store,
    txn: Owner,
    rows: Any,
    task: Task,
    *,
    text: str,
    sizes: JobSizes = SIZES,
    told: ProgressCallback | None = None,
    what: str = "",
) -> list[Answer]:
    """Run the task over the rows, once, and return the answers of Spark's tasks.

    The rows of Spark's ``collect`` are exactly the winners, one for each task, even if tasks ran twice.

    Args:
        text: describes the job in Spark's UI.
        told: called with the progress of the transaction's jobs; ``what`` is the reported call.

    Raises:
        BaseException: an exception of ``told``; the jobs are cancelled.
        RolledBackError: another process has ended the transaction; its jobs are cancelled.
        ConflictError: it yields to another one (``early_conflict_detection``); its jobs are cancelled.
        ConfigError: a worker lacks the package or has another version of it; or its table URL leads to another place.
        LakeLatchError: an error of a task.
    """
    progress = None
    with ExitStack() as stack:
        stack.enter_context(tagged(spark, store, txn, text))
        if told:
            progress = stack.enter_context(JobProgress(spark.sparkContext, tag_of(txn.instant), told, what).watching())
            task = CountedTask(task, progress.written)
        stack.enter_context(workers_refusals())
        if isinstance(rows, Shuffled) and len(carried := packed(task, store)) <= sizes.property_bytes:
            spark.sparkContext.setLocalProperty(JOB_TASK, carried)
            answers = rows.collect(store, txn.session.marker_client)
        else:
            frame = rows.rows if isinstance(rows, Shuffled) else rows
            answers = frame.mapInArrow(shipped(task), ANSWER).collect()
        if progress is not None:
            progress.answered = len(answers)
    found = unpack(answers)
    for each in found:
        if each.error is not None:
            raise _of_a_worker(each.error, each.host, txn)
    return found


def _of_a_worker(error: LakeLatchError, host: str, txn: Owner) -> LakeLatchError:
    """Return a task's error, corrected by the driver's view: the store may refuse or hide objects from the workers alone.

    A server may report an object as missing to an unknown user. A folder may exist on one host only. Then a task finds no
    heartbeat of a transaction that is open in the log.
    """
    session = txn.session
    if not isinstance(error, StorageError | RolledBackError):
        return error
    with suppress(LakeLatchError):  # a driver that cannot reach the table either learns nothing
        # The log decides: it is what the driver can read and the workers may not.
        if txn.instant not in session.log.catch_up().open:
            return error
        if isinstance(error, StorageError):
            error.add_note(f"a task on worker {host} met this, and the driver reaches the table: {_SAME_PLACE}")
            return error
        told = ConfigError(
            f"{session.url}: worker {host} does not find what the driver does, the heartbeat of {txn.instant}, which is open. "
            f"Nothing landed. {_SAME_PLACE}",
            table=session.url,
            instant=txn.instant,
            host=host,
        )
        told.__cause__ = error
        return told
    return error


def explaining(txn: Transaction) -> AbstractContextManager[None]:
    """Explain errors as `Attempt.explaining` does, and also Spark's where its own scan reads a file that is gone."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return txn.workspace.explaining(PySparkException, Py4JError)


@contextmanager
def described(spark: Any, text: str) -> Iterator[None]:
    """Give jobs of this thread this description in Spark's UI."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


@contextmanager
def tagged(spark: Any, store: Store, txn: Owner, text: str) -> Iterator[None]:
    """Tag the jobs of this thread, so that they end with the transaction."""
    context, instant = spark.sparkContext, txn.instant
    # The session is the caller's; its thread gets back what was set.
    before = {name: context.getLocalProperty(name) for name in _CHANGED}
    context.addJobTag(tag_of(instant))
    context.setJobDescription(text)
    context.setInterruptOnCancel(True)
    done = threading.Event()
    watcher = threading.Thread(
        target=_cancel_when_over, args=(context, store, txn, done), name=f"lakelatch-watch-{instant}", daemon=True
    )
    watcher.start()
    try:
        yield
    except BaseException:
        # First, so that no task goes on writing while the reason is looked for.
        context.cancelJobsWithTag(tag_of(instant))
        if txn.watcher is not None:
            txn.watcher.refuse_if_beaten()  # raises the real reason, if this is it
        refuse_if_over(store, instant)
        raise
    finally:
        done.set()
        context.removeJobTag(tag_of(instant))
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _cancel_when_over(context: Any, store: Store, txn: Owner, done: threading.Event) -> None:
    tag, watcher = tag_of(txn.instant), txn.watcher
    pause_s = _LOOK_S if watcher is None or watcher.idle else _LOOK_OUT_S
    while not done.wait(pause_s):
        try:
            if watcher is not None:
                watcher.look_for_tasks()
            refuse_if_over(store, txn.instant)
        except LakeLatchError:
            # At each turn: a job that starts after the tag was cancelled is not cancelled.
            context.cancelJobsWithTag(tag)
