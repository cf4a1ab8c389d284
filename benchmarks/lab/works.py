"""The works of writers: each makes the rows of one operation and names the verb of a system that writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from . import rows
from .operations import Operation

if TYPE_CHECKING:
    import pyarrow as pa

_ZIPF = 1.2
_LATE, _LATE_BY = 0.2, 5  # share of events that come after newer ones, and by how many operations
WRITERS_MAX = 1024
VALUES = 8  # distinct values of appended rows; a delete removes the rows of one


class Note(Protocol):
    """The receiver of a session's steps in one operation."""

    def attempt(self) -> None:
        """Record that another attempt begins; the one before has lost."""
        ...

    def think(self) -> None:
        """Spend the time that the scenario wants between the reading and the commit."""
        ...

    def saw(self, found: pa.Table) -> None:
        """Record rows that were read, and will be changed."""
        ...

    def landed(self, commit: str, losses: list[tuple[str, str]]) -> None:
        """Record the commit's name, and why and against which commits earlier attempts lost."""
        ...


Key = tuple[str, str]  # partition, id
Change = Callable[["pa.Table"], "pa.Table"]


class Session(Protocol):
    """One writer's open handle on the table of a system.

    Each verb is one transaction. It returns once that has committed, and raises `Aborted` if nothing of it has, for a reason
    that another attempt can mend; any other error ends the operation as failed. A system leaves out the verbs that it does
    not support; `System.works` names the others.
    """

    def append(self, new: pa.Table, note: Note) -> None:
        """Add rows with new keys."""
        ...

    def replace(self, part: str, new: pa.Table, note: Note) -> None:
        """Make a partition hold these rows and no others."""
        ...

    def upsert(self, new: pa.Table, note: Note) -> None:
        """Insert rows, or replace those with the same key, whatever others did to them."""
        ...

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        """Read rows and write the result of ``change``; lost if another writer changes them in between."""
        ...

    def event(self, stream: int, new: pa.Table, note: Note) -> None:
        """Set a stream's two columns of rows that other streams fill too, unless a newer event of the stream already has.

        ``new`` has key, partition and the columns of `rows.stream_columns`, of which the first orders events. Only in tables
        that were made with rows of `rows.WIDE`.
        """
        ...

    def delete(self, value: int, note: Note) -> None:
        """Delete the appended rows (keys from "a-") with this value."""
        ...

    def serve(self, note: Note) -> None:
        """Do some of the table's maintenance, such as compaction."""
        ...

    def hold(self, note: Note) -> None:
        """Take a lock, call ``note.think()``, and release it."""
        ...

    def close(self) -> None:
        """Close the handle. Idempotent."""
        ...


