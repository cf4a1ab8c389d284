"""Work done ahead on several threads; results come in the order in which the calls were given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from .environment import Environment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ready(Generic[T]):
    """A result that needs no work."""

    result: T

    def wait(self) -> None:
        """Return at once."""

    def take(self) -> T:
        """Return the result."""
        return self.result


class Task(Generic[T]):
    """One call on a thread of its own, and its result.

    The result need not be taken: the thread ends with its call.
    """

    def __init__(self, env: Environment, call: Callable[[], T]) -> None:
        self._call, self._ended = call, env.event()
        self._result: T | None = None
        self._error: BaseException | None = None
        env.thread(self._run, name="lakelatch-ahead")

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as e:  # noqa: BLE001 - it is raised in the thread that takes the result
            self._error = e
        finally:
            self._ended.set()

    @property
    def ended(self) -> bool:
        """True if the call has ended."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Wait until the call has ended."""
        self._ended.wait()

    def take(self) -> T:
        """Wait for the call, then return its result or raise its error."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # it has ended without an error


def in_order(env: Environment, calls: Iterable[Callable[[], T] | Ready[T]], at_once: int) -> Iterator[T]:
    """Yield the calls' results in their order, while at most ``at_once`` later ones run or have run.

    An error of a call is raised in its turn. Closing the iterator waits for the calls that run.
    """
    if at_once < 2:
        for call in calls:
            yield call.take() if isinstance(call, Ready) else call()
        return
    ahead: deque[Task[T] | Ready[T]] = deque()
    try:
        for call in calls:
            ahead.append(call if isinstance(call, Ready) else Task(env, call))
            if len(ahead) > at_once:
                yield ahead.popleft().take()
        while ahead:
            yield ahead.popleft().take()
    finally:
        # A call may use files or a store that its owner closes next, so none may still run after this.
        for task in ahead:
            task.wait()
