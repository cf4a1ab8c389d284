"""An object store in memory, seen by each process through a network that may fail it.

What a fault does is what the interface of `Store` says it may: no answer although the request was carried out, no
answer and it is carried out later, carried out twice, refused, or the process ends before or after the request.
"""

from __future__ import annotations

import builtins
import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TypeVar

from lakelatch.errors import StorageError
from lakelatch.storage import Durable, Entry, Outcome, Put, Stored
from lakelatch.storage.location import check_path

from .scheduler import Scheduler, SimProcess

T = TypeVar("T")

FAULTS = ("crash before", "crash after", "lose reply", "late", "twice", "refuse", "stop", "slow")


@dataclass
class Faults:
    """How often each fault strikes, as a probability for each call, and how often each has struck where."""

    rates: dict[str, float] = field(default_factory=dict)
    crashes_left: int = 2
    long_s: float = 90.0  # longer than every lease and time-out
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)

    def draw(self, scheduler: Scheduler, step: str) -> str:
        """The fault that strikes this call, or nothing."""
        if not self.rates:
            return ""
        luck = scheduler.random.random()
        for fault, rate in self.rates.items():
            if luck < rate:
                if fault.startswith("crash"):
                    if not self.crashes_left:
                        return ""
                    self.crashes_left -= 1
                self.struck[fault, step] += 1
                scheduler.note(f"  {fault} at {step}")
                return fault
            luck -= rate
        return ""


class Objects:
    """The server: paths and what stands there. Each request is atomic."""

    def __init__(self, objects: dict[str, tuple[bytes, str, float]] | None = None) -> None:
        self.objects = dict(objects or {})
        self.writes = 0

    def put(self, path: str, body: bytes, now: float) -> Put:
        self.writes += 1
        tag = f"tag{self.writes}"
        self.objects[path] = (body, tag, now)
        return Put(Outcome.DONE, tag)

    def put_if_absent(self, path: str, body: bytes, now: float) -> Put:
        return Put(Outcome.LOST) if path in self.objects else self.put(path, body, now)

    def replace_if_match(self, path: str, body: bytes, tag: str, now: float) -> Put:
        found = self.objects.get(path)
        return self.put(path, body, now) if found and found[1] == tag else Put(Outcome.LOST)

    def delete(self, path: str) -> Put:
        self.objects.pop(path, None)
        return Put(Outcome.DONE)


def step_of(op: str, path: str) -> str:
    """What a call is for, so that coverage can be told: the folder says it."""
    for part, name in _STEPS.items():
        if part in path:
            return f"{op} {name}"
    return f"{op} {'data' if path.endswith('.parquet') else 'other'}"


_STEPS = {
    "/.lakelatch/log": "log",
    "/.lakelatch/sides": "side",
    "/timeline": "timeline",
    "/.heartbeat": "heartbeat",
    "/.temp": "marker",
}


