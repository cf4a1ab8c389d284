"""Readers' leases: a sign of life that protects the files of one state of the table from cleaning.

    t=0  a reader puts ``.hoodie/.lakelatch/readers/<id>``: "from C0 on", C0 being the newest commit that it knows
    t=1  it reads the log to its head and lists the table: its view is that of C1, not older than C0
    t=2  the lease says "at C1", and beats like a writer's heartbeat

A cleaner reads the log, then lists the leases, then decides in the log (`services`). If it missed the lease at t=0, it
had read the log before, so C1 is not older than the newest commit that it knew; and no such view contains the files
that it removes. So no reader has to wait for a cleaner, nor a cleaner for a reader.

Readers without write access to the table's folder are protected by the retention of cleanings only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ...environment import Environment, Process
from ...errors import StorageError
from ...hudi.timeline import EARLIEST
from ...storage import Outcome, Store
from .heartbeat import HeartbeatObserver

READERS = ".hoodie/.lakelatch/readers"


def lease_path(reader: str) -> str:
    """The path of a reader's lease."""
    return f"{READERS}/{reader}"


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """The needs of one reader: the state at completion time ``at``, and unless ``exact`` all later ones too."""

    reader: str
    writer: str
    at: str
    exact: bool
    process: Process | None = None

    def moments(self, completions: Iterable[str]) -> set[str]:
        """The states to keep, of a table with these completion times."""
        return {self.at} if self.exact else {self.at, *(each for each in completions if each > self.at)}

    def to_bytes(self, beat: int) -> bytes:
        """The bytes of the lease; ``beat`` makes each differ from the one before."""
        process = self.process.to_json() if self.process else None
        return json.dumps(
            {"writer": self.writer, "at": self.at, "exact": self.exact, "process": process, "beat": beat}
        ).encode()

    @classmethod
    def from_bytes(cls, reader: str, body: bytes) -> ReaderLease:
        """Read a lease. One that cannot be read needs everything, until it is found silent."""
        try:
            raw = json.loads(body)
            if not (isinstance(raw["at"], str) and isinstance(raw["writer"], str)):
                raise TypeError(raw)
            return cls(reader, raw["writer"], raw["at"], bool(raw["exact"]), Process.from_json(raw["process"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls(reader, "unknown", EARLIEST, exact=False)


class ReaderLeases:
    """One observer of the leases of all readers of a table: by its own monotonic clock, as for writers' heartbeats."""

    def __init__(self, store: Store, env: Environment) -> None:
        self._store, self._env = store, env
        self._watch = HeartbeatObserver(store, env, lease_path)

    def alive(self, *, timeout_s: float) -> list[ReaderLease]:
        """The leases in force. Removes a lease whose process certainly ended, or that was silent for so long."""
        found = []
        for entry in self._store.list(READERS):
            stored = self._store.get(entry.path)
            if stored is None:
                continue
            lease = ReaderLease.from_bytes(entry.name, stored.body)
            ended = lease.process is not None and self._env.is_dead(lease.process)
            if ended or self._watch.silent_for(entry.name) >= timeout_s:
                self._store.delete(entry.path)
            else:
                found.append(lease)
        self._watch.keep_only({lease.reader for lease in found})
        return found

    def wait_s(self, leases: Iterable[ReaderLease], *, since: float, timeout_s: float) -> float:
        """Seconds until the last of these could be found dead; readers that have beaten ``since`` are not waited for."""
        return max(
            (
                timeout_s - self._watch.silent_for(lease.reader)
                for lease in leases
                if not self._watch.has_beaten(lease.reader, since=since)
            ),
            default=0.0,
        )


class LeaseOfAnotherProcess:
    """A lease kept by another process: files of its state stay as long as it exists."""

    why = ": the block that kept it, in another process, is over, or that process gave no sign of life"

    def __init__(self, store: Store, lease: ReaderLease) -> None:
        self._store, self.lease = store, lease

    @property
    def lost(self) -> bool:
        """True if the lease is gone."""
        return self._store.head(lease_path(self.lease.reader)) is None


class LeaseSender:
    """One lease of this process, and its beats."""

    why = ", because it gave no sign of life for the table's time-out"

    def __init__(self, store: Store, lease: ReaderLease) -> None:
        self._store, self.lease, self._beats = store, lease, 0
        put = store.put_if_absent(lease_path(lease.reader), lease.to_bytes(0), durable=False)
        if put.outcome is not Outcome.DONE:
            raise StorageError(f"{store.url}: a reader's lease could not be written: {put.cause or 'taken'}; try again")
        self._tag = put.tag
        self.lost = False

    def beat(self) -> None:
        """Beat once. Never put the lease back: once it is gone, a cleaner may have relied on that."""
        if self.lost:
            return
        assert self._tag is not None
        self._beats += 1
        path = lease_path(self.lease.reader)
        put = self._store.replace_if_match(path, self.lease.to_bytes(self._beats), self._tag)
        self._tag = put.tag
        if put.outcome is not Outcome.DONE:
            # Our own late write, or another process has ended the lease.
            stored = self._store.get(path)
            self._tag, self.lost = (stored.tag, False) if stored else (None, True)
