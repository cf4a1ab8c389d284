"""Row-level concurrency: a transaction that lost on some file groups merges only those again, and commits.

    round 0   the files of the writer's own work, made from its snapshot
    commit    under the lock: winners have changed some of the same file groups since, and nothing else conflicts
    round n   outside the lock, on the state at the head of the log: our changes in these groups are applied to
              their new slices; our files of the round before are deleted; then commit again
    the end   no new commit since the last round; or, after `ROUNDS_MAX` rounds, a conflict like any other

All our changes are checked against every winner before a round begins, so the next round only has to check commits
after the slot that this one was made on: rounds shrink.

No user code runs again. Our changes are in our own superseded files: the rows with our commit time, and the keys
that the original slice has and the file has not. `replay_rows.merge_unit` replays them for any writer, one unit at a
time, here or in Spark's workers.

**Names.** Of two files of one file group readers take the larger T, whatever C says, and two of one T they refuse. So
merged files never go into a used file group: they go into a new one under our T (of the same bucket), and the commit
*replaces* the winner's group, and the new ones of our own earlier rounds. It becomes a replacecommit; file groups that
were not lost keep their files. Writing into the winner's group if its T is smaller would save a replacement, but then
our first file of that group and T must never come back, and a task that Spark ran twice may bring it back at any time
(tests/model searches both).
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

# A bound for a busy table: a transaction that lost this often fails, so that its caller can retry with a reservation.
ROUNDS_MAX = 5
_FAMILY = uuid.UUID("0d0c1f8e-7b7e-5a57-9a0e-2f4f6b9f4c55")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A superseded file of ours: its path, and the slice it was made from (None: it began its group)."""

    group: FileGroupId
    path: str
    old: FileSlice | None


@dataclass(frozen=True, slots=True)
class Appended:
    """Our log files onto a file group that others have changed: its slice in our snapshot, and its slice now.

    The log files stay; the only question is whether others changed the same rows.
    """

    logs: tuple[WriteStat, ...]
    old: FileSlice | None
    current: FileSlice


@dataclass(frozen=True, slots=True)
class Unit:
    """The work of one task: files of ours whose file groups others changed, and the slices that hold their rows now.

    Usually one file and one slice. If a winner's rebase moved file groups, all our files of that partition that lost
    their group come together with all groups that are new there; a row's key decides which one has it.
    """

    partition: str
    ours: tuple[OwnFile, ...]
    current: tuple[FileSlice, ...]


@dataclass(frozen=True)
class Lost:
    """The work of one round. Pickles, so that it can be sent to Spark's workers (`rewrite` is for the driver).

    Attributes:
        spec: common to all files of this transaction; the same as in its first round.
        round: 1 for the first merge; ``TaskFiles(spec, task, round=...)`` puts it into the files' names, so that they
            differ from those of earlier rounds.
        units: our superseded files, with the slices that take their place.
        appeared: slices committed since in the region that our condition or our keys cover, and that are in no unit.
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
        # Derived instead of random, so that a task that runs twice writes under the same name.
        name = f"{self.spec.instant}\n{current.group}\n{current.instant}\n{self.round}"
        return new_file_id(str(uuid.uuid5(_FAMILY, name)), bucket=bucket)

    def rewrite(self, current: FileSlice) -> NewFile:
        """Return the successor of a current slice, for writers in plain Python. It belongs to the round without being added."""
        assert self._open is not None, "only where the transaction is"
        return self._open(current)

    def same_row(self, keys: Iterable[Any], *, winner: str = "") -> ConflictError:
        """The error to raise if others changed the same rows and no ordering field decides."""
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


# Called by `commit`, outside the lock, while the heartbeat goes on. Returns the new files, except those made by
# `Lost.rewrite`, which belong to the round already.
Again = Callable[[Lost], "Iterable[WriteStat] | None"]
