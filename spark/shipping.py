"""Send a task to Spark's Python workers, with a clear error where a worker cannot run it.

A worker finds functions by import. A worker without the package would fail with one of pickle's tracebacks. So it gets
one function by value, which imports the package itself and names a missing or different version in a sentence.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError, InputError

_CANNOT = re.compile(r"the Python of worker [^\n]*")
_REFUSED = re.compile(r"RuntimeError: rows that the table cannot hold: ([^\n]*)")


def shipped(task: Callable[[Iterable[Any]], Iterator[Any]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the task as a function for ``mapInArrow`` that a worker without the package can read, and refuses there.

    A worker with another version of the package refuses too: it may understand tasks and files differently.
    """
    from pyspark import cloudpickle

    import lakelatch

    version, body = lakelatch.__version__, cloudpickle.dumps(task)

    # Pickled by value, as a nested function; so it uses nothing of this module before it knows that it can be imported.
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pickle
        import platform
        import sys

        worker = f"the Python of worker {platform.node()} ({sys.executable})"
        instead = (
            "nothing was written by this task. Install one version on all hosts, or ship it with `lakelatch worker-zip`"
        )
        try:
            import lakelatch

            there = lakelatch.__version__
            known = pickle.loads(body) if there == version else None  # noqa: S301 - written by our own driver
        except ModuleNotFoundError as e:
            missing = e.name or str(e)
            raise RuntimeError(f"{worker} has no module {missing!r}; {instead}") from None
        if known is None:
            raise RuntimeError(f"{worker} has lakelatch {there} and the driver {version}; {instead}")
        from lakelatch.spark.shipping import spare_the_collector

        spare_the_collector()
        yield from known(batches)

    return run


def spare_the_collector() -> None:
    """Freeze a worker's current objects, mostly imported modules, so that no later garbage collection scans them.

    Spark's daemon collects cycles after each task of a worker that it uses again. With Arrow, pandas and this package
    imported that takes 0.06 s, each time in vain, which is more than many tasks take.
    """
    from pyspark import TaskContext

    if TaskContext.get() is None or gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()


@contextmanager
def workers_refusals() -> Iterator[None]:
    """Raise a worker's own error in place of Spark's report.

    It is a `ConfigError` where the worker could not run a task, an `InputError` for rows as in `refused_rows`.
    """
    try:
        yield
    except Exception as e:
        if found := _REFUSED.search(str(e)):
            raise InputError(found[1]) from e
        if found := _CANNOT.search(str(e)):
            raise ConfigError(found[0]) from e
        raise


@contextmanager
def refused_rows() -> Iterator[None]:
    """Let an `InputError` of a worker that passes rows on reach the driver, through Spark's report of it."""
    try:
        yield
    except InputError as e:
        raise RuntimeError(f"rows that the table cannot hold: {str(e).splitlines()[0]}") from None
