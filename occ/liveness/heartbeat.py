"""Signs of life: how a writer shows that it lives, and how others judge without a shared clock.

A beat replaces the content of ``.hoodie/.heartbeat/<T>`` (JVM writers check the same file's modification time).
An observer remembers when, on its *own* monotonic clock, it first saw the present content; a writer is silent when
that was the time-out ago. Clocks of different hosts are never compared.

Silence alone ends nobody: only the rollback entry in the log does (rollback.py). The file is also the stop sign for
workers: once it is gone the transaction is over, and no data file of it may appear any more.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...environment import Environment, Process, Timer
from ...errors import StorageError
from ...storage import Outcome, Store
from ..entries import Begin

HEARTBEATS = ".hoodie/.heartbeat"
_log = logging.getLogger("lakelatch.heartbeat")


def heartbeat_path(instant: str) -> str:
    """The path of a transaction's heartbeat."""
    return f"{HEARTBEATS}/{instant}"


def beat_age_s(store: Store, env: Environment, instant: str) -> float | None:
    """Seconds since its last beat, by the store's clock and this host's; None if there is none.

    For people, and for saving work: clocks differ, so nobody is ended by it.
    """
    entry = store.head(heartbeat_path(instant))
    return max(env.now() - entry.mtime, 0.0) if entry else None


def lag_s(store: Store, instant: str, *, behind: str) -> float:
    """Seconds by which one transaction's last beat is older than another's, both dated by the store.

    Infinite without a heartbeat. Also works for an engine whose beats are modification times.
    """
    at = {each.name: each.mtime for each in store.list(HEARTBEATS)}
    return at.get(behind, 0.0) - at[instant] if instant in at else math.inf


@dataclass(frozen=True, slots=True)
class _Beat:
    """The time of a beat by the monotonic clock and by the wall clock, and the longest silence before it."""

    monotonic: float
    wall: float
    longest_s: float = 0.0

    def silence_s(self, now: _Beat) -> float:
        """The longest silence up to now; a clock that was set counts as silence."""
        return max(self.longest_s, now.monotonic - self.monotonic, abs(now.wall - self.wall))


class HeartbeatSender:
    """The beats of a handle's open transactions, on one thread that starts with the first of them.

    Args:
        interval_s: returns the pause between two beats; a change takes effect at the next beat, or when another begins.
        after: called after each round of beats, on the same thread: looks after other writers.
    """

    def __init__(
        self,
        store: Store,
        env: Environment,
        *,
        interval_s: Callable[[], float],
        after: Callable[[], object] | None = None,
    ) -> None:
        self._store, self._env, self._interval_s, self._after = store, env, interval_s, after
        self._every_s = 0.0  # the interval of the running timer
        self._tags: dict[str, str] = {}
        self._sent: dict[str, _Beat] = {}
        self._beats = 0
        self._mutex = threading.Lock()
        self._timer: Timer | None = None
        self._owner: Process | None = None

    def start(self, instant: str, *, shared: bool = False) -> None:
        """Write the first beat, then keep beating. Raises `StorageError` if the first cannot be written.

        ``shared``: others may beat for it as well, under their own names, so that it lives as long as one of them does.
        """
        # Taken before the put: others may see the beat at any moment from here on.
        sent = self.now()
        # Empty, like the JVM's; later beats have content, so that each differs from the one before.
        put = self._store.put_if_absent(heartbeat_path(instant), self._body(instant) if shared else b"", durable=False)
        tag = put.tag
        if tag is None:
            stored = self._store.get(heartbeat_path(instant))
            if stored is not None and shared:
                # The last process to beat there may have died, and others must not judge this transaction by it.
                put = self._store.replace_if_match(heartbeat_path(instant), self._body(instant), stored.tag)
                stored = stored if put.tag is None else replace(stored, tag=put.tag)
            if stored is None:
                raise StorageError(
                    f"the heartbeat of {instant} could not be written: {put.cause}; nothing was written, try again",
                    instant=instant,
                )
            tag = stored.tag
        with self._mutex:
            self._tags[instant] = tag
            if put.done and not shared:
                expected = self._sent.get(instant)
                self._sent[instant] = replace(sent, longest_s=expected.silence_s(sent)) if expected else sent
        self._keep_time(starts=True)

    def expect(self, instant: str, since: _Beat) -> None:
        """Count a transaction as beating from ``since`` on, when nobody knew of it yet: its first beat is on its way."""
        with self._mutex:
            self._sent[instant] = since

    def _keep_time(self, *, starts: bool = False) -> None:
        """Run the timer at the interval in force."""
        with self._mutex:
            me, every_s = self._env.process(), self._interval_s()
            forked = self._owner != me  # a child process inherits no thread
            if (self._timer is None and not starts) or (self._timer and not forked and self._every_s == every_s):
                return
            if self._timer is not None and not forked:
                self._timer.cancel()
            self._timer = self._env.every(every_s, self.beat, name="lakelatch-heartbeat")
            self._owner, self._every_s = me, every_s

    def beat(self) -> None:
        """Beat once for every transaction. A failed beat is tried again at the next."""
        with self._mutex:
            # Requests are made without the mutex, so that begin and end never wait for a slow store.
            open_now = list(self._tags.items())
        for instant, tag in open_now:
            try:
                sent = self.now()
                put = self._store.replace_if_match(heartbeat_path(instant), self._body(instant), tag)
                if put.outcome is not Outcome.DONE:
                    # Either our own late write, or another process has ended the transaction. Never create the file
                    # again: it is the stop sign. The log says which it is, at the writer's next read.
                    stored = self._store.get(heartbeat_path(instant))
                    self._remember(instant, stored.tag if stored else None)
                else:
                    self._remember(instant, put.tag, sent)
            except StorageError as e:
                _log.warning("heartbeat of %s failed, trying again in %g s: %s", instant, self._every_s, e)

        if self._after is not None:
            self._after()
        self._keep_time()

    @property
    def instants(self) -> set[str]:
        """The transactions of this handle that beat now."""
        with self._mutex:
            return set(self._tags)

    def longest_silence_s(self, instant: str) -> float:
        """The longest time, up to now, that others may have seen the same beat; infinite if unknown.

        By both clocks of this host, whichever gives more.
        """
        with self._mutex:
            last = self._sent.get(instant)
        return math.inf if last is None else last.silence_s(self.now())

    def now(self) -> _Beat:
        """Return the time by both clocks of this host."""
        return _Beat(self._env.monotonic(), self._env.now())

    def _remember(self, instant: str, tag: str | None, sent: _Beat | None = None) -> None:
        with self._mutex:
            if instant not in self._tags:
                return
            if (before := self._sent.pop(instant, None)) is not None and sent is not None:
                self._sent[instant] = replace(sent, longest_s=before.silence_s(self.now()))
            if tag is None:
                del self._tags[instant]
                _log.warning("the heartbeat of %s was removed: somebody has ended this transaction", instant)
            else:
                self._tags[instant] = tag

    def stop(self, instant: str) -> None:
        """Stop the beats of a transaction. The sweep of the transaction removes the file."""
        with self._mutex:
            self._tags.pop(instant, None)
            self._sent.pop(instant, None)

    def close(self) -> None:
        """Stop the thread; transactions that are still open will be found silent."""
        with self._mutex:
            timer, self._timer = self._timer, None
            self._tags.clear()
            self._sent.clear()
        if timer is not None:
            timer.cancel(join_s=5.0)

    def _body(self, instant: str) -> bytes:
        self._beats += 1
        me = self._env.process().to_json()
        return json.dumps(
            {"T": instant, "beat": self._beats, "interval_s": self._every_s or self._interval_s(), "process": me}
        ).encode()


