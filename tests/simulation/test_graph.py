"""The judge that looks at reads alone: histories that must be refused, and one of each kind that must not."""

from __future__ import annotations

import pytest

from lakelatch.hudi.files import FileGroupId

from .graph import check, write_skews
from .history import FOUNDER, Anomaly, Attempt, State, Value

X, Y, Z = (FileGroupId("part=a", name) for name in "xyz")


def value(*names: str) -> Value:
    names = (FOUNDER, *names)
    return Value(names, len(names), 0)


def seen(**groups: str) -> State:
    """``seen(x="ab")``: x held the founder's, a's and b's names."""
    return {FileGroupId("part=a", name): value(*names) for name, names in groups.items()}


def txn(
    name: str,
    reads: State,
    writes: str = "",
    *,
    level: str = "snapshot",
    at: tuple[float, float] = (0, 9),
    outcome="committed",
) -> Attempt:
    """``writes`` names groups, to whose list as it was read the own name is appended."""
    attempt = Attempt(name, level=level, reads=reads, outcome=outcome, began=at[0], ended=at[1])
    for letter in writes:
        group = FileGroupId("part=a", letter)
        attempt.writes[group] = value(*reads[group].names[1:], name)
    return attempt


def test_a_serial_history_is_allowed_at_every_level():
    for level in ("snapshot", "serializable"):
        a = txn("a", seen(x="", y=""), "xy", level=level, at=(0, 1))
        b = txn("b", seen(x="a", y="a"), "x", level=level, at=(2, 3))
        check([a, b], [seen(x="", y=""), seen(x="a", y="a"), seen(x="ab", y="a")])


def test_a_lost_update_is_refused():
    with pytest.raises(Anomaly, match="lost update"):
        check([txn("a", seen(x=""), "x"), txn("b", seen(x=""), "x")], [])


def test_a_committed_write_that_no_reader_sees_is_refused():
    with pytest.raises(Anomaly, match="lost update"):
        check([txn("a", seen(x=""), "x"), txn("b", seen(x=""), "x")], [seen(x="b")])


def test_writes_in_opposite_orders_are_refused():
    """G0: x says a before b, y says b before a."""
    a, b = txn("a", {}), txn("b", {})
    with pytest.raises(Anomaly, match="cycle"):
        check([a, b], [seen(x="ab", y="ba")])


def test_two_that_read_each_other_are_refused():
    """G1c: information goes round in a circle."""
    a = txn("a", seen(x="", y="b"), "x")
    b = txn("b", seen(y="", x="a"), "y")
    with pytest.raises(Anomaly, match="cycle"):
        check([a, b], [])


def test_a_read_of_an_aborted_write_is_refused():
    """G1a."""
    a = txn("a", seen(x=""), "x", outcome="conflict")
    with pytest.raises(Anomaly, match="aborted read"):
        check([a, txn("b", seen(x="a"))], [])


def test_half_a_transaction_is_refused():
    """G-single: b saw what a wrote to x, and not what it wrote to y."""
    a = txn("a", seen(x="", y=""), "xy")
    with pytest.raises(Anomaly, match="cycle"):
        check([a, txn("b", seen(x="a", y=""))], [seen(x="a", y="a")])


def test_a_long_fork_is_refused():
    """Two readers see two writes in opposite orders."""
    a, b = txn("a", seen(x=""), "x"), txn("b", seen(y=""), "y")
    one, two = txn("one", seen(x="a", y="")), txn("two", seen(x="", y="b"))
    with pytest.raises(Anomaly, match="cycle"):
        check([a, b, one, two], [])


def test_a_stale_read_is_refused():
    """a had been told that it landed before b began, and b did not see it."""
    a = txn("a", seen(x=""), "x", at=(0, 1))
    with pytest.raises(Anomaly, match="cycle"):
        check([a, txn("b", seen(x=""), at=(2, 3))], [])
    check([a, txn("b", seen(x=""), at=(0.5, 3))], [])


@pytest.mark.parametrize("level", ["snapshot", "serializable"])
def test_write_skew_is_allowed_by_snapshot_alone(level):
    a = txn("a", seen(x="", y=""), "x", level=level)
    b = txn("b", seen(x="", y=""), "y", level=level)
    if level == "snapshot":
        check([a, b], [])
        assert write_skews([a, b], []) == ["a and b"]
        return
    with pytest.raises(Anomaly, match="no serial order"):
        check([a, b], [])


def test_a_phantom_is_refused_under_serializable():
    """Each counts the groups of the partition, and adds one."""
    a, b = (txn(name, seen(x=""), level="serializable") for name in "ab")
    for attempt, group in ((a, Y), (b, Z)):
        attempt.mark_scanned = frozenset({"part=a"})
        attempt.writes[group] = Value((attempt.name,), 1, 0)
    with pytest.raises(Anomaly, match="no serial order"):
        check([a, b], [])


def test_a_write_that_was_cut_off_counts_when_somebody_saw_it():
    a = txn("a", seen(x=""), "x", outcome="cut off")
    check([a, txn("b", seen(x=""))], [seen(x="")])
    with pytest.raises(Anomaly, match="cycle"):
        check([a, txn("b", seen(x="", y=""), "y"), txn("c", seen(x="a", y=""), at=(10, 11))], [seen(x="a", y="b")])


def test_a_write_of_nobody_and_a_doubled_one_are_refused():
    with pytest.raises(Anomaly, match="nobody wrote"):
        check([], [seen(x="a")])
    with pytest.raises(Anomaly, match="twice"):
        check([txn("a", {})], [seen(x="aa")])


def test_a_group_that_somebody_may_have_taken_away_was_perhaps_seen_before_that():
    """c counts the groups and finds neither the one that a made before, nor b, which was cut off after it dropped it."""
    a, b = txn("a", {}, at=(0, 1)), txn("b", {}, outcome="cut off", at=(2, 9))
    c = txn("c", seen(x=""), at=(3, 4))
    a.writes[Y] = Value(("a",), 1, 0)
    c.mark_scanned = frozenset({"part=a"})
    with pytest.raises(Anomaly, match="cycle"):
        check([a, c], [])
    b.drops = {Y}
    check([a, b, c], [])
