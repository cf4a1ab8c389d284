"""Several pieces of work at a time, in threads: Arrow and Parquet let go of the interpreter while they compute."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Self


class Crew:
    """Does at most ``threads`` pieces of work at a time; with one thread, in the caller's.

    A context manager: at its end all is done. The first error stops what has not begun, and is raised.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakelatch-rows") if threads > 1 else None
        self._running: set[Future[Any]] = set()

    def do(self, work: Callable[..., object], *arguments: Any) -> None:
        """Begin a piece of work when a thread is free: until then nothing waits in memory but its arguments."""
        if self._pool is None:
            work(*arguments)
            return
        while len(self._running) >= self._threads:
            self._wait(FIRST_COMPLETED)
        self._running.add(self._pool.submit(work, *arguments))

    def _wait(self, until: str) -> None:
        done, self._running = wait(self._running, return_when=until)
        for each in done:
            each.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if self._pool is None:
            return
        try:
            while kind is None and self._running:
                self._wait(FIRST_COMPLETED)
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
