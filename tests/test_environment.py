"""Threads of the real environment."""

from __future__ import annotations

import os
import threading
import weakref

import pytest

from lakelatch import environment
from lakelatch.environment import SYSTEM
from lakelatch.testing.contention import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def none_spare(monkeypatch):
    environment._spare.clear()  # those of other tests end by themselves
    monkeypatch.setattr(environment, "_SPARE_S", 10 * PATIENCE_S)  # or a busy machine may not see one spare
    yield
    monkeypatch.undo()
    for calls in list(environment._spare):
        calls.put((lambda: None, "test"))  # after which it waits for as short as ever
    environment._spare.clear()


def run_one() -> int:
    """The thread that made a call, once it is spare."""
    made: list[int] = []
    SYSTEM.thread(lambda: made.append(threading.get_ident()), name="test")
    until(lambda: made and environment._spare, "the thread is not spare")
    return made[0]


def test_a_thread_that_has_made_its_call_makes_the_next_one():
    assert len({run_one() for _ in range(5)}) == 1


def test_calls_at_the_same_time_have_threads_of_their_own():
    both = threading.Barrier(2, timeout=PATIENCE_S)
    through: list[int] = []
    for _ in range(2):
        SYSTEM.thread(lambda: through.append(both.wait()), name="test")
    until(lambda: len(through) == 2, "one call waits for the other")


def test_a_spare_thread_ends_when_nobody_wants_it(monkeypatch):
    monkeypatch.setattr(environment, "_SPARE_S", 0.01)
    made: list[threading.Thread] = []
    SYSTEM.thread(lambda: made.append(threading.current_thread()), name="test")
    until(lambda: made and not made[0].is_alive(), "it stays")
    assert not environment._spare
    SYSTEM.thread(lambda: made.append(threading.current_thread()), name="test")
    until(lambda: len(made) == 2, "the next call is not made")


def test_a_call_that_fails_is_told_and_takes_its_thread_along(monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: told.append(failed.exc_type))
    SYSTEM.thread(lambda: {}["none"], name="test")
    until(lambda: told == [KeyError], "nobody is told")
    run_one()


def test_a_spare_thread_holds_on_to_nothing():
    class Held:
        def call(self) -> None:
            pass

    held = Held()
    gone = weakref.ref(held)
    SYSTEM.thread(held.call, name="test")
    del held
    until(lambda: gone() is None, "what was called is kept")


def test_a_child_of_fork_has_threads_of_its_own():
    run_one()
    child = os.fork()
    if child == 0:
        called = threading.Event()
        SYSTEM.thread(called.set, name="test")
        os._exit(0 if called.wait(PATIENCE_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
