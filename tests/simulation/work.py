"""What the transactions of a schedule do: small works on file groups that hold a list, a counter and a balance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from lakelatch.conflict import FileGroupId
from lakelatch.errors import RolledBackError, StorageError
from lakelatch.occ.avro import WriteStat
from lakelatch.occ.file_spec import refuse_if_over
from lakelatch.occ.markers import announce, stands
from lakelatch.occ.names import BaseName, base_file_name, join, new_file_id
from lakelatch.occ.transaction import Transaction

from .history import Attempt, Value

if TYPE_CHECKING:
    from lakelatch.occ.snapshot import FileSlice

PARTITIONS = ("part=a", "part=b")
FIRST_BALANCE = 100


def decode_value(body: bytes) -> Value:
    names, count, balance = json.loads(body)
    return Value(tuple(names), count, balance)


class Work:
    """One attempt at one kind of work, in a transaction that is open."""

    def __init__(self, txn: Transaction, attempt: Attempt, luck: Random) -> None:
        self.txn, self.attempt, self.luck = txn, attempt, luck

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
        self.attempt.drops = {group.group for group in dropped}
        return sum(value.balance for value in values)

    def _read(self, group: FileSlice) -> Value:
        with self.txn._table.store.open(group.path) as stream:
            seen = decode_value(stream.read())
        self.txn._staged.saw(group)
        self.attempt.reads[group.group] = seen
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
        put(self.txn, partition, file_id, value, prev=prev)
        self.attempt.writes[FileGroupId(partition, file_id)] = value


def put(txn: Transaction, partition: str, file_id: str, value: Value, *, prev: str = "") -> None:
    """A data file, by the steps of `BaseFileWriter`, with a value in it instead of Parquet."""
    store = txn._table.store
    path = join(partition, base_file_name(BaseName(file_id, "0-0-0", txn.instant)))
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
            if published.done:
                store.delete(path)
            raise RolledBackError("its marker is gone", instant=txn.instant)
        if not published.done and store.head(path) is None:
            raise StorageError(f"{path} could not be published", path=path)
    stat = WriteStat(file_id, path, partition, prev or "null", num_writes=1, file_size=size, total_write_bytes=size)
    txn.add([stat])


# The operation of the library that each kind of work is done as.
OPERATION: dict[str, str] = {
    "append": "upsert",
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