class Aborted(Exception):
    """An operation of which nothing is committed; another writer was in the way.

    Attributes:
        reason: a few words, constant for each cause.
        winner: the commit that it lost against; "" if unknown.
        losses: reason and winner of each attempt, if the session made several.
    """

    def __init__(self, reason: str, winner: str = "", losses: list[tuple[str, str]] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.winner, self.losses = reason, winner, losses or []


@dataclass(slots=True)
class Hand:
    """The facts about one writer and its role that the works need."""

    writer: int
    chance: Random
    partitions: int
    keys: int
    pick: str
    spread: int
    rows: int

    def parts(self) -> list[int]:
        """Return the partitions of one operation, sorted, so that two operations cannot wait for each other in a circle."""
        if self.pick == "own":
            return [self.writer % self.partitions]
        spread = min(self.spread, self.partitions)
        if self.pick == "any":
            return sorted(self.chance.sample(range(self.partitions), spread))
        weights = [1 / (n + 1) ** _ZIPF for n in range(self.partitions)]
        found: set[int] = set()
        while len(found) < spread:
            found.add(self.chance.choices(range(self.partitions), weights)[0])
        return sorted(found)

    def shared(self, count: int) -> list[int]:
        """Return some of the initial rows, sorted."""
        return sorted(self.chance.sample(range(self.keys), count))


Act = Callable[[Any, Note], None]
Work = Callable[[Hand, Operation], Act]


def _append(hand: Hand, op: Operation) -> Act:
    parts = [rows.partition_name(part) for part in hand.parts() for _ in range(hand.rows)]
    op.parts, op.rows, op.value = tuple(dict.fromkeys(parts)), len(parts), hand.chance.randrange(VALUES)
    new = rows.rows_of(
        [f"{rows.APPENDED}{op.name}-{n}" for n in range(len(parts))], parts, [op.value] * len(parts), op.name
    )
    return lambda session, note: session.append(new, note)


def _replace(hand: Hand, op: Operation) -> Act:
    part = rows.partition_name(hand.parts()[0])
    op.parts, op.rows = (part,), hand.rows
    keys = [f"{rows.REPLACED}{hand.writer}-{n}" for n in range(hand.rows)]
    new = rows.rows_of(keys, [part] * hand.rows, [0] * hand.rows, op.name)
    return lambda session, note: session.replace(part, new, note)


def _upsert(hand: Hand, op: Operation) -> Act:
    parts = hand.parts()
    op.parts, op.rows = tuple(map(rows.partition_name, parts)), hand.rows * len(parts)
    # Keys carry the writer, so each row has one writer, and the oracle knows which write was last.
    keys = [f"{rows.UPSERTED}{hand.writer}-{part}-{n}" for part in parts for n in range(hand.rows)]
    names = [rows.partition_name(part) for part in parts for _ in range(hand.rows)]
    new = rows.rows_of(keys, names, [0] * len(keys), op.name)
    return lambda session, note: session.upsert(new, note)


def _increment(hand: Hand, op: Operation) -> Act:
    return _modify(hand, op, hand.shared(1), [1])


def _transfer(hand: Hand, op: Operation) -> Act:
    amount = hand.chance.randrange(1, 10)
    return _modify(hand, op, hand.shared(2), hand.chance.choice(([amount, -amount], [-amount, amount])))


def _modify(hand: Hand, op: Operation, numbers: list[int], by: list[int]) -> Act:
    keys = [(rows.partition_name(n % hand.partitions), rows.shared_key(n)) for n in numbers]
    more = dict(zip((key for _, key in keys), by, strict=True))
    op.keys, op.parts, op.rows = tuple(more), tuple(dict.fromkeys(part for part, _ in keys)), len(keys)

    def change(found: pa.Table) -> pa.Table:
        names = found[rows.KEY].to_pylist()
        values = found[rows.VALUE].to_pylist()
        return rows.rows_of(
            names, found[rows.PARTITION].to_pylist(), [v + more[n] for n, v in zip(names, values, strict=True)], op.name
        )

    return lambda session, note: session.modify(keys, change, note)


def _event(hand: Hand, op: Operation) -> Act:
    numbers = hand.shared(min(hand.rows, hand.keys))
    op.keys = tuple(map(rows.shared_key, numbers))
    parts = [rows.partition_name(n % hand.partitions) for n in numbers]
    op.parts, op.rows = tuple(dict.fromkeys(parts)), len(numbers)
    # Unique among all events, late ones included, so that it is always certain which of two counts.
    number, late = int(op.name.rpartition("-")[2]), hand.chance.random() < _LATE
    op.value = ((number - late * _LATE_BY) * WRITERS_MAX + hand.writer) * 2 + late
    stream = rows.stream_of(hand.writer)
    new = rows.events_of(op.keys, parts, stream, op.value, op.name)
    return lambda session, note: session.event(stream, new, note)


def _delete(hand: Hand, op: Operation) -> Act:
    op.value = int(op.name.rpartition("-")[2]) % VALUES
    op.parts = tuple(map(rows.partition_name, range(hand.partitions)))
    return lambda session, note: session.delete(op.value, note)


def _serve(hand: Hand, op: Operation) -> Act:  # noqa: ARG001 - it writes no rows
    return lambda session, note: session.serve(note)


def _hold(hand: Hand, op: Operation) -> Act:  # noqa: ARG001 - it writes no rows
    return lambda session, note: session.hold(note)


WORKS: dict[str, Work] = {
    "append": _append,
    "replace": _replace,
    "upsert": _upsert,
    "increment": _increment,
    "transfer": _transfer,
    "event": _event,
    "delete": _delete,
    "serve": _serve,
    "hold": _hold,
}
