"""An object store in memory, seen by each process through a network that may fail it.

What a fault does is what the interface of `Store` says it may: no answer although the request was carried out, no
answer and it is carried out later, carried out twice, refused, or the process ends before or after the request.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import IO, Any, TypeVar

from lakelatch.errors import StorageError
from lakelatch.storage import Durable, Entry, Outcome, Put, Stored

from .environment import WALL
from .faults import Network, step_of
from .scheduler import SimProcess

T = TypeVar("T")
N = TypeVar("N", str, Entry)
Bodies = dict[str, bytes]


class Gone(StorageError):
    """What was to be read is not there."""


class Objects:
    """The server: paths and what stands there. Each request is atomic."""

    def __init__(self, bodies: Bodies) -> None:
        self.stored: dict[str, Stored] = {}
        self.taken_away: Bodies = {}  # what stood first where something was deleted
        # Deleted savepoints that were put again, each with all that was gone by then.
        self.came_back: dict[str, set[str]] = {}
        self.unflushed: dict[str, set[str]] = {}  # by folder: what a power cut would take away
        self._entries: dict[str, dict[str, Entry]] = {}  # by folder and path
        self._folders: dict[str, dict[str, None]] = {"": {}}
        self.by: SimProcess | None = None  # who sent the request that is carried out
        self._writes = 0
        self.changed: Callable[[str, str], None] = lambda path, what: None  # what: made, replaced or deleted
        for path, body in bodies.items():
            self.put(path, body, 0.0)

    def bodies(self) -> Bodies:
        return {path: stored.body for path, stored in self.stored.items()}

    def copy(self) -> Objects:
        """Another server that holds the same."""
        twin = Objects({})
        twin.stored, twin._writes = dict(self.stored), self._writes
        twin.unflushed = {folder: set(paths) for folder, paths in self.unflushed.items()}
        twin._entries = {folder: dict(entries) for folder, entries in self._entries.items()}
        twin._folders = {folder: dict(below) for folder, below in self._folders.items()}
        return twin

    def before_pruning(self, folder: str) -> Objects:
        """Another server on which nothing was ever deleted from that folder."""
        return Objects(self.bodies() | {p: body for p, body in self.taken_away.items() if p.startswith(folder)})

    def flush(self, folder: str) -> None:
        self.unflushed.pop(folder, None)

    def power_cut(self, paths: Iterable[str]) -> None:
        """These are gone without anybody's doing."""
        for path in paths:
            del self.stored[path], self._entries[path.rpartition("/")[0]][path]

    def put(self, path: str, body: bytes, now: float, *, flushed: bool = True) -> Put:
        self._writes += 1
        tag = f"tag{self._writes}"
        folder = path.rpartition("/")[0]
        if flushed:
            self.flush(folder)
        else:
            self.unflushed.setdefault(folder, set()).add(path)
        new = path not in self.stored
        if new:
            self._grow(folder)
            if path in self.taken_away and path.endswith(".savepoint"):
                self.came_back[path] = self.taken_away.keys() - self.stored.keys()
        self.stored[path] = Stored(body, tag)
        self._entries.setdefault(folder, {})[path] = Entry(path, len(body), WALL + now)
        self.changed(path, "made" if new else "replaced")
        return Put(Outcome.DONE, tag)

    def put_if_absent(self, path: str, body: bytes, now: float, *, flushed: bool) -> Put:
        return Put(Outcome.LOST) if path in self.stored else self.put(path, body, now, flushed=flushed)

    def secure(self, path: str, *, flushed: bool) -> Put:
        if path not in self.stored:
            return Put(Outcome.LOST)
        if flushed:
            self.flush(path.rpartition("/")[0])
        return Put(Outcome.DONE, self.stored[path].tag)

    def replace_if_match(self, path: str, body: bytes, tag: str, now: float) -> Put:
        found = self.stored.get(path)
        return self.put(path, body, now) if found and found.tag == tag else Put(Outcome.LOST)

    def delete(self, path: str) -> Put:
        if (gone := self.stored.pop(path, None)) is not None:
            self.taken_away.setdefault(path, gone.body)
            folder = path.rpartition("/")[0]
            self.unflushed.get(folder, set()).discard(path)
            del self._entries[folder][path]
            self._shrink(folder)
            self.changed(path, "deleted")
        return Put(Outcome.DONE)

    def head(self, path: str) -> Entry | None:
        return self._entries.get(path.rpartition("/")[0], {}).get(path)

    def list(self, folder: str, *, after: str, recursive: bool) -> builtins.list[Entry]:
        found = list(self._entries.get(folder, {}).values())
        if recursive:
            below = list(self._folders.get(folder, ()))
            while below:
                each = below.pop()
                found += self._entries.get(each, {}).values()
                below += self._folders[each]
        if after:
            start = len(folder) + 1 if folder else 0
            found = [entry for entry in found if entry.path[start:] > after]
        found.sort(key=lambda entry: entry.path)
        return found

    def folders(self, folder: str, *, after: str) -> builtins.list[str]:
        names = [each.rpartition("/")[2] for each in self._folders.get(folder, ())]
        return sorted(name for name in names if name > after)

    def _grow(self, folder: str) -> None:
        if folder not in self._folders:
            self._folders[folder] = {}
            token_above = folder.rpartition("/")[0]
            self._grow(token_above)
            self._folders[token_above][folder] = None

    def _shrink(self, folder: str) -> None:
        while folder and not self._entries.get(folder) and not self._folders[folder]:
            self._entries.pop(folder, None)
            del self._folders[folder]
            token_above = folder.rpartition("/")[0]
            del self._folders[token_above][folder]
            folder = token_above


