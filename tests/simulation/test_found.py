"""What the simulator has found, each told again as one schedule by hand."""

from __future__ import annotations

from pathlib import Path

from lakelatch.testing.faults import Call, On, Pause, Refuse

from ..occ.world import BEGUN, World, check_sound


def _completed_instant(call: Call) -> bool:
    return call.op == "put_if_absent" and "/timeline/" in call.path and "_" in call.path


def test_a_new_handle_publishes_what_it_reads_while_it_verifies_its_epoch(tmp_path: Path):
    """B, a new handle, looks up whether its epoch's commits are on the timeline. Meanwhile A lands two; the second could
    not be published. B sees the first one, reads on in the log, finds both, and must not begin behind the second
    while no timeline shows it: its snapshot would lack A's rows, and B would overwrite them.
    """
    world = World(tmp_path / "table", lock="none://")
    a, b = world.writer("A"), world.writer("B")

    def meanwhile() -> None:
        assert a.add("a").published
        a.store.add(Refuse(_completed_instant, forever=True))
        assert not a.add("a").published

    b.store.add(Pause(On("list", ".hoodie/timeline"), call=meanwhile))
    b.add("a")
    a.store.reset()
    assert world.content() == BEGUN | {"a0": 3, "a1": 3}
    with world.fresh() as table:
        check_sound(table)
    world.close()
