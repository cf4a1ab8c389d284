"""Numbered batches of a source, each of which lands once: what the log remembers of them. Pure.

    t=0  a query writes its batch 7; the commit lands, and the process dies before it can note that
    t=1  started again, the query sends batch 7 once more; the log says that 7 has landed, so nothing is done

The number stands in the commit entry, so a batch lands and is remembered by one write, and every other writer that tries to
land it reads that first. As transaction identifiers of Delta Lake (``txn`` in its protocol), and of Spark's sinks.

It stands on the timeline too, for a restore: its entry says which batches are the newest now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from ...arguments import brief, number, text
from ...errors import InputError

SOURCES_MAX = 1000  # that the log remembers; of more, the one that has landed nothing for longest is forgotten
_NUMBER_MAX = 2**63 - 1
_EXTRA = "lakelatch.batch"  # among the extraMetadata of a commit


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a source. Numbers grow; one that is not larger than the last that landed has landed.

    Args:
        source: whose batches are numbered: a streaming query, a loader, one partition of a topic.
        number: of the batch, from 0 on: its id, or the offset that it ends with.

    Raises:
        InputError: they are no such name and number.
    """

    source: str
    number: int

    def __post_init__(self) -> None:
        text(self.source, "batch source")
        if len(self.source) > 500 or any("\ud800" <= each <= "\udfff" for each in self.source):
            raise InputError(
                f"batch source={self.source!r:.80} is no name of a source; give a text of at most 500 characters"
            )
        number(self.number, "batch number", least=0, most=_NUMBER_MAX, whole=True)

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """From a pair of source and number, or a batch, or None."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, tuple) or len(given) != 2:
            raise InputError(
                f'batch={brief(given)} is no batch; give a pair of a source and a number, as ("nightly load", 17)'
            )
        return cls(*given)

    @classmethod
    def told_in(cls, extra: Mapping[str, str]) -> Self | None:
        """The one that a commit on the timeline says it has landed (`extra`); None where it says of none."""
        try:
            return cls(*json.loads(extra[_EXTRA])) if _EXTRA in extra else None
        except (ValueError, TypeError, InputError):  # not ours
            return None

    @property
    def extra(self) -> dict[str, str]:
        """What a commit on the timeline says of it."""
        return {_EXTRA: json.dumps([self.source, self.number], ensure_ascii=False)}

    def __str__(self) -> str:
        return f"batch {self.number} of {self.source!r}"


@dataclass(frozen=True, slots=True)
class Landed:
    """The newest batch of its source that has landed, by the transaction ``instant``."""

    batch: Batch
    instant: str

    def to_json(self) -> list[Any]:
        return [self.batch.source, self.batch.number, self.instant]

    @classmethod
    def from_json(cls, raw: list[Any]) -> Self:
        source, count, instant = raw
        return cls(Batch(source, count), instant)


class Batches:
    """Of each source its newest batch, in the order in which they landed."""

    __slots__ = ("_landed",)

    def __init__(self, landed: Iterable[Landed] = ()) -> None:
        self._landed = {each.batch.source: each for each in landed}

    def __iter__(self) -> Any:
        return iter(tuple(self._landed.values()))

    def last(self, source: str) -> Landed | None:
        """The newest of a source."""
        return self._landed.get(source)

    def before(self, batch: Batch | None) -> Landed | None:
        """What says that a batch has landed: itself, or a later one of its source."""
        last = self._landed.get(batch.source) if batch else None
        return last if last and batch and last.batch.number >= batch.number else None

    def add(self, batch: Batch, instant: str) -> None:
        """It has landed."""
        self._landed.pop(batch.source, None)
        self._landed[batch.source] = Landed(batch, instant)
        if len(self._landed) > SOURCES_MAX:
            del self._landed[next(iter(self._landed))]

    def take_back(self, instants: Iterable[str], standing: Iterable[Landed] = ()) -> None:
        """These transactions were undone. Of their sources those are the newest ``standing`` now; the others have landed none."""
        gone, before = set(instants), {each.batch.source: each for each in standing}
        left = ((s, each if each.instant not in gone else before.get(s)) for s, each in self._landed.items())
        self._landed = {source: each for source, each in left if each is not None}