class HeartbeatObserver:
    """One observer's memory of the beats of others, whose files are named by ``path``."""

    def __init__(self, store: Store, env: Environment, path: Callable[[str], str] = heartbeat_path) -> None:
        self._store, self._env, self._path = store, env, path
        self._seen: dict[str, tuple[str | None, float]] = {}
        self._beat_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}  # or first seen, if not checked yet

    def is_dead(self, begin: Begin, *, timeout_s: float, every_s: float = 0.0) -> bool:
        """Return whether the writer certainly ended, or was silent for ``timeout_s`` while this observer watched.

        ``every_s``: pause between two reads of its heartbeat, and before the first. A silent writer is then found that
        much later, and a transaction that is over by then has cost no request.
        """
        if begin.plan is None and begin.process is not None and self._env.is_dead(begin.process):
            return True
        if not self._is_due(begin.instant, every_s):
            return False
        process = None if begin.plan is None else self._executor(begin)
        if process is not None and self._env.is_dead(process):
            return True
        return self.silent_for(begin.instant) >= timeout_s

    def _is_due(self, instant: str, every_s: float) -> bool:
        now = self._env.monotonic()
        if not every_s or now - self._asked_at.setdefault(instant, now) >= every_s:
            self._asked_at[instant] = now
            return True
        return False

    def _executor(self, plan: Begin) -> Process | None:
        """The process that beat last for the plan; before the first beat its maker, if that executes it."""
        stored = self._store.get(self._path(plan.instant))
        if stored is None:
            return plan.process if plan.executes else None
        try:
            body = json.loads(stored.body)
            return Process.from_json(body["process"])
        except (ValueError, KeyError, TypeError, RecursionError):
            # Of another version, or not ours at all.
            return None

    def silent_for(self, instant: str) -> float:
        """Seconds since this observer last saw a change; 0 at the first read."""
        before = self._env.monotonic()
        stored = self._store.get(self._path(instant))
        tag = stored.tag if stored else None
        seen = self._seen.get(instant)
        if seen is None or seen[0] != tag:
            # Measured after the read, so that a slow read does not make the writer look silent.
            self._seen[instant] = (tag, self._env.monotonic())
            if seen is not None:
                self._beat_at[instant] = self._seen[instant][1]
            return 0.0
        return before - seen[1]

    def has_beaten(self, instant: str, *, since: float) -> bool:
        """Return whether this observer saw a beat after that time of its monotonic clock: then the writer lived."""
        return self._beat_at.get(instant, since) > since

    def keep_only(self, instants: set[str]) -> None:
        """Forget transactions that are over."""
        for instant in {*self._seen, *self._asked_at} - instants:
            self._seen.pop(instant, None)  # two threads of one handle may do this at once
            self._beat_at.pop(instant, None)
            self._asked_at.pop(instant, None)