class SimStore:
    """A `Store` of one process."""

    def __init__(self, objects: Objects, scheduler: Scheduler, process: SimProcess, faults: Faults) -> None:
        self.url = "s3://sim/table"
        self._objects, self._scheduler, self._process, self._faults = objects, scheduler, process, faults

    def uri(self, path: str) -> str:
        return f"{self.url}/{path}"

    # --- writing ----------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        return self._write("put_if_absent", path, lambda now: self._objects.put_if_absent(path, body, now))

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        return self._write("replace_if_match", path, lambda now: self._objects.replace_if_match(path, body, tag, now))

    def put(self, path: str, body: bytes, *, durable: Durable = False) -> Put:
        return self._write("put", path, lambda now: self._objects.put(path, body, now))

    def delete(self, path: str) -> Outcome:
        return self._write("delete", path, lambda _: self._objects.delete(path)).outcome

    @contextmanager
    def create(self, path: str) -> Iterator[_Upload]:
        yield _Upload(self, path)

    # --- reading ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Stored | None:
        def read() -> Stored | None:
            found = self._objects.objects.get(path)
            return Stored(found[0], found[1]) if found else None

        return self._read("get", path, read)

    def head(self, path: str) -> Entry | None:
        def look() -> Entry | None:
            found = self._objects.objects.get(path)
            return Entry(path, len(found[0]), found[2]) if found else None

        return self._read("head", path, look)

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        found = self.get(path)
        if found is None:
            raise StorageError(f"{path} is not there", path=path)
        yield io.BytesIO(found.body)

    def list(self, folder: str, *, after: str = "", recursive: bool = False) -> builtins.list[Entry]:
        prefix = f"{folder.rstrip('/')}/" if folder else ""

        def look() -> builtins.list[Entry]:
            return sorted(
                (
                    Entry(path, len(body), mtime)
                    for path, (body, _, mtime) in self._objects.objects.items()
                    if path.startswith(prefix)
                    and path[len(prefix) :] > after
                    and (recursive or "/" not in path[len(prefix) :])
                ),
                key=lambda entry: entry.path,
            )

        return self._read("list", prefix, look)

    def folders(self, folder: str, *, after: str = "") -> builtins.list[str]:
        prefix = f"{folder.rstrip('/')}/" if folder else ""

        def look() -> builtins.list[str]:
            rest = (path[len(prefix) :] for path in self._objects.objects if path.startswith(prefix))
            return sorted({part.partition("/")[0] for part in rest if "/" in part and part.partition("/")[0] > after})

        return self._read("folders", prefix, look)

    # --- the network ------------------------------------------------------------------------------------------

    def _latency(self, fault: str) -> float:
        if fault == "slow":
            return self._scheduler.random.uniform(1.0, self._faults.long_s)
        return self._scheduler.random.random() * 0.02

    def _read(self, op: str, path: str, act: Callable[[], T]) -> T:
        check_path(path, folder=True)
        step = step_of(op, path)
        fault = self._before(step)
        answer = act()
        self._after(fault, step)
        if fault in ("refuse", "lose reply"):
            raise StorageError(f"{path} could not be read: no answer (simulated)", path=path)
        return answer

    def _write(self, op: str, path: str, act: Callable[[float], Put]) -> Put:
        check_path(path)
        scheduler, step = self._scheduler, step_of(op, path)
        fault = self._before(step)
        if fault == "refuse":
            raise StorageError(f"{path} was not written: refused (simulated)", path=path)
        if fault in ("late", "twice"):
            scheduler.at(scheduler.random.uniform(0.0, 2 * self._faults.long_s), lambda: self._arrives(step, act))
        answer = Put(Outcome.UNKNOWN, cause="no answer (simulated)") if fault == "late" else act(scheduler.now)
        scheduler.note(f"{step} {path.rpartition('/')[2]} -> {answer.outcome.value}")
        self._after(fault, step)
        return Put(Outcome.UNKNOWN, cause="no answer (simulated)") if fault == "lose reply" else answer

    def _arrives(self, step: str, act: Callable[[float], Put]) -> None:
        answer = act(self._scheduler.now)
        self._scheduler.note(f"{step} arrives late -> {answer.outcome.value}")

    def _before(self, step: str) -> str:
        fault = self._faults.draw(self._scheduler, step)
        if fault == "crash before":
            self._scheduler.kill(self._process)
        elif fault == "stop":
            self._scheduler.stop(self._process, self._scheduler.random.uniform(1.0, self._faults.long_s))
        self._scheduler.pause(self._latency(fault))
        return fault

    def _after(self, fault: str, step: str) -> None:
        if fault == "crash after":
            self._scheduler.kill(self._process)
        self._scheduler.pause(self._latency(""))


class _Upload:
    def __init__(self, store: SimStore, path: str) -> None:
        self._store, self._path = store, path
        self.stream = io.BytesIO()

    def publish(self, *, durable: Durable = True) -> Put:
        body = self.stream.getvalue()
        store = self._store
        return store._write("publish", self._path, lambda now: store._objects.put_if_absent(self._path, body, now))
