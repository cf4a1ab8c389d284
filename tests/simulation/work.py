"""What the transactions of a schedule do: small works on files that hold lists, each with a counter and a balance."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from lakelatch.errors import LakeLatchError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.file_names import bucket_of, new_file_id
from lakelatch.hudi.timeline.commit_metadata import WriteStat
from lakelatch.occ.transaction.transaction import Transaction

from .files import read, write
from .history import Anomaly, Attempt, State, Value
from .rows import Rows, emails_of, facts, next_email, rows_of, some_rows
from .store import Gone

if TYPE_CHECKING:
    from lakelatch.hudi.timeline.snapshot import FileSlice
    from lakelatch.occ.entries.value_hashes import FileFacts
    from lakelatch.occ.rebase.rebase import Lost

    from .history import Roots

PARTITIONS = ("part=a", "part=b")
FIRST_BALANCE = 100
SECOND_ATTEMPTS = 0.08


class Work:
    """One attempt at one kind of work, in a transaction that is open."""

    def __init__(self, txn: Transaction, attempt: Attempt, luck: Random, roots: Roots) -> None:
        self.txn, self.attempt, self.luck, self.roots = txn, attempt, luck, roots
        self._changes: dict[FileGroupId, int] = {}  # of balances, by the first root of a file
        self._rows: dict[FileGroupId, Rows] = {}  # written, likewise
        self._begun: dict[FileGroupId, Value] = {}  # file groups that it has made
        self._found: dict[str, Rows] = {}  # by partition, the rows of its snapshot

    # --- kinds ------------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Write one or two groups, perhaps after a look at another one."""
        groups = self._some(1, 2)
        if not groups:
            return self.insert()
        for number, group in enumerate(groups):
            seen = self._read(group)
            if number == 0 or self.luck.random() < 0.8:
                self._replace(group, seen)
        return None

    def insert(self) -> None:
        self._begin(self.luck.choice(PARTITIONS), 0, {})

    def increment(self) -> None:
        """Count up in each group."""
        for group in self.txn.snapshot.file_slices():
            self._replace(group, self._read(group))

    def transfer(self) -> None:
        """From one group to another: nobody may see the one without the other."""
        groups = self._some(2, 2)
        if len(groups) < 2:
            return self.append()
        amount = self.luck.randint(1, 9)
        for group, change in zip(groups, (-amount, amount), strict=True):
            self._replace(group, self._read(group), change)
        return None

    def skew(self) -> None:
        """Read two groups, write one of them."""
        groups = self._some(2, 2)
        if len(groups) < 2:
            return self.insert()
        seen = [self._read(group) for group in groups]
        self._replace(groups[0], seen[0])
        return None

    def insert_overwrite(self) -> None:
        partition = self.luck.choice(PARTITIONS)
        self._overwrite(partition, self.txn.snapshot.file_slices(partition), partition)

    def insert_overwrite_table(self) -> None:
        self._overwrite(None, self.txn.snapshot.file_slices(), self.luck.choice(PARTITIONS))

    def delete_partition(self) -> None:
        partition = self.luck.choice(PARTITIONS)
        self.attempt.removed = _balance(self._drop(partition, self.txn.snapshot.file_slices(partition)))

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
                self.txn.mark_lookup(group.partition)
            self._replace(group, seen, change)
        self.txn.merge_on_conflict(self._again, looks_again=looks)
        return None

    def _again(self, lost: Lost) -> list[WriteStat]:
        stats = []
        for unit in lost.units:
            left = {root for own in unit.ours for root in self.roots(own.group)} & self._changes.keys()
            for now in unit.current:
                mine = self.roots(now.group) & left  # several, if a clustering has joined what ours had changed
                mine |= self._moved_into(now, {own.group for own in unit.ours})
                if not mine:
                    continue
                left -= mine
                seen = read(self.txn.session.store, now.path)  # may be cleaned, if others have landed since
                self.attempt.merged |= seen
                self.attempt.reads |= seen
                rows = {key: email for root in mine for key, email in self._rows[root].items()}
                rows |= self._computed(unit.partition, rows.keys(), seen)
                content = self._appended(seen, sum(self._changes[root] for root in mine), rows)
                facts = self._facts(unit.partition, rows, seen)
                stats.append(self._write(unit.partition, lost.file_id(now), content, number=lost.round, facts=facts))
                self.attempt.writes |= content
            assert not left, f"{left} are in none of the file groups to merge with"
        return stats

    def _computed(self, partition: str, keys: Iterable[str], seen: State) -> Rows:
        """Emails of rows that have got another one meanwhile: made of that one, so nobody has compared them yet."""
        held, before = rows_of(seen, partition), self._found.get(partition, {})
        return {key: next_email(held[key]) for key in keys if key in held and held[key] != before.get(key)}

    def _moved_into(self, now: FileSlice, ours: set[FileGroupId]) -> frozenset[FileGroupId]:
        """Its lists, if ours has begun a file group in a bucket in which somebody else has begun that one meanwhile."""
        begun = ours & self._begun.keys()
        if not begun:
            return frozenset()
        root = min(self.roots(now.group))
        for group in begun:
            value = self._begun.pop(group)
            self.attempt.writes.pop(group, None)
            self._changes[root] = self._changes.get(root, 0) + value.balance
            self._rows[root] = self._rows.get(root, {}) | dict(value.rows)
        return frozenset({root})

    def change_mind(self) -> None:
        self.append()
        self.txn.abort("it changed its mind")

    # --- kinds with record keys -------------------------------------------------------------------------------

    def insert_rows(self) -> None:
        """New rows, as far as the snapshot tells; nothing of it is said to have been read."""
        partition, there = self.luck.choice(PARTITIONS), self._everything()
        rows = some_rows(self.luck, rows_of(there, partition), emails_of(there))
        self._begin(partition, 0, rows)

    def upsert_rows(self) -> None:
        """Change rows that the snapshot has and insert the others, into a group that is there or a new one."""
        partition, there = self.luck.choice(PARTITIONS), self._everything()
        self._found[partition] = rows_of(there, partition)
        rows = some_rows(self.luck, (), emails_of(there))
        looks = self.attempt.level != "snapshot"
        if looks:
            self.txn.mark_lookup(partition)
        groups = self.txn.snapshot.file_slices(partition)
        into = self.luck.choice([None, *groups])
        for group in groups:
            content = there_in(there, self.roots(group.group))
            mine = {key: rows.pop(key) for key in rows.keys() & rows_of(content).keys()}
            if group is into:
                mine |= {key: rows.pop(key) for key in sorted(rows.keys() - rows_of(there, partition).keys())}
            if mine:
                self._replace(group, self._read(group, said=looks), rows=mine)
        if rows:
            self._begin(partition, 0, rows)
        if self.attempt.writes.keys() & self.attempt.reads.keys() and self.luck.random() < 0.7:
            self.txn.merge_on_conflict(self._again, looks_again=looks)

    def remove_rows(self) -> None:
        """Take one row out of a group, if there is one."""
        there = [(g, sorted(rows_of(self._content(g)))) for g in self.txn.snapshot.file_slices()]
        there = [each for each in there if each[1]]
        if not there:
            return self.insert_rows()
        group, keys = self.luck.choice(there)
        gone, seen = self.luck.choice(keys), self._read(group)
        content = {
            root: value._replace(rows=tuple(row for row in value.rows if row[0] != gone))
            for root, value in self._appended(seen, 0, {}).items()
        }
        return self._put(group.partition, group.file_id, content, self._facts(group.partition, {}, seen), group.instant)

    def _everything(self) -> State:
        """The lists of the snapshot, without a word that they were read."""
        return functools.reduce(lambda a, b: a | b, map(self._content, self.txn.snapshot.file_slices()), State())

    # --- steps ------------------------------------------------------------------------------------------------

    def _some(self, least: int, most: int) -> list[FileSlice]:
        groups = self.txn.snapshot.file_slices()
        most = min(most, len(groups))
        return self.luck.sample(groups, self.luck.randint(min(least, most), most))

    def _overwrite(self, partition: str | None, groups: Iterable[FileSlice], into: str) -> None:
        gone = self._drop(partition, groups)
        self._begin(into, _balance(gone), rows_of(gone, into))

    def _drop(self, partition: str | None, groups: Iterable[FileSlice]) -> State:
        self.attempt.region = frozenset(PARTITIONS if partition is None else (partition,))
        self.txn.overwrites(partition)
        dropped, gone = list(groups), State()
        for group in dropped:
            gone |= self._read(group)
        self.txn.drop_file_groups(dropped)
        self.attempt.drops = set(gone)
        return gone

    def _content(self, group: FileSlice) -> State:
        try:
            return self.txn._attempt.seen(
                lambda: read(self.txn.session.store, group.path)
            )  # as `Transaction.read_slice` does
        except Gone as e:
            self.txn.check()  # somebody has taken it for dead
            raise Anomaly(f"{self.attempt.name} is open, and {group.path} of its snapshot is gone") from e

    def _read(self, group: FileSlice, *, said: bool = False) -> State:
        seen = self._content(group)
        if not said:
            self.txn.workspace.changes.saw(group)
        self.attempt.reads |= seen
        return seen

    def scan(self) -> None:
        """Say exactly what was read: above isolation ``snapshot`` who says nothing may have read all."""
        for partition in PARTITIONS:
            if self.luck.random() < 0.5:
                self.txn.mark_scanned(partition)
                for group in self.txn.snapshot.file_slices(partition):
                    self._read(group)
                self.attempt.mark_scanned |= {partition}

    def _replace(self, group: FileSlice, seen: State, change: int = 0, rows: Rows | None = None) -> None:
        """Append the own name to each list of a file; its first list takes the change of the balance and the rows."""
        first = min(seen)
        self._changes[first], self._rows[first] = change, rows or {}
        content = self._appended(seen, change, rows or {})
        self._put(
            group.partition, group.file_id, content, self._facts(group.partition, rows or {}, seen), group.instant
        )

    def _appended(self, seen: State, change: int, rows: Rows) -> State:
        first, left, content = min(seen), dict(rows), State()
        for root, old in seen.items():
            held = {key: left.pop(key, email) for key, email in old.rows}
            content[root] = Value((*old.names, self.attempt.name), old.count + 1, old.balance, tuple(held.items()))
        value = content[first]
        more = tuple(sorted((*value.rows, *left.items())))
        content[first] = value._replace(balance=value.balance + change, rows=more)
        return content

    def _begin(self, partition: str, balance: int, rows: Rows) -> None:
        """A new file group; in a bucket that has one already, that takes it."""
        bucket = None
        if self.txn.session.settings.bucket_count is not None:
            bucket = self.luck.randrange(self.txn.session.settings.bucket_count)
            dropped = self.attempt.drops | self.attempt.writes.keys()
            there = [g for g in self.txn.snapshot.file_slices(partition) if bucket_of(g.file_id) == bucket]
            for group in there:
                roots = self.roots(group.group)
                if not roots & dropped:
                    return self._replace(group, self._read(group), balance, rows)
                if not roots & self.attempt.drops:
                    return None  # changed already
        group = FileGroupId(partition, new_file_id(self.txn.session.env.uuid(), bucket=bucket))
        value = self._begun[group] = Value((self.attempt.name,), 1, balance, tuple(sorted(rows.items())))
        return self._put(partition, group.file_id, {group: value}, self._facts(partition, rows, {}))

    def _facts(self, partition: str, rows: Rows, seen: State) -> FileFacts | None:
        new = rows.keys() - rows_of(seen).keys()
        self.attempt.inserted |= {(partition, key) for key in new}
        self.attempt.emails |= set(rows.values())
        return facts(self.txn.session.settings, partition, rows, new)

    def _put(self, partition: str, file_id: str, content: State, told: FileFacts | None, prev: str = "") -> None:
        self.txn.add([self._write(partition, file_id, content, prev=prev, facts=told)])
        self.attempt.writes |= content

    def _write(self, partition: str, file_id: str, content: State, **words: Any) -> WriteStat:
        """Sometimes a second attempt of the same task does the same, as Spark's do: beside the first one, or later."""

        def second() -> None:
            self.txn.session.env.sleep(self.luck.random() * self.luck.choice((0.02, 0.5)))
            with suppress(LakeLatchError):
                task()

        task = functools.partial(write, self.txn, partition, file_id, content, **words)
        if self.luck.random() < SECOND_ATTEMPTS:
            self.txn.session.env.thread(second, name="second attempt")
        return task()


def there_in(content: State, roots: Iterable[FileGroupId]) -> State:
    return {root: content[root] for root in roots}


def _balance(content: State) -> int:
    return sum(value.balance for value in content.values())


# The operation of the library that each kind of work is done as.
OPERATION: dict[str, str] = {
    "append": "upsert",
    "upsert": "upsert",
    "pay": "upsert",
    "insert": "insert",
    "put": "upsert",
    "take": "upsert",
    "both": "upsert",
    "drop": "insert",
    "set_where": "upsert",
    "event": "upsert",
    "remove": "delete",
    "several": "upsert",
    "again": "upsert",
    "replace": "insert_overwrite",
    "drop_partition": "delete_partition",
    "insert_rows": "insert",
    "upsert_rows": "upsert",
    "remove_rows": "upsert",
    "increment": "upsert",
    "transfer": "upsert",
    "skew": "upsert",
    "change_mind": "upsert",
    "insert_overwrite": "insert_overwrite",
    "insert_overwrite_table": "insert_overwrite_table",
    "delete_partition": "delete_partition",
}
Kind = Callable[[Work], None]
