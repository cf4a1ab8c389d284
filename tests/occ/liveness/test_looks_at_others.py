"""How often a writer reads the heartbeats of others: where many write, that is what each of their commits would cost most."""

from __future__ import annotations

from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.testing.faults import FaultStore

from ..world import World, Writer

INTERVAL_S, TIMEOUT_S = 10.0, 60.0


def far(world: World, name: str) -> Writer:
    writer = world.writer(name, host="host-b")
    writer.table.session.cleaner._at_once = 16
    return writer


def beats_read(store: FaultStore) -> int:
    return sum(call.path.startswith(HEARTBEATS) and call.op == "get" for call in store.calls)


def look(writer: Writer, *, after_s: float) -> int:
    """How many heartbeats a look after others reads."""
    writer.env.advance(after_s)
    writer.store.reset()
    writer.table.session.look_after_others()
    return beats_read(writer.store)


def test_who_was_met_just_now_is_not_asked_for_a_sign_of_life(make_world):
    world = make_world(lock="none://", heartbeat_interval_s=INTERVAL_S, heartbeat_timeout_s=TIMEOUT_S)
    others = [world.writer(f"A{number}").begin_add("a") for number in range(3)]
    w = far(world, "W")
    assert look(w, after_s=2.0) == look(w, after_s=INTERVAL_S / 2) == 0
    assert look(w, after_s=INTERVAL_S / 2) == 3
    assert look(w, after_s=INTERVAL_S / 2) == 0
    others.pop().abort()
    assert look(w, after_s=INTERVAL_S / 2) == 2


def test_a_silent_writer_is_ended_an_interval_later(make_world):
    world = make_world(lock="none://", heartbeat_interval_s=INTERVAL_S, heartbeat_timeout_s=TIMEOUT_S)
    dead = world.writer("A").begin_add("a")
    dead.workspace.session.heart.close()  # its process goes on, and shows no sign of life
    w = far(world, "W")
    look(w, after_s=2.0)
    for _ in range(6):
        look(w, after_s=INTERVAL_S)
        assert dead.instant in w.table.session.log.catch_up().open
    look(w, after_s=INTERVAL_S)
    assert dead.instant not in w.table.session.log.catch_up().open


def test_who_has_certainly_ended_is_found_at_once(make_world):
    world = make_world(lock="none://", heartbeat_interval_s=INTERVAL_S, heartbeat_timeout_s=TIMEOUT_S)
    a = world.writer("A", host="host-b")
    dead = a.begin_add("a")
    a.die()
    w = far(world, "W")
    assert look(w, after_s=2.0) == 0
    assert dead.instant not in w.table.session.log.catch_up().open