class SimStore:
    """A `Store` of one process. Without a network (None) every request is carried out at once: nobody else runs.

    ``far``: the library takes it for a store with long ways, and asks ahead.
    """

    beside: Callable[[str], SimStore]  # only where there are several tables

    def __init__(self, objects: Objects, network: Network | None, *, far: bool = True, name: str = "table") -> None:
        self.url = f"s3://sim/{name}" if far else f"file:///sim/{name}"
        self._objects, self._network = objects, network

    def uri(self, path: str) -> str:
        return f"{self.url}/{path}"

    def hadoop_options(self) -> None:
        return None  # no Spark in here

    # --- writing ----------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        return self._put(path, body, durable)

    def _put(self, path: str, body: bytes, durable: Durable) -> Put:
        def act(now: float, *, flushed: bool = True) -> Put:
            return self._objects.put_if_absent(path, body, now, flushed=flushed and durable is True)

        return self._write("put", path, body, act)

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:
        return nullcontext(body)

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        return self._write("replace", path, body, lambda now, **_: self._objects.replace_if_match(path, body, tag, now))

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        def act(now: float, *, flushed: bool = True) -> Put:
            return self._objects.put(path, body, now, flushed=flushed and durable is True)

        return self._write("put", path, body, act)

    def secure(self, path: str) -> Put:
        def act(_: float, *, flushed: bool = True) -> Put:
            return self._objects.secure(path, flushed=flushed)

        return self._write("secure", path, b"", act)

    def sync(self, folder: str) -> None:
        """Deletions are on disk at once here."""

    def delete(self, path: str) -> Outcome:
        return self._write("delete", path, b"", lambda _, **__: self._objects.delete(path)).outcome

    @contextmanager
    def create(self, path: str) -> Iterator[_Upload]:
        yield _Upload(self, path)

    # --- reading ----------------------------------------------------------------------------------------------

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        return self._read("get", path, lambda: self._objects.stored.get(path))

    def body(self, path: str) -> bytes | None:
        found = self.get(path)
        return None if found is None else found.body

    def head(self, path: str) -> Entry | None:
        return self._read("head", path, lambda: self._objects.head(path))

    @contextmanager
    def open(self, path: str, *, size: int | None = None) -> Iterator[IO[bytes]]:
        found = self.get(path)
        if found is None:
            raise Gone(f"{path} is not there", path=path)
        yield io.BytesIO(found.body)

    def list(
        self, folder: str, *, after: str = "", recursive: bool = False, hidden: bool = True, sized: Any = None
    ) -> builtins.list[Entry]:
        folder = folder.rstrip("/")
        found = self._read("list", folder, lambda: self._objects.list(folder, after=after, recursive=recursive))
        if hidden:
            return found
        start = len(folder) + 1 if folder else 0
        return [each for each in found if not (each.path[start] == "." and "/" in each.path[start:])]

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        start = len(folder.rstrip("/")) + 1 if folder else 0
        return [entry.path[start:] for entry in self.list(folder, after=after, recursive=recursive)]

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        folder = folder.rstrip("/")
        return self._read("list", folder, lambda: self._objects.folders(folder, after=after))

    # --- the network ------------------------------------------------------------------------------------------

    def _read(self, op: str, path: str, act: Callable[[], T]) -> T:
        network = self._network
        if network is None:
            return act()
        fault = network.before(step_of(op, path, b""))
        answer = act()
        if fault == "torn":
            network.between()
            answer = _torn(answer, act(), network.scheduler.random)  # type: ignore[type-var, assignment]
        if network.after(fault):
            raise StorageError(f"{path} could not be read: no answer (simulated)", path=path)
        return answer

    def _write(self, op: str, path: str, body: bytes, act: Callable[..., Put]) -> Put:
        network = self._network
        if network is None:
            return act(0.0)
        sent = act

        def act(now: float, **how: bool) -> Put:
            self._objects.by = network.process
            return sent(now, **how)

        step = step_of(op, path, body)
        fault = network.before(step)
        if fault == "refuse":
            raise StorageError(f"{path} was not written: refused (simulated)", path=path)
        if fault in ("late", "twice"):
            network.send_later(step, act)
        if fault in ("late", "lose request"):
            answer = _NO_ANSWER
        elif fault == "unflushed":
            answer = act(network.scheduler.now, flushed=False)
            if answer.done:
                answer = Put(Outcome.UNKNOWN, cause="there and not flushed (simulated)", unflushed=True)
        else:
            answer = act(network.scheduler.now)
        if network.scheduler.trace is not None:
            network.scheduler.note(f"{step} {_short(path)} -> {answer.outcome.value}")
        return _NO_ANSWER if network.after(fault) else answer


def _short(path: str) -> str:
    """The name of an object, without what is the same in all of them."""
    name = path.rpartition("/")[2]
    file_id, _, rest = name.partition("-")
    return f"{file_id}…{rest.rpartition('_')[2]}" if ".parquet" in name else name.lstrip("0")


_NO_ANSWER = Put(Outcome.UNKNOWN, cause="no answer (simulated)")


class _Upload:
    def __init__(self, store: SimStore, path: str) -> None:
        self._store, self._path = store, path
        self.stream = io.BytesIO()

    def publish(self, *, durable: Durable = True) -> Put:
        return self._store._put(self._path, self.stream.getvalue(), durable)


def _torn(before: list[N], after: list[N], luck: Random) -> list[N]:
    """A listing that was made while names came and went: each of these is in it or not."""

    def path(each: N) -> str:
        return each if isinstance(each, str) else each.path

    sure, maybe = (
        {path(each) for each in before} & {path(each) for each in after},
        {path(e): e for e in (*before, *after)},
    )
    return [maybe[name] for name in sorted(maybe) if name in sure or luck.random() < 0.5]
