"""A store that injects faults: at the nth call, or at the next matching one.

    store = FaultStore(LocalStore(folder))
    store.add(Crash(At(7), after=True))                # the process is killed right after call 7 took effect
    store.add(LoseReply(On("put_if_absent", "/log/"))) # the next log entry is stored, but its writer gets no answer
    store.add(Late(On("put_if_absent", "/log/")))      # the writer gets no answer, and it is stored at `land()`
    store.add(Refuse(At(3), errno=errno.ENOSPC))       # nothing is written, and the store says so
    store.add(Pause(On("publish"), call=other_writer)) # another writer acts before the call, or after it

A fault strikes once, at its first match, or with ``forever`` at all of them. Calls are numbered from 1 in the order in which
they are made; `reset` starts again at 1.

Pickles with its faults (`Pause` needs a callable that pickles), for tests in child processes.
"""

from __future__ import annotations

import builtins
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeVar

from ..errors import StorageError
from ..storage import Durable, Entry, NewObject, Outcome, Put, Store, Stored

__all__ = ["At", "Call", "Crash", "FaultStore", "From", "Late", "LoseReply", "On", "Pause", "Refuse"]

T = TypeVar("T")

CONDITIONAL = frozenset({"put_if_absent", "replace_if_match", "publish"})
PUTS = CONDITIONAL | {"put", "secure"}
WRITES = PUTS | {"delete"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the store; ``op`` is the method's name, ``publish`` for the end of a `Store.create`."""

    number: int
    op: str
    path: str

    @property
    def writes(self) -> bool:
        """True if it can change anything."""
        return self.op in WRITES


class Match(Protocol):
    """The condition on calls at which a fault strikes."""

    def __call__(self, call: Call) -> bool: ...


@dataclass(frozen=True, slots=True)
class At:
    """The call with that number."""

    number: int

    def __call__(self, call: Call) -> bool:
        """Return whether it is that call."""
        return call.number == self.number


@dataclass(frozen=True, slots=True)
class On:
    """A call of that method ("" for any) whose path contains ``part``."""

    op: str
    part: str = ""

    def __call__(self, call: Call) -> bool:
        """Return whether it is such a call."""
        return self.op in ("", call.op) and self.part in call.path


@dataclass(frozen=True, slots=True)
class From:
    """The call with that number and all later ones; only those of the methods in ``ops``, if it names any."""

    number: int
    ops: frozenset[str] = frozenset()

    def __call__(self, call: Call) -> bool:
        """Return whether it is such a call."""
        return call.number >= self.number and (not self.ops or call.op in self.ops)


@dataclass(frozen=True, slots=True)
class Crash:
    """The process is killed as by ``kill -9``, before the call takes effect or right after."""

    when: Match
    after: bool = False


@dataclass(frozen=True, slots=True)
class LoseReply:
    """A write takes effect, and its answer is UNKNOWN."""

    when: Match
    forever: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """A put answers UNKNOWN and takes effect at `FaultStore.land`, or just before call ``land_at``."""

    when: Match
    land_at: int | None = None
    forever: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call does nothing and raises `StorageError`."""

    when: Match
    errno: int = 0
    forever: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """``call`` runs before the call takes effect, or after it.

    The store calls that ``call`` makes are not counted.
    """

    when: Match
    call: Callable[[], object]
    after: bool = False
    forever: bool = False


Fault = Crash | LoseReply | Late | Refuse | Pause


class FaultStore:
    """Any `Store`, with faults. ``calls`` are the calls since the last `reset`."""

    def __init__(self, inner: Store, *faults: Fault) -> None:
        self.inner, self.url = inner, inner.url
        self.calls: builtins.list[Call] = []
        self._faults = builtins.list(faults)
        self._late: builtins.list[tuple[int | None, Callable[[], Put]]] = []
        self._lock = threading.Lock()
        self._paused = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what cannot be pickled; late puts stay in this process."""
        return {**self.__dict__, "_lock": None, "_paused": None, "_late": [], "calls": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _paused=threading.local())

    # What a test does --------------------------------------------------------------------------------------------

    def add(self, *faults: Fault) -> Self:
        """Arm faults."""
        with self._lock:
            self._faults.extend(faults)
        return self

    def reset(self) -> None:
        """Disarm all faults, and count from 1 again. Late puts stay late."""
        with self._lock:
            self._faults, self.calls = [], []

    def land(self) -> builtins.list[Put]:
        """Carry out late puts, in order; return the answers that their writers never get."""
        return self._land(None)

    @property
    def armed(self) -> bool:
        """True if a fault has still to strike."""
        return bool(self._faults)

    # The store ---------------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        return self._write("put_if_absent", path, lambda: self.inner.put_if_absent(path, body, durable=durable))

    def settled(self, folder: str, body: bytes) -> AbstractContextManager[bytes]:
        return self._do("settled", folder, lambda: self.inner.settled(folder, body))

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        return self._write("replace_if_match", path, lambda: self.inner.replace_if_match(path, body, tag))

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        return self._write("put", path, lambda: self.inner.put(path, body, durable=durable))

    def secure(self, path: str) -> Put:
        return self._write("secure", path, lambda: self.inner.secure(path))

    def sync(self, folder: str) -> None:
        return self._do("sync", folder, lambda: self.inner.sync(folder))

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        return self._do("get", path, lambda: self.inner.get(path, bytes_max=bytes_max))

    def body(self, path: str) -> bytes | None:
        return self._do("get", path, lambda: self.inner.body(path))

    def head(self, path: str) -> Entry | None:
        return self._do("head", path, lambda: self.inner.head(path))

    def list(
        self,
        folder: str,
        *,
        after: str = "",
        recursive: bool = False,
        hidden: bool = True,
        sized: Callable[[str], bool] | None = None,
    ) -> builtins.list[Entry]:
        given: dict[str, Any] = {"after": after, "recursive": recursive, "hidden": hidden, "sized": sized}
        return self._do("list", folder, lambda: self.inner.list(folder, **given))

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[str]:
        return self._do("list", folder, lambda: self.inner.names(folder, after=after, recursive=recursive))

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        return self._do("folders", folder, lambda: self.inner.folders(folder, after=after))

    def delete(self, path: str) -> Outcome:
        return self._write("delete", path, lambda: Put(self.inner.delete(path))).outcome

    def create(self, path: str) -> AbstractContextManager[NewObject]:
        return self._do("create", path, lambda: _FaultyObject(self, path))

    def open(self, path: str, *, size: int | None = None) -> AbstractContextManager[IO[bytes]]:
        return self._do("open", path, lambda: self.inner.open(path, size=size))

    def uri(self, path: str) -> str:
        return self.inner.uri(path)

    def hadoop_options(self) -> Mapping[str, str] | None:
        return self.inner.hadoop_options()

    # Inside ------------------------------------------------------------------------------------------------------

    def _do(self, op: str, path: str, act: Callable[[], T]) -> T:
        struck = self._strike(op, path)
        _before(struck)
        answer = act()
        _after(struck)
        return answer

    def _write(self, op: str, path: str, act: Callable[[], Put], keep: Callable[[], object] = lambda: None) -> Put:
        """Carry out a write, or put it off; then ``keep`` is called first, so that what it needs is not discarded."""
        struck = self._strike(op, path)
        _before(struck)
        late = next((f for f in struck if isinstance(f, Late)), None)
        if late is not None:
            keep()
            with self._lock:
                self._late.append((late.land_at, act))
            return Put(Outcome.UNKNOWN, cause="a fault: no answer, and not done yet")
        answer = act()
        _after(struck)
        if any(isinstance(f, LoseReply) for f in struck):
            return Put(Outcome.UNKNOWN, cause="a fault: the answer was lost")
        return answer

    def _strike(self, op: str, path: str) -> builtins.list[Fault]:
        with self._lock:
            # Calls that a `Pause` makes itself are not counted, so that numbers do not shift by what another writer does.
            if getattr(self._paused, "here", False):
                return []
            call = Call(len(self.calls) + 1, op, path)
            self.calls.append(call)
            struck = [f for f in self._faults if f.when(call) and not (isinstance(f, Late) and op not in PUTS)]
            self._faults = [f for f in self._faults if f not in struck or getattr(f, "forever", False)]
        # Late puts that are due come before this call, even if it is refused.
        self._land(call.number)
        for fault in struck:
            if isinstance(fault, Refuse):
                cause = os.strerror(fault.errno) if fault.errno else "a fault"
                raise StorageError(
                    f"{path}: {op} was refused: {cause}; nothing was written", path=path, errno=fault.errno
                )
        return [self._uncounted(f) if isinstance(f, Pause) else f for f in struck]

    def _uncounted(self, fault: Pause) -> Pause:
        def call() -> None:
            before, self._paused.here = getattr(self._paused, "here", False), True
            try:
                fault.call()
            finally:
                self._paused.here = before

        return Pause(fault.when, call, fault.after)

    def _land(self, number: int | None) -> builtins.list[Put]:
        with self._lock:
            due = [act for at, act in self._late if number is None or (at is not None and at <= number)]
            self._late = [(at, act) for at, act in self._late if act not in due]
        # Outside the lock: the puts call the inner store, which may take long.
        return [act() for act in due]


def _before(struck: builtins.list[Fault]) -> None:
    for fault in struck:
        if isinstance(fault, Crash) and not fault.after:
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(fault, Pause) and not fault.after:
            fault.call()


def _after(struck: builtins.list[Fault]) -> None:
    for fault in struck:
        if isinstance(fault, Crash) and fault.after:
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(fault, Pause) and fault.after:
            fault.call()


class _FaultyObject:
    """An object being written whose publication can fail.

    A late one is kept open until it is stored.
    """

    def __init__(self, store: FaultStore, path: str) -> None:
        self._store, self._path = store, path
        self._context = store.inner.create(path)
        self._kept = False

    def __enter__(self) -> Self:
        self._object = self._context.__enter__()
        return self

    @property
    def stream(self) -> IO[bytes]:
        return self._object.stream

    def publish(self, *, durable: Durable = True) -> Put:
        def act() -> Put:
            try:
                return self._object.publish(durable=durable)
            finally:
                if self._kept:
                    self._context.__exit__(None, None, None)

        return self._store._write("publish", self._path, act, self._keep)

    def _keep(self) -> None:
        self._kept = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return None if self._kept else self._context.__exit__(kind, error, trace)
