"""Write and flush bytes before the name of their file is known.

A lock holder that flushes makes all others wait for the disk. An object's content is often known
before its name. Then it is written and flushed first, and under the lock it only needs a link.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from ...errors import StorageError
from .files import NewFile


class Settled(bytes):
    """Bytes that a new file holds already, on disk, for the first put that takes it."""

    def __init__(self, _: bytes) -> None:
        self._files: list[tuple[NewFile, ExitStack]] = []

    @contextmanager
    def taken(self) -> Iterator[NewFile | None]:
        """Yield the file, closed afterwards; None when it has been taken."""
        try:
            file, closing = self._files.pop()  # in one step: a number of an open file must not be used by two
        except IndexError:
            yield None
            return
        with closing:
            yield file


@contextmanager
def settled(body: bytes, new: AbstractContextManager[NewFile]) -> Iterator[Settled]:
    """Yield the bytes, written into the new file and flushed.

    A failure here is not raised: the put writes the bytes itself and reports its own.
    """
    found = Settled(body)
    del body  # that of a large commit is not kept twice
    with suppress(StorageError), ExitStack() as stack:
        file = stack.enter_context(new)
        file.write(found)
        file.settle("bytes")
        found._files.append((file, stack.pop_all()))
    try:
        yield found
    finally:
        with found.taken():
            pass
