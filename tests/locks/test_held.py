"""Leases, the renewer, the queue in front, and the fake environment that the tests stand on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lakelatch.environment import Process
from lakelatch.errors import LockLostError, LockTimeoutError, StorageError
from lakelatch.locks import LeasedLocks, Release, open_provider
from lakelatch.locks.core.backend import Grant
from lakelatch.locks.core.lease import HeldLease, LeaseState, Renewer, renew
from lakelatch.locks.core.thread_queue import FrontQueue, Ticket
from lakelatch.testing import FakeEnvironment


class Script(Grant):
    """A grant that answers as told, after the time told."""

    token = 7

    def __init__(self, env: FakeEnvironment) -> None:
        self.env = env
        self.answer: bool | Exception = True
        self.release_answer: Release | Exception = Release.RELEASED
        self.takes_s = 0.0
        self.renewals: list[float] = []

    def renew(self) -> bool:
        self.renewals.append(self.env.monotonic())
        self.env.suspend(self.takes_s)
        return self.check()

    def check(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def release(self) -> Release:
        if isinstance(self.release_answer, Exception):
            raise self.release_answer
        return self.release_answer

    def listen(self, call: Callable[[str], None]) -> None:
        self.news = call


@pytest.fixture
def env() -> FakeEnvironment:
    return FakeEnvironment()


@pytest.fixture
def script(env: FakeEnvironment) -> Script:
    return Script(env)


def hold_it(env: FakeEnvironment, script: Script, renewer: Renewer | None = None, lease_s: float = 12.0) -> HeldLease:
    ticket = FrontQueue(env).enter("k", until=None)
    assert isinstance(ticket, Ticket)
    hold = LeaseState(
        place="script://", key="k", owner="me", grant=script, asked_at=env.monotonic(), lease_s=lease_s,
        max_hold_s=None, env=env, process=env.process(), ticket=ticket,
    )  # fmt: skip
    return HeldLease(hold, renewer or Renewer(env))


def test_renewals_come_at_a_third_of_the_lease(env: FakeEnvironment, script: Script) -> None:
    start = env.monotonic()
    lease = hold_it(env, script)
    env.advance(12)
    assert [at - start for at in script.renewals] == [4, 8, 12]
    assert lease.deadline == start + 24


def test_a_failed_renewal_is_tried_again_ever_more_slowly_until_the_deadline(
    env: FakeEnvironment, script: Script
) -> None:
    start = env.monotonic()
    lease = hold_it(env, script)
    told: list[str] = []
    lease.on_lost(told.append)
    script.answer = StorageError("no answer")
    env.advance(30)
    assert [at - start for at in script.renewals] == [4, 4.5, 5, 6, 7, 8, 9, 10, 11]
    assert (lease.lost, told) == ("unreachable", ["unreachable"])
    with pytest.raises(LockLostError) as caught:
        lease.ensure_held()
    assert caught.value.details["cause"] == "no answer"


def test_an_answer_after_the_deadline_revives_nothing(env: FakeEnvironment, script: Script) -> None:
    lease = hold_it(env, script)
    script.takes_s = 8.5
    env.advance(4)
    assert script.renewals
    assert lease.lost == "unreachable"


def test_the_deadline_counts_from_before_the_request(env: FakeEnvironment, script: Script) -> None:
    start = env.monotonic()
    lease = hold_it(env, script)
    script.takes_s = 3.0
    env.advance(4)
    assert lease.deadline == start + 4 + 12


def test_a_stolen_lease_is_told_once(env: FakeEnvironment, script: Script) -> None:
    lease = hold_it(env, script)
    told: list[str] = []
    lease.on_lost(told.append)
    script.answer = False
    env.advance(6)
    assert told == ["stolen"]
    script.answer = True
    env.advance(60)
    assert (told, lease.lost, len(script.renewals)) == (["stolen"], "stolen", 1)


def test_a_callback_that_fails_stops_neither_others_nor_the_renewer(env: FakeEnvironment, script: Script) -> None:
    renewer = Renewer(env)
    lost, other = hold_it(env, script, renewer), hold_it(env, Script(env), renewer)
    told: list[str] = []

    def fail(_: str) -> None:
        raise ValueError("a user's mistake")

    lost.on_lost(fail)
    lost.on_lost(told.append)
    script.answer = False
    env.advance(60)
    assert told == ["stolen"]
    other.ensure_held()


def test_a_callback_may_release(env: FakeEnvironment, script: Script) -> None:
    lease = hold_it(env, script)
    answers: list[Release] = []
    lease.on_lost(lambda _: answers.append(lease.release()))
    script.answer = False
    env.advance(6)
    assert answers == [Release.WAS_LOST]


def test_a_late_renewal_does_not_follow_a_release_or_a_loss(env: FakeEnvironment, script: Script) -> None:
    renewer = Renewer(env)
    released, lost = hold_it(env, script, renewer), hold_it(env, script, renewer)
    released.release()
    env.suspend(1000)
    renew([released._state, lost._state], lambda grants: [grant.renew() for grant in grants])
    assert script.renewals == []
    assert (released.lost, lost.lost) == ("released", "expired")


def test_a_release_without_answer_is_unknown_and_does_not_raise(env: FakeEnvironment, script: Script) -> None:
    script.release_answer = StorageError("no answer")
    with hold_it(env, script) as lease:
        pass
    assert lease.release() is Release.UNKNOWN


def test_a_timer_stops_when_idle_and_one_serves_all(env: FakeEnvironment, script: Script) -> None:
    renewer = Renewer(env)
    leases = [hold_it(env, script, renewer) for _ in range(5)]
    assert len([timer for timer in env._timers if not timer.cancelled]) == 1
    for lease in leases:
        lease.release()
    env.advance(60)
    assert [timer for timer in env._timers if not timer.cancelled] == []
    again = hold_it(env, script, renewer)
    env.advance(30)
    again.ensure_held()


def test_a_shorter_lease_makes_the_timer_faster(env: FakeEnvironment, script: Script) -> None:
    renewer = Renewer(env)
    long, short = hold_it(env, script, renewer, lease_s=120), hold_it(env, script, renewer, lease_s=1.2)
    env.advance(300)
    long.ensure_held()
    short.ensure_held()


def test_a_lease_belongs_to_the_process_that_took_it(env: FakeEnvironment, script: Script) -> None:
    lease = hold_it(env, script)
    env.become(Process("host-a", "boot-a", 101, "2"))
    assert lease.lost == "forked"
    with pytest.raises(LockLostError, match="child of fork"):
        lease.ensure_held()
    assert lease.release() is Release.WAS_LOST


def test_a_waiter_that_gives_up_does_not_stop_the_line(env: FakeEnvironment) -> None:
    queue = FrontQueue(env)
    first = queue.enter("k", until=None)
    assert isinstance(first, Ticket)
    assert queue.enter("k", until=None) == 1
    assert queue.enter("k", until=env.monotonic() + 5) == 1
    first.leave()
    first.leave()
    second = queue.enter("k", until=None)
    assert isinstance(second, Ticket)
    second.leave()
    assert queue._lines == {}


def test_a_waiter_that_is_interrupted_passes_on_what_it_was_handed(env: FakeEnvironment) -> None:
    class Interrupted(FakeEnvironment):
        def event(self) -> Interrupting:
            return Interrupting()

    class Interrupting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert isinstance(first, Ticket)
            first.leave()  # handed over in the very moment of the interrupt
            raise KeyboardInterrupt

    queue = FrontQueue(Interrupted())
    first = queue.enter("k", until=None)
    with pytest.raises(KeyboardInterrupt):
        queue.enter("k", until=1e9)
    assert isinstance(queue.enter("k", until=None), Ticket)


def test_who_gives_up_as_its_turn_comes_passes_it_on(env: FakeEnvironment) -> None:
    """Of many that wait, the outcome of most may be known before their turn."""
    queue = FrontQueue(env)

    def enter(answer: bool | Exception) -> Ticket | int:
        first = queue.enter("k", until=None)
        assert isinstance(first, Ticket)
        answers = [False, answer]

        def given_up() -> bool:
            first.leave()  # its turn comes while it looks
            found = answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        return queue.enter("k", until=env.monotonic() + 5, given_up=given_up)

    assert enter(True) == 0
    with pytest.raises(ValueError, match="cannot tell"):
        enter(ValueError("cannot tell"))
    assert isinstance(queue.enter("k", until=None), Ticket)


def test_who_gives_up_asks_nobody_who_holds_the_lock(env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many waiters, to find that out would cost each of them as much as they are many."""
    with open_provider("memory://gives-up", env=env) as locks:
        assert isinstance(locks, LeasedLocks)
        lease, asked = locks.acquire("k", wait_s=0), list[str]()
        monkeypatch.setattr(locks._backend, "inspect", asked.append)
        for given_up in (lambda: True, None):
            with pytest.raises(LockTimeoutError):
                locks.acquire("k", wait_s=5.0, given_up=given_up)
            assert asked == ([] if given_up else ["k"])
        lease.release()


