"""The order in the kernel queue, without any lock on top of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM, SystemEnvironment
from lakelatch.locks.file import kernel_queue
from lakelatch.locks.file.kernel_queue import KernelPlace, tickets

pytestmark = pytest.mark.skipif(not kernel_queue._OFD, reason="no open-file-description locks: flock keeps no order")

PATIENCE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue")


def place(path: str, env: SystemEnvironment = SYSTEM, *, block: bool = True) -> KernelPlace:
    return KernelPlace(path, env, block=block)


def leave(each: KernelPlace) -> None:
    each.leave({}, "")


def test_who_has_just_left_stands_behind_those_who_wait(path: str) -> None:
    first, second = place(path), place(path, block=False)
    assert first.enter()
    assert not second.enter()  # and is not awake to see the release
    leave(first)
    again = place(path)
    assert not again.enter()
    assert len(tickets(path)) == 2
    assert second.enter()
    leave(second)
    assert again.enter()
    leave(again)
    assert tickets(path) == []


def test_a_waiter_that_gives_up_is_passed_over_and_the_order_stays(path: str) -> None:
    head, *waiting = (place(path) for _ in range(5))
    order: list[int] = []
    assert head.enter()
    for each in waiting:
        assert not each.enter()
    leave(waiting[1])

    def wait(i: int) -> None:
        while not waiting[i].inside:
            waiting[i].wait(PATIENCE_S)
        order.append(i)
        leave(waiting[i])

    threads = [threading.Thread(target=wait, args=(i,)) for i in (3, 0, 2)]  # when they fall asleep does not matter
    for thread in threads:
        thread.start()
    leave(head)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [0, 2, 3]


def test_who_sleeps_behind_one_that_gives_up_goes_on_sleeping_behind_the_one_before(path: str) -> None:
    head, first, second, third = (place(path) for _ in range(4))
    for each in (head, first, second, third):
        each.enter()
    third.wait(0.05)  # it sleeps for the second now
    leave(second)
    third.wait(0.2)
    assert not third.inside
    leave(first)
    leave(head)
    third.wait(PATIENCE_S)
    assert third.inside
    leave(third)


def test_a_waiter_whose_time_is_over_is_out_of_the_line_at_once_and_stands_further_back_when_it_comes_again(
    path: str,
) -> None:
    head, waiter, other = (place(path) for _ in range(3))
    parked: dict[str, KernelPlace] = {}
    assert head.enter()
    assert not waiter.enter()
    waiter.wait(0.05)  # a thread sleeps in the kernel for it
    waiter.leave(parked, path)
    assert len(tickets(path)) == 1, "it is still in line, for as long as its process lives"
    assert not other.enter()
    assert parked[path].adopt()
    assert len(tickets(path)) == 3
    leave(head)
    other.wait(PATIENCE_S)
    assert other.inside
    assert not waiter.inside
    leave(other)
    waiter.wait(PATIENCE_S)
    assert waiter.inside
    leave(waiter)
    assert tickets(path) == []


def test_a_killed_process_frees_its_place_at_once(path: str) -> None:
    code = """
import sys
from lakelatch.environment import SYSTEM
from lakelatch.locks.file.kernel_queue import KernelPlace
print(KernelPlace(sys.argv[1], SYSTEM, block=True).enter(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"True\n"
        mine = place(path)
        assert not mine.enter()
        child.kill()
        mine.wait(PATIENCE_S)  # no other waking than the kernel's
        assert mine.inside
        leave(mine)


def test_who_was_slow_to_stand_goes_behind_who_came_meanwhile(path: str) -> None:
    class Slow(SystemEnvironment):
        late = True

        def now(self) -> float:
            seen = super().now()
            if self.late:  # suspended between the clock and the lock
                self.late = False
                assert other.enter()
            return seen

    other, slow = place(path), place(path, Slow())
    assert not slow.enter()
    leave(other)
    assert slow.enter()
    leave(slow)


def test_a_number_that_is_taken_is_not_given_twice(path: str) -> None:
    class Still(SystemEnvironment):
        def now(self) -> float:
            return 1e9

    places = [place(path, Still()) for _ in range(6)]
    assert [each.enter() for each in places] == [True, *[False] * 5]
    assert len(set(tickets(path))) == 6
    for each in places:
        leave(each)
