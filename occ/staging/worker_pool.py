"""Pieces of work in threads: Arrow and Parquet release the interpreter lock while they compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Self

Piece = tuple[Any, ...]  # of work: a function and its arguments


class WorkerPool:
    """Runs at most ``threads`` pieces of work at a time; with one thread, in the caller's.

    A context manager: all work is done at its end. The first error cancels work that has not begun, and is raised.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakelatch-rows") if threads > 1 else None
        self._running: set[Future[Any]] = set()
        self._next: deque[Piece] = deque()

    def do(self, work: Callable[..., Iterable[Piece] | None], *arguments: Any) -> None:
        """Begin a piece of work when a thread is free; until then only its arguments are in memory.

        The pieces that it returns are done next.
        """
        if self._pool is None:
            for each in work(*arguments) or ():
                self.do(*each)
            return
        while self._next or len(self._running) >= self._threads:
            self._step()
        self._running.add(self._pool.submit(work, *arguments))

    def _step(self) -> None:
        """Begin a piece that a finished one returned, or wait for one to finish."""
        if self._next and len(self._running) < self._threads:
            assert self._pool is not None
            self._running.add(self._pool.submit(*self._next.popleft()))
            return
        done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        for each in done:
            self._next.extend(each.result() or ())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if self._pool is None:
            return
        try:
            while kind is None and (self._running or self._next):
                self._step()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