def test_fake_timers_fire_in_order_at_their_times(env: FakeEnvironment) -> None:
    start, fired = env.monotonic(), []
    fast = env.every(2, lambda: fired.append(("fast", env.monotonic() - start)), name="fast")
    env.every(3, lambda: fired.append(("slow", env.monotonic() - start)), name="slow")
    env.advance(6)
    assert fired == [("fast", 2), ("slow", 3), ("fast", 4), ("fast", 6), ("slow", 6)]
    fast.cancel()
    fast.cancel()
    env.suspend(100)
    env.advance(1)
    assert fired[5:] == [("slow", 106)]  # overdue: once


def test_a_fake_wait_ends_when_a_timer_sets_the_event(env: FakeEnvironment) -> None:
    event, start = env.event(), env.monotonic()
    env.every(4, lambda: env.thread(event.set, name="later"), name="timer")
    assert event.wait(10)
    assert env.monotonic() == start + 4
    assert not env.event().wait(3)
    with pytest.raises(RuntimeError, match="without time limit"):
        FakeEnvironment().event().wait()


def test_a_fake_environment_repeats_itself_and_its_wall_clock_can_go_back() -> None:
    def story(env: FakeEnvironment) -> list[object]:
        peer = env.peer()
        return [env.random(), env.uuid(), env.uuid(), peer.uuid(), peer.random(), env.now()]

    assert story(FakeEnvironment(seed=3)) == story(FakeEnvironment(seed=3))
    assert story(FakeEnvironment(seed=3))[:5] != story(FakeEnvironment(seed=4))[:5]
    env = FakeEnvironment()
    before = env.monotonic()
    env.set_wall(5.0)
    env.sleep(2)
    assert (env.now(), env.monotonic()) == (7.0, before + 2)
