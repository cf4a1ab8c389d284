"""One schedule over several tables: a bank whose transfers go from one table to another, readers of all, and faults.

Each table has a server of its own, and lies on the same network. Money is neither made nor lost by a transfer, so every cut
that a reader sees has the same sum. What each transaction was told is compared with the logs of all its tables.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakelatch.environment import Process
from lakelatch.errors import CommitStateUnknownError, ConflictError, LakeLatchError, LockError, RolledBackError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.timeline.snapshot import Snapshot
from lakelatch.locks import LockProvider
from lakelatch.occ.entries.entries import Commit, End, Open, Partner, Prepare
from lakelatch.occ.log.epochs import LOG, read_all
from lakelatch.occ.log.state import LogState
from lakelatch.occ.table.several import read_together
from lakelatch.occ.table.several import run as run_together
from lakelatch.occ.table.several import transaction as transact_together
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction

from ..occ.world import check_clean, check_history, check_published
from .environment import SimEnvironment
from .faults import Faults, Network
from .files import content_of, read, write
from .history import Anomaly, State
from .locks import LockServer, open_locks
from .scheduler import Scheduler, SimProcess
from .shape import LOCKS, NO_LOCK, Shape
from .store import Objects, SimStore

if TYPE_CHECKING:
    from lakelatch.occ.transaction.several import SeveralTransaction

NAMES = ("a", "b", "c")


@dataclass(eq=False)
class Payment:
    """One attempt: what it has changed by table, and what it was told."""

    name: str
    groups: dict[str, FileGroupId] = field(default_factory=dict)
    outcome: str = "open"


class Bank:
    """Runs one schedule and judges it."""

    def __init__(self, shape: Shape, *, trace: bool = False) -> None:
        from .world import founded_with

        self.shape = shape
        self.scheduler = Scheduler(shape.seed)
        self.scheduler.trace = [] if trace else None
        self.faults = Faults(shape.faults, shape.crashes)
        locks = (NO_LOCK,) * 3 if shape.lock == NO_LOCK else (*LOCKS, NO_LOCK)
        self.lock_servers = {LOCKS[0]: LockServer(), LOCKS[1]: LockServer(token=1_000_000)}
        self.objects: dict[str, Objects] = {}
        total = 0
        for name, lock in zip(NAMES[: shape.tables], locks, strict=False):
            found, state = founded_with(shape, lock)
            self.objects[name] = found.copy()
            total += sum(value.balance for value in state.values())
        self.total = total
        self.attempts: list[Payment] = []
        self.also: Counter[str] = Counter()
        self._dead: set[Process] = set()
        self._processes = 0
        self._handles = 0

    # --- the schedule -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises `Anomaly`, or what a broken promise raises."""
        for number in range(self.shape.writers):
            self._start(f"host{number % 2}", self._write)
        self._start("host1", self._watch)
        self.scheduler.run()
        self.faults.end()
        self.scheduler.spawn(self.process("auditor"), self._audit, name="auditor")
        self.scheduler.run()

    def process(self, host: str, *, skewed: bool = False) -> SimProcess:
        self._processes += 1
        luck, shape, number = self.scheduler.random, self.shape, self._processes
        skew = luck.uniform(-1, 1) * shape.skew_s if skewed else 0.0
        rate = 1.0 + luck.uniform(-1, 1) * shape.drift if skewed else 1.0
        return SimProcess(Process(host, f"boot of {host}", number, str(number)), skew, rate)

    def _start(self, host: str, call: Callable[[SimProcess], None]) -> None:
        process = self.process(host, skewed=True)

        def replace() -> None:
            self._dead.add(process.identity)
            self._start(host, call)

        process.mourners.append(replace)
        self.scheduler.spawn(process, lambda: call(process), name=call.__name__)

    def tables(self, process: SimProcess, *, alone: bool = False) -> list[Table]:
        network = None if alone else Network(self.scheduler, process, self.faults)
        self._handles += 1
        env = SimEnvironment(self.scheduler, process, self._dead, self._handles)
        env.open_lock = functools.partial(
            self._open_lock, env, network or Network(self.scheduler, process, self.faults)
        )
        return [
            Table(self._store(name, network), env=env, writer=process.name, epoch_slots=self.shape.epoch_slots)
            for name in self.objects
        ]

    def _store(self, name: str, network: Network | None) -> SimStore:
        store = SimStore(self.objects[name], network, far=self.shape.far, name=name)
        store.beside = lambda url: self._store(url.rpartition("/")[2], network)
        return store

    def _open_lock(self, env: SimEnvironment, network: Network, url: str) -> LockProvider:
        return open_locks(url, self.lock_servers[url], env, network)

    def _opened(self, process: SimProcess) -> list[Table]:
        self.scheduler.pause(self.scheduler.random.random() * (1.0 if self._dead else 0.2))
        for _ in range(5):
            try:
                return self.tables(process)
            except LakeLatchError as e:
                self.scheduler.note(f"could not open: {e}"[:160])
                self.scheduler.pause(1.0)
        return []

    # --- what writers do --------------------------------------------------------------------------------------

    def _write(self, process: SimProcess) -> None:
        tables = self._opened(process)
        if not tables:
            return
        luck = self.scheduler.random
        for _ in range(1 + self.shape.transactions):
            kind = luck.choices(("transfer", "again", "single", "restore"), (5, 3, 3, 0.4))[0]
            if kind == "single":
                self._told(functools.partial(self._single, luck.choice(tables)))
            elif kind == "restore":
                self._told(functools.partial(self._restore, luck.choice(tables)))
            else:
                some = tables if luck.random() < 0.3 else luck.sample(tables, 2)
                self._told(functools.partial(self._together, some, again=kind == "again"))
            self.scheduler.pause(luck.random() * 0.1)
        for table in tables:
            table.close()

    def _payment(self, mine: list[Payment]) -> Payment:
        made = Payment(f"t{len(self.attempts)}")
        self.attempts.append(made)
        mine.append(made)
        return made

    def _together(self, tables: Sequence[Table], mine: list[Payment], *, again: bool) -> None:
        def work(txn: SeveralTransaction) -> None:
            if mine:
                mine[-1].outcome = "lost"
            payment, left = self._payment(mine), 0
            instants = ", ".join(f"{each.url[-1]} {txn[each].instant[-8:]}" for each in tables)
            self.scheduler.note(f"{payment.name} = transfer {instants}")
            for number, table in enumerate(tables):
                amount = -left if number == len(tables) - 1 else self.scheduler.random.randint(-9, 9)
                left += amount
                self._change(payment, txn[table], amount)

        if again:
            results = run_together(work, *tables, attempts=3, timeout_s=60.0).commits
        else:
            with transact_together(*tables) as txn:
                work(txn)
            results = txn.results
        mine[-1].outcome = "committed" if len(results) == len(tables) else f"committed in {len(results)} tables"
        for table in tables if not self.shape.restores else ():
            try:
                found = self._content(table.url, table.snapshot())
            except LakeLatchError:
                continue
            if mine[-1].name not in found[mine[-1].groups[table.url]].names:
                raise Anomaly(f"{mine[-1].name} was told that it landed, and cannot read it in {table.url}")

    def _single(self, table: Table, mine: list[Payment]) -> None:
        payment = self._payment(mine)
        with table.transaction("upsert") as txn:
            self.scheduler.note(f"{payment.name} = single {table.url[-1]} {txn.instant}")
            self._change(payment, txn, 0)
        if txn.result is not None:
            payment.outcome = "committed"

    def _restore(self, table: Table, _: list[Payment]) -> None:
        """To the commit before the last, without which it would be as if somebody had taken the money."""
        commits = table.timeline().commits
        if self.shape.restores and len(commits) > 2:
            table.restore(commits[-2].requested)
            self.also["restores"] += 1

    def _change(self, payment: Payment, txn: Transaction, amount: int) -> None:
        """Append the own name to one list, and change its balance."""
        groups = txn.snapshot.file_slices()
        group = self.scheduler.random.choice(groups)
        seen = txn._attempt.seen(lambda: read(txn.session.store, group.path))
        txn.workspace.changes.saw(group)
        first = min(seen)
        content = {
            root: old._replace(
                names=(*old.names, payment.name),
                count=old.count + 1,
                balance=old.balance + (amount if root == first else 0),
            )
            for root, old in seen.items()
        }
        txn.add([write(txn, group.partition, group.file_id, content, prev=group.instant)])
        payment.groups[txn.url] = first

    def _told(self, go: Callable[[list[Payment]], None]) -> None:
        mine = list[Payment]()
        outcome = ""
        try:
            go(mine)
        except CommitStateUnknownError:
            outcome = "unknown"
        except ConflictError:
            outcome = "conflict"
        except RolledBackError:
            outcome = "rolled back"
        except LockError:
            outcome = "no lock"
        except LakeLatchError as e:
            outcome = "failed"
            self.scheduler.note(f"{type(e).__name__}: {e}"[:200])
        for payment in mine[-1:]:
            payment.outcome = outcome or payment.outcome
            self.scheduler.note(f"{payment.name} {payment.outcome}")

    # --- what readers see -------------------------------------------------------------------------------------

    def _watch(self, process: SimProcess) -> None:
        tables = self._opened(process)
        for _ in range(3 if tables else 0):
            self.scheduler.pause(self.scheduler.random.random() * 3)
            try:
                cut = read_together(*tables)
                found = {
                    each.url: each.session.view(as_of_completion=cut.completions[each.url]).snapshot for each in tables
                }
            except LakeLatchError as e:
                self.scheduler.note(f"could not read: {e}"[:160])
                continue
            if not self.shape.restores:  # which delete files of a cut, and change the sum
                self._judge_cut({url: self._content(url, snapshot) for url, snapshot in found.items()})
            self.also["cuts read"] += 1

    def _content(self, url: str, snapshot: Snapshot) -> State:
        stored, state = self.objects[url.rpartition("/")[2]].stored, State()
        for group in snapshot.file_slices():
            state |= content_of(lambda path: stored[path].body, group)
        return state

    def _judge_cut(self, found: dict[str, State]) -> None:
        total = sum(value.balance for state in found.values() for value in state.values())
        if total != self.total:
            raise Anomaly(f"a cut holds {total} and not {self.total}")
        for payment in self.attempts:
            there = {payment.name in found[url][root].names for url, root in payment.groups.items() if url in found}
            if len(there) > 1:
                raise Anomaly(f"a cut holds half of {payment.name}")

    # --- the judge --------------------------------------------------------------------------------------------

    def _audit(self) -> None:
        self.scheduler.pause(3 * self.faults.long_s)
        tables = self.tables(self.process("auditor"), alone=True)
        for table in tables:
            table.rollback_failed_writes(wait=True)
        outcomes: dict[Partner, str] = {}
        of: dict[Partner, tuple[Partner, ...]] = {}
        for name, table in zip(self.objects, tables, strict=True):
            state = table.session.log.catch_up()
            if state.prepared or state.open:
                raise Anomaly(f"{name} has {sorted(state.prepared)} prepared and {sorted(state.open)} open in the end")
            entries = list(read_all(SimStore(self.objects[name].before_pruning(LOG), None)))
            table.session.log.entries = lambda entries=entries: iter(entries)  # type: ignore[method-assign, misc]
            self._judge_log(table, entries, outcomes, of)
            check_history(table)
            check_published(table)
            if not any(path.startswith(LOG) for path in self.objects[name].taken_away):
                check_clean(table)
        for first, several in of.items():
            ends = {outcomes.get(each, "none") for each in several}
            if "commit" in ends and len(ends) > 1:
                raise Anomaly(f"{first} over several tables has the outcomes {ends}")
            self.also["over several tables"] += "commit" in ends
        self._judge_told(tables)
        for table in tables:
            self.scheduler.pause(1.0)
            with table.transaction("upsert") as txn:  # it is still writable
                self._change(Payment("last"), txn, 0)
            assert txn.result is not None
            table.close()

    def _judge_log(
        self, table: Table, entries: list[Any], outcomes: dict[Partner, str], of: dict[Partner, Any]
    ) -> None:
        state = LogState()
        for entry in entries:
            if isinstance(entry, Prepare):
                self.also["prepared"] += entry.instant in state.open
                of.setdefault(entry.home, entry.commit.several)
            if isinstance(entry, Open):
                self.also["carried while prepared"] += len(entry.prepared)
            prepared = set(state.prepared)
            state.apply(entry)
            if isinstance(entry, Commit) and state.last is entry:
                if prepared - {entry.instant}:
                    raise Anomaly(f"{entry.instant} has landed behind {prepared}, which are prepared")
                if entry.several:
                    of.setdefault(entry.several[-1], entry.several)
                outcomes.setdefault(Partner(table.url, entry.instant), "commit")
            elif isinstance(entry, End):
                outcomes.setdefault(Partner(table.url, entry.instant), entry.kind)

    def _judge_told(self, tables: Sequence[Table]) -> None:
        if self.shape.restores:
            return
        found = {each.url: self._content(each.url, each.snapshot()) for each in tables}
        self._judge_cut(found)
        for payment in self.attempts:
            there = {payment.name in found[url][root].names for url, root in payment.groups.items()}
            if payment.outcome == "committed" and there != {True}:
                raise Anomaly(f"{payment.name} was told that it landed, and the tables say {there}")
            if payment.outcome not in ("committed", "unknown", "open") and True in there:
                raise Anomaly(f"{payment.name} was told {payment.outcome!r}, and a table has it")
        for state in found.values():
            for value in state.values():
                if value.count != len(value.names):
                    raise Anomaly(f"a list of {len(value.names)} names has counted to {value.count}")
