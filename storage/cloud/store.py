"""S3, GCS and Azure (and servers with their protocols), through obstore.

A conditional write is sent once. When no clear answer comes (time-out, 5xx, a cut connection, S3's 409
ConditionalRequestConflict), the outcome is UNKNOWN and the caller sends *the same* bytes again or reads: a blind
retry here could find our own success and call it a loss.

On S3 the tag of an object is that of its content: two writes of equal bytes have one tag. A caller that
uses `replace_if_match` as a lock or counter puts something unique into the body.

Not tested against a server: GCS (no emulator takes obstore's conditional puts, docs/storage.md).
"""

from __future__ import annotations

import builtins
import io
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import IO, Any, NoReturn

from ...errors import InputError, StorageError
from ..interface import Durable, Entry, Outcome, Put, Stored, stream_into
from ..location import Location, check_path, parse
from .hadoop import hadoop_options
from .requests import Failure, Requests, Verdict, connect, next_step

__all__ = ["CloudStore"]

_READ_AHEAD_BYTES = 1 << 20
_WHOLE_BYTES = 256 << 10  # arrives in a tenth of the time that a request waits for its first byte


class CloudStore:
    """The objects below one prefix of a bucket. Connects on first use, once in each process."""

    def __init__(self, place: Location) -> None:
        self.url = place.url
        self._place = place
        self._live: tuple[int, Requests] | None = None

    def __repr__(self) -> str:
        return f"CloudStore({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self._place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["place"])  # type: ignore[misc]

    def uri(self, path: str) -> str:
        path = check_path(path, folder=True)
        address = self._place.spelled("/".join(part for part in (self._place.path, path) if part))
        return address.replace("s3://", "s3a://", 1)  # Spark's own name for it

    def beside(self, url: str) -> CloudStore:
        place = parse(url)
        return CloudStore(replace(place, options=self._place.options) if place.kind == self._place.kind else place)

    def hadoop_options(self) -> dict[str, str] | None:
        return hadoop_options(self._place)

    # Writing -----------------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:  # noqa: ARG002 - always durable
        return self._write(path, body, "create")

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:  # noqa: ARG002 - nothing to be gained
        return nullcontext(body)

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        version, _, e_tag = tag.partition(" ")
        mode = {key: value for key, value in (("e_tag", e_tag), ("version", version)) if value}
        if not mode:
            raise InputError(f"{tag!r} is not a tag that this store has given", path=path)
        return self._write(path, body, mode)

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:  # noqa: ARG002 - always durable
        return self._write(path, body, "overwrite")

    def secure(self, path: str) -> Put:
        return Put(Outcome.LOST if self.head(path) is None else Outcome.DONE)  # a visible object is durable

    def delete(self, path: str) -> Outcome:
        try:
            self._ask.delete(check_path(path))
        except Failure as failure:
            if failure.verdict is Verdict.UNSURE:
                return Outcome.UNKNOWN
            if failure.verdict is not Verdict.ABSENT:
                self._refuse(failure, path, "was not deleted")
        return Outcome.DONE

    @contextmanager
    def create(self, path: str) -> Iterator[_Upload]:
        """Collect the bytes in a temporary file and send them by one conditional put.

        Not by parts: parts cannot be made to fail when the name is taken on every store, and a single put is what
        the probe has seen to be atomic. The price is one object in memory while it is sent.
        """
        check_path(path)
        try:
            collected = tempfile.TemporaryFile()  # noqa: SIM115 - closed below; only the opening is guarded
        except OSError as error:
            _refuse_space(self, path, error)
        with collected as file:
            upload = _Upload(self, path, file)
            try:
                yield upload
            finally:
                upload.close()

    def sync(self, folder: str) -> None:
        """Do nothing: deletions in a cloud store are durable."""

    # Reading -----------------------------------------------------------------------------------------------------

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        try:
            return Stored(*self._ask.get(check_path(path), bytes_max))
        except Failure as failure:
            if failure.verdict is not Verdict.ABSENT:
                self._refuse(failure, path, "was not read")
            return None

    def body(self, path: str) -> bytes | None:
        found = self.get(path)
        return None if found is None else found.body

    def head(self, path: str) -> Entry | None:
        try:
            return Entry(*self._ask.head(check_path(path)))
        except Failure as failure:
            if failure.verdict is not Verdict.ABSENT:
                self._refuse(failure, path, "was not read")
            return None

    @contextmanager
    def open(self, path: str, *, size: int | None = None) -> Iterator[IO[bytes]]:
        if size is None:
            entry = self.head(path)
            if entry is None:
                raise StorageError(f"{self.uri(path)} was not read: there is no such object", path=path)
            size = entry.size
        with io.BufferedReader(_Reader(self, check_path(path), size), _READ_AHEAD_BYTES) as stream:
            yield stream

    def list(
        self,
        folder: str,
        *,
        after: str = "",
        recursive: bool = False,
        hidden: bool = True,
        sized: Callable[[str], bool] | None = None,
    ) -> builtins.list[Entry]:
        del sized  # a listing has the sizes anyway
        folder = check_path(folder, folder=True)
        start = len(folder) + 1 if folder else 0
        prefix = f"{folder}/" if folder else ""
        try:
            if recursive or after:
                found = self._ask.listing(folder, prefix + after if after else None, hidden)
            else:
                found, _ = self._ask.level(folder)
        except Failure as failure:
            self._refuse(failure, folder, "was not listed")
        # Filtered and sorted here as well: Azurite ignores the start, and not every store sorts.
        entries = [Entry(*item) for item in found if item[0][start:] > after]
        if not recursive:
            entries = [entry for entry in entries if "/" not in entry.path[start:]]
        elif not hidden:
            entries = [entry for entry in entries if entry.path[start] != "." or "/" not in entry.path[start:]]
        return sorted(entries, key=lambda entry: entry.path)

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        start = len(folder.rstrip("/")) + 1 if folder else 0
        return [entry.path[start:] for entry in self.list(folder, after=after, recursive=recursive)]

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        folder = check_path(folder, folder=True)
        try:
            _, found = self._ask.level(folder)
        except Failure as failure:
            self._refuse(failure, folder, "was not listed")
        names = (each.rstrip("/").rpartition("/")[2] for each in found)
        return sorted(name for name in names if name > after)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes from ``start`` up to ``end``."""
        try:
            return self._ask.get_range(path, start, end)
        except Failure as failure:
            self._refuse(failure, path, "was not read")

    # Inside ------------------------------------------------------------------------------------------------------

    @property
    def _ask(self) -> Requests:
        live = self._live
        # A child of fork has the parent's client, whose threads it has not.
        if live is None or live[0] != os.getpid():
            live = self._live = (os.getpid(), connect(self._place))
        return live[1]

    def _write(self, path: str, body: bytes, mode: str | dict[str, str]) -> Put:
        try:
            return Put(Outcome.DONE, self._ask.put(check_path(path), body, mode))
        except Failure as failure:
            if failure.verdict is Verdict.UNSURE:
                return Put(Outcome.UNKNOWN, cause=failure.text)
            # S3 answers 404, and not 412, where the object to be replaced is gone.
            gone = failure.verdict is Verdict.ABSENT and isinstance(mode, dict)
            if failure.verdict is Verdict.TAKEN or gone:
                return Put(Outcome.LOST)
            self._refuse(failure, path, "was not written")

    def _refuse(self, failure: Failure, path: str, what: str) -> NoReturn:
        raise StorageError(
            f"{self.uri(path)} {what}: {failure.text}. {next_step(failure)}",
            path=path,
        ) from failure


def _refuse_space(store: CloudStore, path: str, error: OSError) -> NoReturn:
    raise StorageError(
        f"{store.uri(path)} was not written: {error.strerror} in {tempfile.tempdir or 'the folder for temporary files'} of "
        f"{platform.node()}. Make room there or set TMPDIR, and look at the limit on open files (ulimit -n)",
        path=path,
    ) from error


class _Upload:
    """A temporary file on its way to the store."""

    def __init__(self, store: CloudStore, path: str, file: IO[bytes]) -> None:
        self._store = store
        self._path = path
        self._file = file
        self.stream = stream_into(file.fileno(), self._refuse)

    def publish(self, *, durable: Durable = True) -> Put:
        self.stream.close()
        self._file.seek(0)
        return self._store.put_if_absent(self._path, self._file.read(), durable=durable)

    def _refuse(self, error: OSError) -> NoReturn:
        _refuse_space(self._store, self._path, error)

    def close(self) -> None:
        with suppress(OSError, StorageError):  # unpublished bytes that the disk did not take
            self.stream.close()


class _Reader(io.RawIOBase):
    """Ranged reads of one object, which never changes. A small one comes whole at the first read."""

    def __init__(self, store: CloudStore, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("seek before the start of the object")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._at + len(view), self._size)
        if self._at >= end:
            return 0
        # Parquet reads footer, then columns: for a small object one request instead of three.
        if self._size <= _WHOLE_BYTES and self._whole is None:
            self._whole = self._store.read_range(self._path, 0, self._size)
        if self._whole is None:
            body = self._store.read_range(self._path, self._at, end)
        else:
            body = self._whole[self._at : end]
        view[: len(body)] = body
        self._at += len(body)
        return len(body)

    def readall(self) -> bytes:
        """Read the rest by one request; the base class asks for 8 KiB at a time."""
        rest = bytearray(max(self._size - self._at, 0))
        return bytes(rest[: self.readinto(rest)])
