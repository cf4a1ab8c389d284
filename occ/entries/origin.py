"""The origin of a commit: the batch of a source that it commits, and a note of its writer. Pure.

Both are in the commit's ``extraMetadata``, on the timeline and in the log entry, so they survive rebases, retries and
group commits as the files do, and every reader of Hudi sees them. A note's keys stand there as they are given, as
those of Hudi's own ``hoodie.datasource.write.commitmeta.key.prefix``; what other engines left there reads as a note too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...arguments import brief, encodable
from ...errors import InputError
from .batches import Batch

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
