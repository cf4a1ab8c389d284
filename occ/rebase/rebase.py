"""Row-level concurrency: a transaction that lost on some file groups merges only those again, and lands.

    round 0   the files of the writer's own work, made from its snapshot
    commit    under the lock: winners have changed some of the same file groups since, and nothing else is in the way
    round n   outside the lock, on the state at the head of the log: what ours changed in these groups is applied to
              their new slices; our files of the round before are deleted; then commit again
    the end   nothing new has landed since the last round; or after `ROUNDS_MAX` rounds it is a loss as any other

Everything of ours is checked against every winner before a round begins, so the next one has to look only at what
landed after the slot that it was made on: rounds shrink.

Nobody's code runs again. What ours changed is in our own superseded files: the rows with our commit time, and the keys
that the slice they were made from has and they have not: `replay_rows.merge_unit` does that for any writer, one unit at a
time, here or in Spark's workers.

**Names.** Of two files of one file group readers take the larger T, whatever C says, and two of one T they refuse. So
what is merged again never goes into a file group that has been used: it goes into a new one under our T (of the same
bucket), and the commit *replaces* the winner's group, and the new ones of our own earlier rounds. It becomes a
replacecommit; file groups that were not lost keep their files. To write into the winner's group where its T is the
smaller one would spare a replacement, but then our first file of that group and T must never come back, and a task that
Spark ran twice may bring it, at any time (tests/model searches both).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import ConflictError
from ...hudi.files import FileGroupId, bucket_of, new_file_id
from ...hudi.timeline import FileSlice

if TYPE_CHECKING:
    from ...hudi.timeline import WriteStat
    from ..staging import FileSpec, NewFile

ROUNDS_MAX = 5
_FAMILY = uuid.UUID("0d0c1f8e-7b7e-5a57-9a0e-2f4f6b9f4c55")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of ours that is superseded: where it is, and the slice it was made from (None: it began its group)."""

    group: FileGroupId
    path: str
    old: FileSlice | None


@dataclass(frozen=True, slots=True)
class Appended:
    """Log files of ours onto a file group that others have changed: the slice as we found it, and as it is now.

    The log files stand; to be looked at is only whether others changed the same rows.
    """

    logs: tuple[WriteStat, ...]
    old: FileSlice | None
    current: FileSlice


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work for one task: files of ours whose place others changed, and the slices where their rows are now.

    Mostly one and one. Where a winner moved file groups by its own rebase, all our files of that partition that lost
    their group stand together with all groups that are new there; a row's key says which one has it.
    """

    partition: str
    ours: tuple[OwnFile, ...]
    current: tuple[FileSlice, ...]


@dataclass(frozen=True)
class Lost:
    """What a round is about. Pickles, so that it travels to Spark's workers (`rewrite` is for the driver).

    Attributes:
        spec: what the files of this transaction have in common; the same as in its first round.
        round: 1 for the first merging again; ``Files(spec, task, round=...)`` puts it into the files' names, so
            that none has the name of an earlier one.
        units: our files that are superseded, with the slices that take their place.
        appeared: slices that landed since where our condition or our keys were looked up, and that are in no unit.
            Empty unless the hook was registered with ``looks_again``.
        appended: our log files, on merge-on-read tables.
        winners: requested time -> operation of every commit since our begin. A row of a current slice whose
            ``_hoodie_commit_time`` is among them was changed by others.
    """

    spec: FileSpec
    round: int
    units: tuple[Unit, ...]
    appeared: tuple[FileSlice, ...] = ()
    appended: tuple[Appended, ...] = ()
    winners: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    operation: str = ""
    _open: Callable[[FileSlice], NewFile] | None = field(default=None, compare=False, repr=False)

    def file_id(self, current: FileSlice) -> str:
        """The file id of this slice's successor: a new one, the same for every run of a task."""
        bucket = bucket_of(current.file_id) if self.spec.bucket_count is not None else None
        name = f"{self.spec.instant}\n{current.group}\n{current.instant}\n{self.round}"
        return new_file_id(str(uuid.uuid5(_FAMILY, name)), bucket=bucket)

    def rewrite(self, current: FileSlice) -> NewFile:
        """The successor of a current slice, for writers in plain Python; belongs to the round without being added."""
        assert self._open is not None, "only where the transaction is"
        return self._open(current)

    def same_row(self, keys: Iterable[Any], *, winner: str = "") -> ConflictError:
        """The error to raise when others changed the same rows and no ordering field settles it."""
        names = sorted(str(key) for key in keys)
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        who = winner or max(self.winners, default="")
        return ConflictError(
            f"{self.url}: {self.operation} {self.spec.instant} lost against {self.winners.get(who, 'a commit')} {who}, which "
            f"landed first: both changed the same rows ({shown}). Nothing of ours landed; run the write again on the new "
            "snapshot: Table.run does",
            table=self.url,
            instant=self.spec.instant,
            winner=who,
            winner_op=self.winners.get(who, ""),
            winner_writer="",
            overlap=tuple(names[:100]),
            rule="both changed the same row",
            same_rows=len(names),
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}


# Called by `commit`, outside the lock, with the heartbeat going on. Returns the new files; those made by
# `Lost.rewrite` belong to the round by themselves.
Again = Callable[[Lost], "Iterable[WriteStat] | None"]
