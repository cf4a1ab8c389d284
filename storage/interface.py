"""What the rest of the library may ask of a store.

A store gives three guarantees, and `probe.py` refuses one that does not:

1. *Atomic visibility*: an object is seen whole or not at all.
2. *One winner*: of several `put_if_absent` on a free path, or `replace_if_match` on one tag, exactly one is done.
3. *Read your writes*: after a write is done, every later `get`, `head` and `list` by anybody sees it.

Paths are relative to the store's root, use ``/``, and never start with it. Writes answer with an `Outcome` and do
not raise for a lost race; they raise `StorageError` when the store says that nothing was written (no space, no
permission). UNKNOWN means that no answer came: the write may have happened, or may still happen later.
"""

from __future__ import annotations

import builtins
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Literal, Protocol, runtime_checkable

# True: bytes and name are on disk when the write is done. "bytes": a power cut may take the name away, but never leaves
# a torn object, and the next durable write into the same folder secures the name as well. False: it may take both.
# Object stores are always durable.
Durable = bool | Literal["bytes"]


class Outcome(Enum):
    """What became of a write."""

    DONE = "done"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Put:
    """Answer to a write: ``tag`` of what is there now when DONE; ``cause`` in words when UNKNOWN.

    ``unflushed``: it is there, but the flush of its folder failed, which may have dropped other new names there as well.
    """

    outcome: Outcome
    tag: str | None = None
    cause: str = ""
    unflushed: bool = False

    @property
    def done(self) -> bool:
        """True when this very write is what the store now holds, or held."""
        return self.outcome is Outcome.DONE


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's bytes and the tag to hand to `Store.replace_if_match`.

    ``mtime`` is when it was written, by the server's own clock and cut to whole seconds; None where no server says so.
    """

    body: bytes
    tag: str
    mtime: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing: path relative to the store's root, size in bytes, modification time (epoch seconds)."""

    path: str
    size: int
    mtime: float

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.path.rpartition("/")[2]


@runtime_checkable
class Store(Protocol):
    """A place below one root. Holds addresses, not sockets, until first use: it pickles and survives fork."""

    url: str  # canonical: one spelling per place (see location.py)

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        """Create the object; LOST when the path is taken. ``durable`` says what a power cut may take away."""
        ...

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:
        """The same bytes for one `put_if_absent` into the folder with ``durable="bytes"``, in the block.

        What can be done before the name is known has been done then, so the put is quicker; any other use is as with ``body``.
        """
        ...

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        """Replace the object that has ``tag``; LOST when it has changed or is gone."""
        ...

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        """Write or overwrite, atomically, whoever wrote before."""
        ...

    def secure(self, path: str) -> Put:
        """The object there is on disk, name and bytes, when this is DONE; LOST when there is none.

        For whoever finds what he wants to put there already, and cannot know that it has been flushed: his own put was UNKNOWN,
        or another's. On disk it is written anew, as a flush that has failed leaves nothing that another could flush.
        """
        ...

    def sync(self, folder: str) -> None:
        """What was deleted from the folder does not come back after a power cut. Raises `StorageError` when that is not known."""
        ...

    def get(self, path: str) -> Stored | None:
        """The whole object, or None when there is none."""
        ...

    def body(self, path: str) -> bytes | None:
        """The bytes of a small object without its tag, or None when there is none."""
        ...

    def head(self, path: str) -> Entry | None:
        """Size and time without the bytes, or None."""
        ...

    def list(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[Entry]:
        """Objects in the folder, sorted by path; ``after`` drops names (relative to the folder) up to and with it.

        A folder that does not exist is empty. Filtered and sorted by our own code, because stores differ.
        """
        ...

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        """The same objects as paths below the folder: an eighth of the cost where sizes are asked for one by one."""
        ...

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        """Names of the sub-folders, sorted. Only folders that hold something count; ``after`` as in `list`."""
        ...

    def delete(self, path: str) -> Outcome:
        """Remove the object. DONE also when there was none; never LOST.

        Raises:
            InputError: the path leads out of the place of the store, by a symbolic link.
        """
        ...

    def create(self, path: str) -> AbstractContextManager[NewObject]:
        """Write a large object as a stream; it appears whole when `NewObject.publish` is called, or never."""
        ...

    def open(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Read an object as a seekable stream. Raises `StorageError` when there is none."""
        ...

    def uri(self, path: str) -> str:
        """The object's address as Spark and other engines spell it."""
        ...


class NewObject(Protocol):
    """An object being written. Leaving the block without `publish` leaves nothing behind."""

    @property
    def stream(self) -> IO[bytes]:
        """Where the bytes go."""
        ...

    def publish(self, *, durable: Durable = True) -> Put:
        """Put the object at its path if that is absent. LOST: another one stands there, ours is dropped."""
        ...


def put_secured(store: Store, path: str, body: bytes) -> Put:
    """Put the object unless there is one already. DONE: what is there, whoever put it, is on disk."""
    put = store.put_if_absent(path, body)
    return put if put.done else store.secure(path)
