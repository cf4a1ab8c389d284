"""What the transactions of a schedule do: small works on file groups that hold a list, a counter and a balance."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from lakelatch.conflict import FileGroupId
from lakelatch.errors import LatchError, RolledBackError, StorageError
from lakelatch.occ.avro import WriteStat
from lakelatch.occ.file_spec import refuse_if_over
from lakelatch.occ.landed import is_no_part
from lakelatch.occ.markers import announce, stands
from lakelatch.occ.names import BaseName, base_file_name, join, new_file_id
from lakelatch.occ.transaction import Transaction

from .history import Attempt, Value

if TYPE_CHECKING:
    from lakelatch.occ.rebase import Lost
    from lakelatch.occ.snapshot import FileSlice

    from .history import Roots

PARTITIONS = ("part=a", "part=b")
FIRST_BALANCE = 100
SECOND_ATTEMPTS = 0.08


def decode_value(body: bytes) -> Value:
    names, count, balance = json.loads(body)
    return Value(tuple(names), count, balance)


class Work:
    """One attempt at one kind of work, in a transaction that is open."""

    def __init__(self, txn: Transaction, attempt: Attempt, luck: Random, roots: Roots) -> None:
        self.txn, self.attempt, self.luck, self.roots = txn, attempt, luck, roots
        self._changes: dict[FileGroupId, int] = {}  # of balances, by root

    # --- kinds ------------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Write one or two groups, perhaps after a look at another one."""
        groups = self._some(1, 2)
        if not groups:
            return self.insert()
        for number, group in enumerate(groups):
            seen = self._read(group)
            if number == 0 or self.luck.random() < 0.8:
                self._replace(group, seen, seen.balance)
        return None

    def insert(self) -> None:
        self._put(self.luck.choice(PARTITIONS), self._new_id(), Value((self.attempt.name,), 1, 0))

    def increment(self) -> None:
        """Count up in each group."""
        for group in self.txn.snapshot.file_groups():
            seen = self._read(group)
            self._replace(group, seen, seen.balance)

    def transfer(self) -> None:
        """From one group to another: nobody may see the one without the other."""
        groups = self._some(2, 2)
        if len(groups) < 2:
            return self.append()
        amount = self.luck.randint(1, 9)
        for group, change in zip(groups, (-amount, amount), strict=True):
            seen = self._read(group)
            self._replace(group, seen, seen.balance + change)
        return None

    def skew(self) -> None:
        """Read two groups, write one of them."""
        groups = self._some(2, 2)
        if len(groups) < 2:
            return self.insert()
        seen = [self._read(group) for group in groups]
        self._replace(groups[0], seen[0], seen[0].balance)
        return None

    def insert_overwrite(self) -> None:
        partition = self.luck.choice(PARTITIONS)
        self._overwrite(partition, self.txn.snapshot.file_groups(partition), partition)

    def insert_overwrite_table(self) -> None:
        self._overwrite(None, self.txn.snapshot.file_groups(), self.luck.choice(PARTITIONS))

    def delete_partition(self) -> None:
        partition = self.luck.choice(PARTITIONS)
        self.attempt.removed = self._drop(partition, self.txn.snapshot.file_groups(partition))

    def upsert(self) -> None:
        """Append to some groups, to each by itself; what others append meanwhile is kept, by merging again."""
        self._rebasing(self._some(1, 3), ())

    def pay(self) -> None:
        """From one group to another, whatever they hold by then: a transfer that is merged again."""
        amount = self.luck.randint(1, 9)
        groups = self._some(2, 2)
        self._rebasing(groups, (-amount, amount) if len(groups) == 2 else ())

    def _rebasing(self, groups: list[FileSlice], changes: Iterable[int]) -> None:
        if not groups:
            return self.insert()
        looks = self.attempt.level != "snapshot"
        for group, change in itertools.zip_longest(groups, changes, fillvalue=0):
            # Above `snapshot` a merge says where it looked its keys up, and nothing else was read.
            seen = self._read(group, said=looks)
            if looks:
                self.txn.looks_up(group.partition)
            self._changes[self.roots(group.group)] = change
            self._replace(group, seen, seen.balance + change)
        self.txn.rebases(self._again, looks_again=looks)
        return None

    def _again(self, lost: Lost) -> list[WriteStat]:
        stats = []
        for unit in lost.units:
            now = {self.roots(each.group): each for each in unit.current}
            for own in unit.ours:
                root = self.roots(own.group)
                seen = self._value(now[root])
                self.attempt.merged[root] = self.attempt.reads[root] = seen
                value = Value((*seen.names, self.attempt.name), seen.count + 1, seen.balance + self._changes[root])
                file_id = lost.file_id(now[root])
                self.roots.moved(FileGroupId(unit.partition, file_id), root)
                stats.append(self._write(unit.partition, file_id, value, number=lost.round))
                self.attempt.writes[root] = value
        return stats

    def change_mind(self) -> None:
        self.append()
        self.txn.abort("it changed its mind")

    # --- steps ------------------------------------------------------------------------------------------------

    def _some(self, least: int, most: int) -> list[FileSlice]:
        groups = self.txn.snapshot.file_groups()
        most = min(most, len(groups))
        return self.luck.sample(groups, self.luck.randint(min(least, most), most))

    def _new_id(self) -> str:
        return new_file_id(self.txn._table.env.uuid())

    def _overwrite(self, partition: str | None, groups: Iterable[FileSlice], into: str) -> None:
        balance = self._drop(partition, groups)
        self._put(into, self._new_id(), Value((self.attempt.name,), 1, balance))

    def _drop(self, partition: str | None, groups: Iterable[FileSlice]) -> int:
        self.attempt.region = frozenset(PARTITIONS if partition is None else (partition,))
        self.txn.overwrites(partition)
        dropped = list(groups)
        values = [self._read(group) for group in dropped]
        self.txn.drop(dropped)
        self.attempt.drops = {self.roots(group.group) for group in dropped}
        return sum(value.balance for value in values)

    def _value(self, group: FileSlice) -> Value:
        with self.txn._table.store.open(group.path) as stream:
            return decode_value(stream.read())

    def _read(self, group: FileSlice, *, said: bool = False) -> Value:
        seen = self._value(group)
        if not said:
            self.txn._staged.saw(group)
        self.attempt.reads[self.roots(group.group)] = seen
        return seen

    def scan(self) -> None:
        """Say exactly what was read: above isolation ``snapshot`` who says nothing may have read all."""
        for partition in PARTITIONS:
            if self.luck.random() < 0.5:
                self.txn.scanned(partition)
                for group in self.txn.snapshot.file_groups(partition):
                    self._read(group)
                self.attempt.scanned |= {partition}

    def _replace(self, group: FileSlice, seen: Value, balance: int) -> None:
        value = Value((*seen.names, self.attempt.name), seen.count + 1, balance)
        self._put(group.partition, group.file_id, value, prev=group.instant)

    def _put(self, partition: str, file_id: str, value: Value, *, prev: str = "") -> None:
        self.txn.add([self._write(partition, file_id, value, prev=prev)])
        self.attempt.writes[self.roots(FileGroupId(partition, file_id))] = value

    def _write(self, partition: str, file_id: str, value: Value, *, prev: str = "", number: int = 0) -> WriteStat:
        """Sometimes a second attempt of the same task does the same, as Spark's do: beside the first one, or later."""

        def second() -> None:
            self.txn._table.env.sleep(self.luck.random() * self.luck.choice((0.02, 0.5)))
            with suppress(LatchError):
                task()

        task = functools.partial(write, self.txn, partition, file_id, value, prev=prev, number=number)
        if self.luck.random() < SECOND_ATTEMPTS:
            self.txn._table.env.thread(second, name="second attempt")
        return task()


