"""The interface of a store: atomic operations on objects.

A store gives three guarantees, and `probe.py` refuses a store without them:

1. *Atomic visibility*: an object is seen whole or not at all.
2. *One winner*: of several `put_if_absent` on a free path, or `replace_if_match` on one tag, exactly one is done.
3. *Read your writes*: after a write is done, every later `get`, `head` and `list` by any process sees it.

Paths are relative to the store's root, use ``/``, and never start with it. Writes answer with an `Outcome` and do
not raise for a lost race; they raise `StorageError` when the store says that nothing was written (no space, no
permission). UNKNOWN means that no answer came: the write may have happened, or may still happen later.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Literal, NamedTuple, NoReturn, Protocol, runtime_checkable

# True: bytes and name are on disk when the write is done. "bytes": a power cut may take the name away, but never leaves
# a torn object, and the next durable write into the same folder secures the name as well. False: it may take both.
# Object stores are always durable.
Durable = bool | Literal["bytes"]
_TRIES = 50
PROBES = ".lakelatch-probe-"  # how folders begin in which a store is tried (`probe`)


class Outcome(Enum):
    """The outcome of a write."""

    DONE = "done"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Put:
    """The answer to a write: ``tag`` of the object when DONE, ``cause`` in words when UNKNOWN.

    ``unflushed``: the object exists, but the flush of its folder failed, which may have dropped
    other new names there as well.
    """

    outcome: Outcome
    tag: str | None = None
    cause: str = ""
    unflushed: bool = False

    @property
    def done(self) -> bool:
        """True when the store holds, or held, the result of this write."""
        return self.outcome is Outcome.DONE


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's bytes and the tag to hand to `Store.replace_if_match`.

    ``mtime`` is when it was written, by the server's clock in whole seconds; None where there is no server.
    """

    body: bytes
    tag: str
    mtime: float | None = field(default=None, compare=False)


class Entry(NamedTuple):
    """One object of a listing: path relative to the store's root, size in bytes, modification time (epoch seconds).

    A tuple, because a listing may make a hundred thousand of them.
    """

    path: str
    size: int
    mtime: float

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.path.rpartition("/")[2]


@runtime_checkable
class Store(Protocol):
    """Objects below one root. Connects at first use, so it can be pickled and survives a fork."""

    url: str  # canonical: one spelling per place (see location.py)

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        """Create the object; LOST when the path is taken.

        ``durable`` says what a power cut may take away.
        """
        ...

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:
        """Yield the same bytes for one `put_if_absent` into the folder with ``durable="bytes"``, in the block.

        The work that does not need the name is done before the block, so the put is quicker; any other use is as with ``body``.
        """
        ...

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        """Replace the object that has ``tag``; LOST when it has changed or is gone."""
        ...

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        """Create or overwrite the object atomically."""
        ...

    def secure(self, path: str) -> Put:
        """Make an existing object durable, name and bytes. LOST when there is none.

        For a writer that finds its object in place without knowing that it was flushed: its own put
        was UNKNOWN, or another writer put it. A local store writes the object again, because after
        a failed flush nothing is left to flush.
        """
        ...

    def sync(self, folder: str) -> None:
        """Make deletions in the folder survive a power cut.

        Raises `StorageError` when that fails.
        """
        ...

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        """Return the object and its tag, or None. Of one larger than ``bytes_max`` only the beginning is read."""
        ...

    def body(self, path: str) -> bytes | None:
        """Return the bytes of a small object without its tag, or None."""
        ...

    def head(self, path: str) -> Entry | None:
        """Return size and time without the bytes, or None."""
        ...

    def list(
        self,
        folder: str,
        *,
        after: str = "",
        recursive: bool = False,
        hidden: bool = True,
        sized: Callable[[str], bool] | None = None,
    ) -> builtins.list[Entry]:
        """List the objects in the folder, sorted by path.

        ``after`` skips names (relative to the folder) up to and including it. With ``hidden`` False, objects in sub-folders
        whose names begin with a dot are left out, and cost nothing. ``sized`` takes an object's name and returns whether its
        size and time are wanted (None: always); where each costs a call of its own, others have a size of -1 and a time of 0.
        A missing folder is empty. Our own code filters and sorts, because stores differ.
        """
        ...

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        """List the paths only: an eighth of the cost where each size needs a call of its own."""
        ...

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        """List the names of non-empty sub-folders, sorted; ``after`` as in `list`."""
        ...

    def delete(self, path: str) -> Outcome:
        """Delete the object. DONE also when there was none; never LOST.

        Raises:
            InputError: the path leads out of the place of the store, by a symbolic link.
        """
        ...

    def create(self, path: str) -> AbstractContextManager[NewObject]:
        """Write a large object as a stream; it appears whole when `NewObject.publish` is called, or never."""
        ...

    def open(self, path: str, *, size: int | None = None) -> AbstractContextManager[IO[bytes]]:
        """Read an object as a seekable stream. Raises `StorageError` when there is none.

        ``size`` in bytes, if known for sure, may save a request; a missing object may then be reported at the first read.
        """
        ...

    def uri(self, path: str) -> str:
        """Return the object's address as Spark and other engines spell it."""
        ...

    def hadoop_options(self) -> Mapping[str, str] | None:
        """The options by which Hadoop's file systems, and so Spark's own scan, reach what `uri` names; may hold keys.

        Empty where they need none, or none that this store knows; None where there are no such options.
        """
        ...


class NewObject(Protocol):
    """An object being written. Leaving the block without `publish` leaves nothing behind."""

    @property
    def stream(self) -> IO[bytes]:
        """The stream to write to."""
        ...

    def publish(self, *, durable: Durable = True) -> Put:
        """Put the object at its path if that is free. LOST: the path is taken, ours is dropped."""
        ...


def put_secured(store: Store, path: str, body: bytes) -> Put:
    """Put the object unless it exists. DONE: the object at the path is durable, ours or not."""
    put = store.put_if_absent(path, body)
    return put if put.done else secured(store, path)


def secured(store: Store, path: str) -> Put:
    """Call `Store.secure`, retrying when another writer that does the same was faster. LOST: there is no object."""
    for _ in range(_TRIES):
        put = store.secure(path)
        if put.outcome is not Outcome.LOST or store.head(path) is None:
            return put
    return Put(Outcome.UNKNOWN, cause="others wrote it again and again")


__all__ = ["stream_into"]


class _File(io.FileIO):
    """A file that reports a failed write to the disk as its store reports every other failure."""

    def __init__(self, fd: int, refuse: Callable[[OSError], NoReturn]) -> None:
        super().__init__(fd, "wb")
        self._refuse = refuse

    def write(self, body: object, /) -> int:
        try:
            return super().write(body)  # type: ignore[arg-type]
        except OSError as error:
            self._refuse(error)


def stream_into(fd: int, refuse: Callable[[OSError], NoReturn]) -> IO[bytes]:
    """Return a buffered stream into an open file, on a descriptor of its own: a Parquet writer may close it early.

    Args:
        refuse: raises the error for the store's caller, from wherever the stream is written, or here if no descriptor is left.
    """
    try:
        own = os.dup(fd)
    except OSError as error:
        refuse(error)
    return io.BufferedWriter(_File(own, refuse))
