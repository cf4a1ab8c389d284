"""Decide whether a transaction may commit at this slot. Gathers the input of `conflict.resolve`, reading nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from ...conflict import (
    ISOLATION_LEVELS,
    NEW_KEYS,
    NOWHERE,
    Conflict,
    Decision,
    Kind,
    Party,
    ReadSet,
    Region,
    Repeatable,
    Values,
    WriteSet,
    kind_of,
    refuse_contradiction,
    refuse_isolation,
    resolve,
    settle_schema,
    strategy,
)
from ...errors import ConflictError
from ...hudi.files import BaseFile, LogFile
from ...streams import outdated
from ..entries import Begin, Commit, groups_of, held, write_set_of
from ..liveness import list_markers
from ..log import ENGINE, LogState, plain_metadata_of
from ..session import dropped_since

if TYPE_CHECKING:
    from ...hudi.files import FileGroupId
    from ...storage import Store
    from ..entries import Operation, Settings
    from ..session import Session


ANY = ("", "\U0010ffff" * 64)  # the span of values that are not known

# Landed commits by their place in the log, so that a side object is read once, however many slots are tried.
Seen = dict[tuple[int, int], Party]


class Changes(Protocol):
    """The changes and dependencies of a transaction, from its staged files or from its request."""

    @property
    def operation(self) -> Operation: ...
    @property
    def streams_only(self) -> bool:
        """True if it writes stream events only."""

    @property
    def placed_by(self) -> Collection[tuple[object, ...]]:
        """The number of buckets, merge and ties that its files were written by."""

    def write_set(self) -> WriteSet:
        """The file groups created, changed or replaced, and the region claimed."""

    def read_set(self) -> ReadSet:
        """The data that the result depends on."""


class CommitValidator:
    """The decision about one transaction, made at every slot that it tries.

    Args:
        settings: in force when it began.
        isolation: the level it began with, which can only raise the table's. None: the table's level.
        priority: of its writer.
        counts: return whether the reservation of an open transaction is in force.
        seen: what is known of landed commits, if several validators share it.

    Raises:
        ConfigError: the level or the priority contradicts the table's settings.
    """

    def __init__(
        self,
        store: Store,
        staged: Changes,
        settings: Settings,
        *,
        isolation: str | None,
        priority: int,
        counts: Callable[[Begin], bool] = lambda _: False,
        seen: Seen | None = None,
    ) -> None:
        refuse_contradiction(settings.strategy, bucket_count=settings.bucket_count, priority=priority)
        if isolation is not None:
            refuse_isolation(isolation, below=settings.isolation)
        self._store, self._staged, self._isolation, self._priority = store, staged, isolation, priority
        self._counts, self._began = counts, settings
        self._plans: dict[str, WriteSet] = {}  # by requested time
        # The number of commits known not to conflict, under these settings and since this slot. Begin entries take many
        # of the slots that are tried, and then no commit is new.
        self._cleared: tuple[int, Settings | None, int] = 0, None, 0
        self._seen: Seen = {} if seen is None else seen

    @classmethod
    def of(cls, session: Session, staged: Changes, settings: Settings, *, isolation: str | None = None) -> Self:
        """Create a validator with the priority and the reservations of a session."""
        return cls(
            session.store,
            staged,
            settings,
            isolation=isolation,
            priority=session.priority,
            counts=session.reservations.counts,
        )

    @property
    def level(self) -> str | None:
        """The isolation level that the writer asked for; None: the table's."""
        return self._isolation

    def decide(
        self,
        state: LogState,
        instant: str,
        commits: Sequence[Commit],
        *,
        began: str | None,
        wanted: str | None,
        repeatable: Repeatable | None = None,
        since: int = 0,
    ) -> Decision:
        """Decide whether it commits at this slot, merges again, or has lost.

        Args:
            state: the log up to the slot that is tried.
            instant: T of the transaction, which is open.
            commits: all commits since its begin, in slot order.
            began, wanted: the table's schema at its begin, and the schema that it writes.
            repeatable: the work it can merge again instead of losing.
            since: commits below this slot were compared and merged already. Compare them only for the keys it inserts
                now: merging again may have turned updates into inserts.
        """
        settings, staged, me = state.settings, self._staged, state.open[instant]
        writes = staged.write_set()
        self._refuse_new_promises(settings, instant, dropped_since(began, wanted))
        ours = Party(
            instant,
            "",
            me.operation,
            me.writer,
            replace(writes, streamed=True) if settings.streams else writes,
            self._priority,
            reserved=me.reserved,
            age=me.age,
        )
        landed = [self._landed(commit, streamed=bool(settings.streams)) for commit in commits]
        others = (each for each in state.open.values() if each.instant != instant)
        pending = self._pending(others, settings)

        def compared(after: int) -> Decision:
            theirs = zip(landed[after:], commits[after:], strict=True)
            found = (party if commit.slot >= since else _of_new_keys(party) for party, commit in theirs)
            return resolve(
                ours,
                staged.read_set(),
                [*(party for party in found if party is not None), *pending],
                by=settings.strategy,
                isolation=self.isolation(settings),
                bucketed=settings.bucket_count is not None,
                repeatable=repeatable,
            )

        count, under, start = self._cleared
        known = count if under is settings and start == since else 0
        decision = compared(known)
        if decision.again and known:
            # A commit that did not conflict by itself may still rule out merging again.
            decision = compared(0)
        if decision.lost:
            return decision
        if decision.commits:
            self._cleared = len(commits), settings, since
        later = [(party, commit.schema) for party, commit in zip(landed, commits, strict=True)]
        # Events have columns of streams only, none of which can be dropped.
        written = None if staged.streams_only and wanted == began else wanted
        schema = settle_schema(ours, began, written, later, partial(dropped_since, began))
        if isinstance(schema, Conflict):
            return Decision(schema)
        # The files were planned with one schema; merging them onto slices of another means running the work again.
        if decision.again and schema != (wanted or began):
            return Decision(decision.again[0])
        return replace(decision, schema=schema)

    def foreseen(
        self,
        state: LogState,
        instant: str,
        commits: Sequence[Commit],
        groups: frozenset[FileGroupId],
        *,
        merges: bool,
        appends: bool,
    ) -> Conflict | None:
        """Predict the conflict that it would lose to these commits if it wrote these file groups and had read nothing.

        ``appends``: it writes log files, which do not conflict with a compaction.
        """
        me, settings = state.open.get(instant), state.settings
        if me is None or not groups or not commits:
            return None
        writes = WriteSet(groups, appended=groups if appends else frozenset(), streamed=bool(settings.streams))
        ours = Party(instant, "", me.operation, me.writer, writes, self._priority)
        return resolve(
            ours,
            ReadSet(blind=True),
            [self._landed(commit, streamed=bool(settings.streams)) for commit in commits],
            by=settings.strategy,
            bucketed=settings.bucket_count is not None,
            repeatable=Repeatable(groups, looks=True) if merges else None,
        ).lost

    def _refuse_new_promises(self, settings: Settings, instant: str, dropped: Collection[str]) -> None:
        """Raise `ConflictError` if what the transaction relied on at its begin is not in the settings any more.

        ``dropped``: the columns that it drops.
        """
        if settings is self._began:
            return
        # Its files may have been written by settings that came and went.
        began = self._began
        by = {(began.bucket_count, began.merge, began.ties), *self._staged.placed_by}
        named = [f"{use} names {name!r} since" for name in dropped for use in settings.uses_of(name)]
        overwrites = kind_of(self._staged.operation.hudi_name) is Kind.OVERWRITE
        through = self._staged.streams_only or overwrites
        if settings.streams and not (self._began.streams or self._staged.streams_only):
            rule = "the table has streams since, and rows are written through these only"
        elif through and (name := outdated(self._began.streams, settings.streams, overwrites=overwrites)):
            rule = f"stream {name!r} was declared, changed or dropped since"
        elif others := {each[0] for each in by} - {settings.bucket_count}:
            rule = f"the table has another number of buckets since ({others.pop()}, now {settings.bucket_count})"
        elif {each[1:] for each in by} != {(settings.merge, settings.ties)}:
            rule = "the table's settings say since that rows are merged otherwise"
        elif named:
            rule = named[0]
        elif set(settings.unique_constraints) <= set(self._began.unique_constraints) and bool(
            settings.unique_keys
        ) <= bool(self._began.unique_keys):
            if set(settings.check) <= set(self._began.check):
                return
            rule = "the table has another check since, which this transaction's rows have not passed"
        else:
            rule = "the table's settings say since that more is unique, which this transaction has not checked"
        raise ConflictError.without_winner(
            f"{self._store.url}: {instant} cannot land: {rule}. Nothing of it landed; run the write again",
            table=self._store.url,
            instant=instant,
            winner_op="setting",
            rule=rule,
        )

    def isolation(self, settings: Settings) -> str:
        """The level in force: the table's, or the higher one of the transaction."""
        return max(self._isolation or settings.isolation, settings.isolation, key=ISOLATION_LEVELS.index)

    def _landed(self, commit: Commit, *, streamed: bool) -> Party:
        where = commit.slot, commit.place
        if where not in self._seen:
            plain = plain_metadata_of(self._store, commit)
            writes = replace(write_set_of(self._store, commit, plain), streamed=streamed)
            self._seen[where] = Party(
                commit.instant, commit.completion, commit.operation, commit.writer, writes, reads_too=not commit.blind
            )
        found = self._seen[where]
        if commit.imported and commit.writer != ENGINE:
            # Ours, whose entry, with the values that it wrote, could not be appended behind its instant.
            ours, there = self._staged.write_set().unique, {"", *(group.partition for group in found.writes.groups)}
            spans = {name: dict.fromkeys(there & values.spans.keys(), ANY) for name, values in ours.items()}
            unique = {name: Values(each, lambda: None) for name, each in spans.items()}
            return replace(found, writes=replace(found.writes, unique=unique))
        return found

    def _pending(self, others: Iterable[Begin], settings: Settings) -> list[Party]:
        """Open transactions that ours may yield to, with the files that their plans name or their markers announce."""
        rules, ours = strategy(settings.strategy), kind_of(self._staged.operation.hudi_name)
        found = []
        for each in others:
            first = rules.by_priority and each.priority > self._priority
            yields = first or (ours, kind_of(each.operation)) in rules.yields
            reserved = each.reserved if each.reserved and self._counts(each) else None
            if reserved or yields:
                writes = self.announced(each) if yields else WriteSet()
                silent = yields and each.plan is None and not writes.groups
                found.append(
                    Party(
                        each.instant,
                        "",
                        each.operation,
                        each.writer,
                        writes,
                        each.priority,
                        silent=silent,
                        reserved=reserved,
                        age=each.age,
                    )
                )
        return found

    def announced(self, other: Begin) -> WriteSet:
        """The write set of an open transaction, as far as its plan or its markers reveal it."""
        if other.plan is not None:
            if other.instant not in self._plans:  # a plan never changes
                self._plans[other.instant] = WriteSet(groups_of(held(self._store, other.plan)))
            return self._plans[other.instant]
        paths = [marker.path for marker in list_markers(self._store, other.instant)]
        files = [BaseFile.at(path, 0) or LogFile.at(path, 0) for path in paths]
        groups = frozenset(file.group for file in files if file is not None)
        appended = groups - {file.group for file in files if isinstance(file, BaseFile)}
        overwrites = kind_of(other.operation) is Kind.OVERWRITE
        region = Region(frozenset(g.partition for g in groups)) if overwrites else NOWHERE
        return WriteSet(groups, region, appended, streamed=bool(self._began.streams))


def _of_new_keys(party: Party) -> Party | None:
    """Reduce a committed party to the keys that it inserted; None if there are none."""
    keys = party.writes.unique.get(NEW_KEYS)
    return replace(party, writes=WriteSet(unique={NEW_KEYS: keys})) if keys is not None else None
