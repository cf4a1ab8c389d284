"""Markers of one table's transactions, written in batches: many requests become few writes of lists, and a request is
answered only once its markers are stored.

    request    its names join the batch of their transaction
    interval   a batch goes to the next list that is not being written; the first one after a quiet while goes at once
    write      the list as it was and the batch, put as one object if the list is still the one that was read
    answer     to all requests with names in it; the names of a failed write are forgotten, and requested again

The stored lists are read when a transaction is first mentioned. So a restarted server continues where the killed one stopped,
and two servers for one table extend each other's lists without losing a name. A name that a cleaner removed does not come
back: the write of its list fails then, and the list is read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread

from ..errors import InputError, RolledBackError, StorageError
from ..hudi.files import BaseFile, LogFile, lies_outside
from ..occ.liveness import MARKERS, encoded, fits, heartbeat_path, is_list, names_in, put_type

if TYPE_CHECKING:
    from ..storage import Store

T = TypeVar("T")
_TRIES = 50
_KEPT = 64  # cached transactions
_INFIX = ".marker."


class BusyError(Exception):
    """Too many markers are waiting. Retry later, or put them directly."""


@dataclass(slots=True)
class _Batch:
    """Names to be written together; ``done`` is set when they are stored."""

    done: asyncio.Future[None]
    names: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _List:
    """A list as it was last read; ``tag`` None: it does not exist. ``doubtful``: the outcome of its last write is unknown."""

    path: str
    names: tuple[str, ...] = ()
    tag: str | None = None
    doubtful: bool = False

    @property
    def name(self) -> str:
        """The name in its folder."""
        return self.path.rpartition("/")[2]


class _Transaction:
    """The known markers of one transaction."""

    def __init__(self, instant: str) -> None:
        self.folder = f"{MARKERS}/{instant}"
        self.reading = asyncio.Lock()
        self.read = self.typed = False
        self.lists: list[_List] = []
        self.free: deque[int] = deque()
        self.known: dict[str, str] = {}  # name -> list
        self.waiting: dict[str, _Batch] = {}
        self.next: _Batch | None = None
        self.handed_at = float("-inf")
        self.timer: asyncio.TimerHandle | None = None


class MarkerBook:
    """The markers of one table. Everything but its writes runs on the event loop's thread.

    Args:
        interval_s: seconds between two batches of a transaction.
        lists: how many a transaction has, and so how many can be written at the same time.
        waiting_max: names of all transactions that may wait for the store.
    """

    def __init__(self, store: Store, *, interval_s: float = 0.05, lists: int = 20, waiting_max: int = 200_000) -> None:
        self._store, self._interval_s, self._count, self._waiting_max = store, interval_s, lists, waiting_max
        self._threads: CapacityLimiter | None = None
        self._known: OrderedDict[str, _Transaction] = OrderedDict()
        self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, instant: str, names: Sequence[str]) -> list[str]:
        """Store these markers; return the list of each. Markers that are already stored cost nothing.

        Raises:
            InputError: a name is not that of a data file of this transaction.
            RolledBackError: the transaction has no heartbeat, so it has ended or never existed.
            BusyError: too many markers are waiting.
            StorageError: the store refuses or gives no answer; retry.
        """
        for name in names:
            _refuse(instant, name)
        txn = await self._transaction(instant)
        batches: dict[int, _Batch] = {}
        fresh = [name for name in dict.fromkeys(names) if name not in txn.known]
        if self._waiting + len(fresh) > self._waiting_max:
            raise BusyError(
                f"{self._waiting:,} markers wait to be written; ask again in a second, or put them directly"
            )
        for name in fresh:
            # A name that is already on its way is waited for, not written twice.
            batch = txn.waiting.get(name)
            if batch is None:
                if txn.next is None:
                    txn.next = _Batch(asyncio.get_running_loop().create_future())
                batch = txn.waiting[name] = txn.next
                batch.names[name] = None
                self._waiting += 1
            batches[id(batch)] = batch
        self._hand_out(txn)
        for batch in batches.values():
            # Shielded, because a client that leaves must not cancel the batch of others.
            await asyncio.shield(batch.done)
        try:
            return [txn.known[name] for name in names]
        except KeyError:
            raise RolledBackError(f"markers of {instant} were removed: it is over", instant=instant) from None

    async def settled(self) -> None:
        """Wait until every batch handed out is written, or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- a transaction ---------------------------------------------------------------------------------------

    async def _transaction(self, instant: str) -> _Transaction:
        txn = self._known.setdefault(instant, _Transaction(instant))
        self._known.move_to_end(instant)
        async with txn.reading:
            # One request reads the lists; others of the transaction wait for it and use the result.
            if not txn.read:
                try:
                    txn.lists, txn.typed = await self._in_thread(partial(self._read, txn.folder, instant))
                except BaseException:
                    self._known.pop(instant, None)
                    raise
                txn.known = {name: each.name for each in txn.lists for name in each.names}
                txn.free, txn.read = deque(range(len(txn.lists))), True
        for old in list(self._known)[: max(len(self._known) - _KEPT, 0)]:
            if not self._known[old].waiting and not self._known[old].reading.locked():
                del self._known[old]
        return txn

    def _read(self, folder: str, instant: str) -> tuple[list[_List], bool]:
        _refuse_if_over(self._store, instant)
        there = self._store.names(folder)
        lists = {number: _List(f"{folder}/MARKERS{number}") for number in range(self._count)}
        for name in there:
            if is_list(name):  # perhaps more lists than ours, if the last server had more
                number = int(name.removeprefix("MARKERS"))
                lists[number] = self._seen(f"{folder}/{name}")
        return [each for _, each in sorted(lists.items())], any(
            not is_list(n) and n.startswith("MARKERS") for n in there
        )

    def _seen(self, path: str) -> _List:
        stored = self._store.get(path)
        return _List(path) if stored is None else _List(path, tuple(names_in(stored.body)), stored.tag)

    # --- batches ---------------------------------------------------------------------------------------------

    def _hand_out(self, txn: _Transaction) -> None:
        """Hand the waiting batch to a free list, once the interval is over."""
        if txn.next is None or txn.timer is not None or not txn.free:
            return  # the end of a write calls this again
        loop = asyncio.get_running_loop()
        wait_s = txn.handed_at + self._interval_s - loop.time()
        if wait_s > 0:
            txn.timer = loop.call_later(wait_s, self._wake, txn)
            return
        batch, txn.next, txn.handed_at = txn.next, None, loop.time()
        task = loop.create_task(self._write(txn, txn.free.popleft(), batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake(self, txn: _Transaction) -> None:
        txn.timer = None
        self._hand_out(txn)

    async def _write(self, txn: _Transaction, number: int, batch: _Batch) -> None:
        before = txn.lists[number]
        try:
            # The type file marks the folder as one with lists, so it comes before the first list.
            if not txn.typed:
                await self._in_thread(partial(put_type, self._store, txn.folder))
                txn.typed = True
            now = await self._in_thread(partial(self._extended, before, tuple(batch.names)))
        except Exception as error:  # noqa: BLE001 - every request that waits for the batch gets it
            batch.done.set_exception(error)
            batch.done.exception()  # marks it as retrieved, in case all clients have left
            txn.lists[number] = replace(before, doubtful=True)
        else:
            txn.lists[number] = now
            if now.names[: len(before.names)] != before.names:  # a cleaner removed names, or the list
                txn.known = {name: of for name, of in txn.known.items() if of != now.name}
                txn.known.update(dict.fromkeys(now.names, now.name))
            else:
                txn.known.update(dict.fromkeys(now.names[len(before.names) :], now.name))
            batch.done.set_result(None)
        finally:
            self._waiting -= len(batch.names)
            for name in batch.names:
                txn.waiting.pop(name, None)
            txn.free.append(number)
            self._hand_out(txn)

    def _extended(self, kept: _List, names: tuple[str, ...]) -> _List:
        """Write the list with these names added, retrying after concurrent changes; return it as stored."""
        cause, had = "others change it again and again", kept.tag
        for again in range(_TRIES):
            if again or kept.doubtful:
                kept = self._seen(kept.path)
                if kept.tag is None and had is not None:  # a cleaner has removed the list
                    _refuse_if_over(self._store, kept.path.split("/")[-2])
            whole = tuple(dict.fromkeys((*kept.names, *names)))
            if whole == kept.names:
                return kept  # an earlier write without an answer took effect
            if kept.tag is None:
                put = self._store.put_if_absent(kept.path, encoded(whole), durable=False)
            else:
                put = self._store.replace_if_match(kept.path, encoded(whole), kept.tag)
            if put.done and put.tag is not None:
                return _List(kept.path, whole, put.tag)
            cause, had = put.cause or cause, kept.tag or had
        raise StorageError(f"{kept.path} could not be written: {cause}; try again", path=kept.path)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = CapacityLimiter(self._count)
        return await to_thread.run_sync(call, limiter=self._threads)


def _refuse_if_over(store: Store, instant: str) -> None:
    if store.head(heartbeat_path(instant)) is None:
        raise RolledBackError(
            f"transaction {instant} has no heartbeat, so it is over, or none of this table; no file of it may appear",
            instant=instant,
        )


def _refuse(instant: str, name: str) -> None:
    """Raise `InputError` unless it names a data file of that transaction, in a partition of the table."""
    path, _, _ = name.rpartition(_INFIX)
    file = BaseFile.at(path, 0) or LogFile.at(path, 0)
    if file is None or file.instant != instant or lies_outside(path) or not fits(name):
        raise InputError(
            f"{name[:200]!r} announces no data file of transaction {instant}; give its path in the table, then "
            ".marker. and CREATE, MERGE or APPEND"
        )
