"""May a transaction land at this slot? Gathers what `conflict.resolve` needs to know, reading nothing twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..conflict import (
    ISOLATION_LEVELS,
    Conflict,
    Party,
    WriteSet,
    refuse_contradiction,
    refuse_isolation,
    resolve,
    settle_schema,
)
from ..conflict.operations import Kind, kind_of
from ..conflict.strategies import strategy
from ..conflict.write_set import NOWHERE, Region
from .listing import BaseFile, LogFile
from .log_state import Begin, Commit, LogState
from .markers import list_markers
from .publish import plain_metadata_of
from .staging import Staged, write_set_of

if TYPE_CHECKING:
    from ..storage import Store
    from .settings import Settings


class Judge:
    """Decides about one transaction, at every slot that it tries.

    Args:
        isolation: the level it was begun with; None is the table's, which may only be raised.
        priority: of its writer.

    Raises:
        ConfigError: a level or a priority that does not go with the table's settings.
    """

    def __init__(
        self, store: Store, staged: Staged, settings: Settings, *, isolation: str | None, priority: int
    ) -> None:
        refuse_contradiction(settings.strategy, buckets=settings.buckets, priority=priority)
        if isolation is not None:
            refuse_isolation(isolation, below=settings.isolation)
        self._store, self._staged, self._isolation, self._priority = store, staged, isolation, priority
        self._seen: dict[int, Party] = {}  # by slot: a commit's side object is read once, however many slots are tried

    def decide(
        self, state: LogState, instant: str, commits: Sequence[Commit], *, began: str | None, wanted: str | None
    ) -> str | Conflict | None:
        """The schema that the commit leaves behind, or the conflict that it loses.

        Args:
            state: the log up to the slot that is tried.
            instant: T of the transaction, which is open.
            commits: what has landed since it began, in slot order.
            began, wanted: the table's schema at its begin, and the one that it writes.
        """
        settings, staged, me = state.settings, self._staged, state.open[instant]
        ours = Party(instant, "", me.operation, me.writer, staged.write_set(), self._priority)
        landed = [self._landed(commit) for commit in commits]
        others = (each for each in state.open.values() if each.instant != instant)
        verdict = resolve(
            ours,
            staged.read_set(),
            [*landed, *self._pending(others, settings)],
            by=settings.strategy,
            isolation=max(self._isolation or settings.isolation, settings.isolation, key=ISOLATION_LEVELS.index),
            bucketed=settings.buckets is not None,
        )
        schemas = [(party, commit.schema) for party, commit in zip(landed, commits, strict=True)]
        return verdict.lost or settle_schema(ours, began, wanted, schemas)

    def _landed(self, commit: Commit) -> Party:
        if commit.slot not in self._seen:
            writes = write_set_of(commit, plain_metadata_of(self._store, commit))
            self._seen[commit.slot] = Party(
                commit.instant, commit.completion, commit.operation, commit.writer, writes, reads_too=not commit.blind
            )
        return self._seen[commit.slot]

    def _pending(self, others: Iterable[Begin], settings: Settings) -> list[Party]:
        """Open transactions that ours would yield to: those of a larger priority, with what their markers announce."""
        if not strategy(settings.strategy).by_priority:
            return []
        return [
            Party(each.instant, "", each.operation, each.writer, self._announced(each), each.priority)
            for each in others
            if each.priority > self._priority
        ]

    def _announced(self, other: Begin) -> WriteSet:
        paths = [marker.path for marker in list_markers(self._store, other.instant)]
        files = [BaseFile.at(path, 0) or LogFile.at(path, 0) for path in paths]
        groups = frozenset(file.group for file in files if file is not None)
        overwrites = kind_of(other.operation) is Kind.OVERWRITE
        return WriteSet(groups, Region(frozenset(g.partition for g in groups)) if overwrites else NOWHERE)
