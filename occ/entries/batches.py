"""Numbered batches of a source, each committed once: the log's memory of them. Pure.

    t=0  a query writes its batch 7; the commit is done, and the process dies before it can note that
    t=1  started again, the query sends batch 7 once more; the log has 7, so nothing is done

The number is in the commit entry, so one write both commits a batch and remembers it, and every other writer that tries
to commit it reads that first. As transaction identifiers of Delta Lake (``txn`` in its protocol), and of Spark's sinks.
The number is on the timeline too, for a restore, whose entry names the batches that are newest then.

    t=0  consumer A of a topic has written up to offset 100, and is paused as it writes 100 to 150 as batch 150
    t=1  B takes over and writes 100 to 130 as batch 130
    t=2  A goes on; 150 is larger than 130, and the events from 100 to 130 would count twice

So a batch may say which one it follows (``after``), and is refused if another is the newest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...arguments import brief, encodable, number, text
from ...errors import InputError

SOURCES_MAX = 1000  # remembered by the log; with more, the source whose last batch is oldest is forgotten
NOTHING = -1  # as the number that a batch follows: there is none of its source
_NUMBER_MAX = 2**63 - 1
_EXTRA = "lakelatch.batch"  # among the extraMetadata of a commit


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a source. Numbers grow; a number not larger than the last committed one counts as committed.

    Args:
        source: whose batches are numbered: a streaming query, a loader, one partition of a topic.
        number: of the batch, from 0 on: its id, or the offset that it ends with.
        after: number of the newest batch of the source that it may follow, `NOTHING` if it must be the first; None: any. It is
            checked as the commit is decided, and not stored.

    Raises:
        InputError: they are no such name and number.
    """

    source: str
    number: int
    after: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        text(self.source, "batch source")
        if len(self.source) > 500 or any("\ud800" <= each <= "\udfff" for each in self.source):
            raise InputError(
                f"batch source={self.source!r:.80} is no name of a source; give a text of at most 500 characters"
            )
        number(self.number, "batch number", least=0, most=_NUMBER_MAX, whole=True)
        if self.after is not None:
            number(self.after, "the batch before", least=NOTHING, most=_NUMBER_MAX, whole=True)
            if self.after >= self.number:
                raise InputError(f"{self} cannot follow {self.after}: the numbers of a source grow")

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """Make a batch from source and number, with the number that it follows if that counts (None: it is the first)."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise InputError(
                f'batch={brief(given)} is no batch; give a source and a number, as ("nightly load", 17), and the number that it '
                "follows if no other may be between them"
            )
        # Offsets often come out of a frame, and the log holds Python's numbers.
        source, *counts = (each.item() if type(each).__module__ == "numpy" else each for each in given)
        if len(counts) == 2 and counts[1] is None:
            counts[1] = NOTHING
        return cls(source, *counts)

    @classmethod
    def told_in(cls, extra: Mapping[str, str]) -> Self | None:
        """Read the batch that a commit on the timeline has committed (`extra`); None if there is none."""
        try:
            return cls(*json.loads(extra[_EXTRA])) if _EXTRA in extra else None
        except (ValueError, TypeError, RecursionError, InputError):  # not ours
            return None

    @classmethod
    def rescue(cls, instant: str) -> Self:
        """The batch that writes the rows again which a commit has lost; it tells `check` that they are there."""
        return cls(f"rescue {instant}", 1)

    @property
    def extra(self) -> dict[str, str]:
        """The metadata with which a commit on the timeline names its batch."""
        return {_EXTRA: json.dumps([self.source, self.number], ensure_ascii=False)}

    def __str__(self) -> str:
        return f"batch {self.number} of {self.source!r}"


@dataclass(frozen=True, slots=True)
class Landed:
    """The newest committed batch of a source, and the transaction ``instant`` that committed it."""

    batch: Batch
    instant: str

    def to_json(self) -> list[Any]:
        return [self.batch.source, self.batch.number, self.instant]

    @classmethod
    def from_json(cls, raw: list[Any]) -> Self:
        source, count, instant = raw
        return cls(Batch(source, count), instant)


BatchGiven = Batch | tuple[str, int] | tuple[str, int, int | None]  # see `Batch.of`


class Batches:
    """The newest committed batch of each source, in the order of their commits."""

    __slots__ = ("_landed",)

    def __init__(self, landed: Iterable[Landed] = ()) -> None:
        self._landed = {each.batch.source: each for each in landed}

    def __iter__(self) -> Any:
        return iter(tuple(self._landed.values()))

    def last(self, source: str) -> Landed | None:
        """The newest batch of a source."""
        return self._landed.get(source)

    def before(self, batch: Batch | None) -> Landed | None:
        """The batch that shows that this one is committed: itself, or a later one of its source."""
        last = self._landed.get(batch.source) if batch else None
        return last if last and batch and last.batch.number >= batch.number else None

    def add(self, batch: Batch, instant: str) -> None:
        """Add a committed batch."""
        # Removed first, so that the source moves to the end and is forgotten last.
        self._landed.pop(batch.source, None)
        self._landed[batch.source] = Landed(batch, instant)
        if len(self._landed) > SOURCES_MAX:
            del self._landed[next(iter(self._landed))]

    def take_back(self, instants: Iterable[str], standing: Iterable[Landed] = ()) -> None:
        """Remove undone transactions. Their sources fall back to the ``standing`` batches, or are forgotten."""
        gone, before = set(instants), {each.batch.source: each for each in standing}
        left = ((s, each if each.instant not in gone else before.get(s)) for s, each in self._landed.items())
        self._landed = {source: each for source, each in left if each is not None}


# The origin of a commit: the batch of a source that it commits, and a note of its writer. Pure.
#
# Both are in the commit's ``extraMetadata``, on the timeline and in the log entry, so they survive rebases, retries and
# group commits as the files do, and every reader of Hudi sees them. A note's keys stand there as they are given, as
# those of Hudi's own ``hoodie.datasource.write.commitmeta.key.prefix``; what other engines left there reads as a note too.

COVERS = "lakelatch.covers"  # of an empty commit: the T of that whose log files it covers
NOTE_BYTES = 4096  # of all keys and values: every reader of the timeline reads them with each commit
_KEY_LONGEST = 100
_NAMES = frozenset({"schema", "latest_schema"})
# Hudi and its streamers go by some of these: a checkpoint, for example.
_PREFIXES = ("lakelatch.", "hoodie.", "_hoodie_", "_hudi_", "deltastreamer.", "streamer.")


@dataclass(frozen=True, slots=True)
class Origin:
    """The batch that a commit commits, and its note."""

    batch: Batch | None = None
    note: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Any, note: Any) -> Self:
        """Check the arguments ``batch`` and ``note`` of a write. Raises `InputError`."""
        return cls(Batch.of(batch), {} if note is None else _checked(note))

    @property
    def extra(self) -> dict[str, str]:
        """The metadata of the commit that says it."""
        return {**(self.batch.extra if self.batch else {}), **self.note}


UNTOLD = Origin()


def note_in(extra: Mapping[str, str]) -> dict[str, str]:
    """Read the note of a commit from its ``extra`` metadata; empty without one."""
    return {key: value for key, value in extra.items() if not _is_reserved(key)}


def _is_reserved(key: str) -> bool:
    return key in _NAMES or key.startswith(_PREFIXES)


def _checked(note: Any) -> dict[str, str]:
    if not isinstance(note, Mapping):
        raise InputError(f'note={brief(note)} is no note; give texts by name, as {{"job": "nightly load"}}')
    for key, value in note.items():
        if not isinstance(key, str) or not 0 < len(key) <= _KEY_LONGEST:
            raise InputError(f"note: {brief(key)} is no key; give a text of 1 to {_KEY_LONGEST} characters")
        if _is_reserved(key):
            raise InputError(f"note: the key {key!r} is one of Hudi's or LakeLatch's own; choose another")
        if not isinstance(value, str):
            raise InputError(f"note: {key!r} is {brief(value)}, which is no text; give a str, as {str(value)!r:.40}")
        if not encodable(key + value):
            raise InputError(f"note: {key!r} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    size = sum(len((key + value).encode()) for key, value in note.items())
    if size > NOTE_BYTES:
        largest = max(note, key=lambda key: len(note[key]))
        raise InputError(
            f"note has {size:,} bytes, of at most {NOTE_BYTES:,}, and {largest!r} is its largest value; keep it elsewhere, and "
            "note where"
        )
    # Plain texts: those of a subclass may show themselves otherwise, as members of an Enum do.
    return {str.__str__(key): str.__str__(value) for key, value in note.items()}