def put(txn: Transaction, partition: str, file_id: str, value: Value, *, prev: str = "") -> None:
    """A data file that belongs to the commit."""
    txn.add([write(txn, partition, file_id, value, prev=prev)])


def write(
    txn: Transaction, partition: str, file_id: str, value: Value, *, prev: str = "", number: int = 0
) -> WriteStat:
    """A data file, by the steps of `BaseFileWriter`, with a value in it instead of Parquet."""
    store = txn._table.store
    path = join(partition, base_file_name(BaseName(file_id, f"0-{number}-0", txn.instant)))
    refuse_if_over(store, txn.instant)
    marker = announce(store, txn.instant, path, "MERGE" if prev else "CREATE")
    with store.create(path) as new:
        new.stream.write(json.dumps(value).encode())
        size = new.stream.tell()
        if not stands(store, marker):
            raise RolledBackError("its marker is gone", instant=txn.instant)
        refuse_if_over(store, txn.instant)
        published = new.publish()
        if not stands(store, marker):
            if published.done and is_no_part(store, txn.instant, path):
                store.delete(path)
            raise RolledBackError("its marker is gone", instant=txn.instant)
        if not published.done and store.head(path) is None:
            raise StorageError(f"{path} could not be published", path=path)
    return WriteStat(file_id, path, partition, prev or "null", num_writes=1, file_size=size, total_write_bytes=size)


# The operation of the library that each kind of work is done as.
OPERATION: dict[str, str] = {
    "append": "upsert",
    "upsert": "upsert",
    "pay": "upsert",
    "insert": "insert",
    "increment": "upsert",
    "transfer": "upsert",
    "skew": "upsert",
    "change_mind": "upsert",
    "insert_overwrite": "insert_overwrite",
    "insert_overwrite_table": "insert_overwrite_table",
    "delete_partition": "delete_partition",
}
Kind = Callable[[Work], None]
