"""Locks in an object store: ``s3://bucket/prefix``, ``gs://``, ``az://``, by conditional writes alone.

A key is one small object, the lock file of Hudi's storage-based provider, and every step is a replacement of the very
version that was read (create if absent, If-Match; GCS: the generation), so exactly one contender wins.

    t=0     A reads the object: expired. A writes "A, valid until 30, token 7" over that version: A holds the key
    t=10    A writes "valid until 40" over its own version
    t=12    B reads: held until 40. B polls, at most every lease/10
    t=15    A writes "expired" over its own version; never a delete, because some stores ignore the condition of one
    or      A is killed; at t=40.5 B may write (Hudi's rule: 0.5 s for clocks that differ)
    or      A's write got no answer: A reads, and the owner in the object says whether it was carried out

Tokens are in the object too, so that the write which grants also counts. They come from a block that was
reserved before, by compare-and-set, in a separate object: after a JVM's write, which drops our fields, or when
``above`` asks for it, a new block begins. So no token is given twice.

``validUntil`` is wall clock because the JVM's is. Differences to the server's clock are measured and corrected, and
large ones refused (server_clock.py). Waiting is in pacing.py, the objects' content in record.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from ...environment import Environment, Process
from ...errors import ConfigError, InputError, LockUnavailableError, StorageError, UnsafeStoreError
from ...storage import Outcome, Put, Store, open_store
from ...storage.probe import probe
from ..core import Backend, Capacity, Contender, Grant, LeasedLocks, LockRequest
from ..interface import BreakRecord, Holder, Release
from ..lock_url import LEASE_S, LockUrl, parse_duration, parse_lock_url
from .pacing import Found, Pace, Rhythm
from .record import LockObject, Names, TokenObject, broken_of, ms, to_json
from .server_clock import ServerClock, Stamp

_log = logging.getLogger("lakelatch.locks")

DRIFT_S = 0.5  # Hudi's allowance between two wall clocks
TOKEN_BLOCK = 1000
TRIES = 5
OBJECT_BYTES_MAX = 1 << 20  # a lock object has a few hundred bytes; a larger one is not of a lock
MAX_SKEW_S = 5.0
_REQUEST_S_MAX = 5.0
_WRITE_S = 0.025  # until it has been measured
_KEYS_MAX = 1000
_STORE_OPTIONS = ("account_name", "allow_http", "endpoint", "region")
_VERDICT = "store.json"


def open_object_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Return the provider for a bucket URL; no request is sent yet."""
    settings = parse_lock_url(url, options=(*_STORE_OPTIONS, "layout", "max_skew"), lease_s=lease_s)
    options = dict(settings.options)
    layout = options.pop("layout", "")
    if layout not in ("", "hudi"):
        raise ConfigError(f"layout={layout!r} is unknown in a lock URL; leave it out or write layout=hudi", url=url)
    max_skew_s = parse_duration(options.pop("max_skew", f"{MAX_SKEW_S:g}s"), what="max_skew")
    request_s = min(settings.lease_s / 3, _REQUEST_S_MAX)
    timeout = f"{max(1, int(request_s * 1000))}ms"
    place = f"{settings.scheme}://{settings.host}{quote(settings.path)}"
    store = open_store(place, timeout=timeout, connect_timeout=timeout, retry_s=request_s, **options)
    if layout and not settings.key:
        # One table, one lock, whatever it is called by callers.
        settings = replace(settings, key="table")
    where = f"{store.url} at {options['endpoint']}" if "endpoint" in options else store.url
    return LeasedLocks(ObjectBackend(store, where, settings, max_skew_s, env), settings, env)


class ObjectBackend(Backend):
    """Conditional writes on any `Store`; ``race`` proves once per place that they are atomic."""

    fair = False  # nearly: see pacing.py
    durable_tokens = True
    lifts_tokens = True

    def __init__(
        self, store: Store, where: str, url: LockUrl, max_skew_s: float, env: Environment,
        race: Callable[[Store], object] = probe,
    ) -> None:  # fmt: skip
        self.requests = 0
        self.clock = ServerClock(env, max_skew_s, where)
        self._capacity = Capacity(url.lease_s, _WRITE_S)
        self._store = store
        self.where = where
        self._layout = url.options.get("layout", "")
        self._lease_s = url.lease_s
        self._env = env
        self._race = race
        self._proven = False
        self._me: tuple[Process, str] | None = None
        self._rhythms: dict[str, Rhythm] = {}
        self._written: dict[str, tuple[str | None, Stamp, float]] = {}  # own last write: its tag, and when it was made

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing that this process has seen: times of its clock mean nothing on another machine."""
        return {**self.__dict__, "_rhythms": {}, "_written": {}}

    @property
    def max_leases(self) -> int:  # type: ignore[override] # only read
        """The measured capacity for leases as long as the URL's."""
        return self._capacity.leases

    def line_up(self, key: str) -> Contender:
        """Return a contender. Sends nothing, except the first time in a process."""
        with self.told():
            self._prove()
        process = self._env.process()
        if self._me is None or self._me[0] != process:
            self._me = process, sha256(self._env.uuid().encode()).hexdigest()[:8]
        if len(self._rhythms) > _KEYS_MAX:
            self._rhythms.clear()  # they only save time
        rhythm = self._rhythms.setdefault(key, Rhythm(self._env))
        pace = Pace(self._env, self._me[1], rhythm, self._lease_s / 10)
        return ObjectContender(self, Names.of(key, self._layout), self._env.uuid(), pace, rhythm)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Read the object; if it is free and our turn, replace what was read."""
        assert isinstance(contender, ObjectContender)
        names, pace, rhythm = contender.names, contender.pace, contender.rhythm
        with self.told():
            # The version that we left at our last release. If nobody has taken the lock since, one write takes it
            # again without a read.
            known = rhythm.recall()
            if known is not None:
                grant = self._replace(request, contender, known, turn=False)
                if grant is not None:
                    return grant
            elif request.waits and pace.holds_back():
                return None
            before = self._env.monotonic()
            found = self.look(names)
            rhythm.looked(self._env.monotonic() - before, found)
            if (
                found is not None and found.lock.owner != contender.owner
            ):  # else it is our own write whose answer was lost
                left_s = found.lock.valid_until_ms / 1000 + DRIFT_S - self.now()
                if not found.lock.expired and left_s >= 0:
                    pace.saw_held(found.lock, left_s)
                    return None
                if request.waits and not pace.saw_free(found.lock, found.tag):
                    return None
            return self._replace(request, contender, found, turn=True)

    def _replace(
        self, request: LockRequest, contender: ObjectContender, found: Found | None, *, turn: bool
    ) -> Grant | None:
        """Take the lock if the object is still ``found``."""
        numbers = self._next_token(contender.names, found, request.token_above)
        if numbers is None:
            return None
        # By the server's clock: the object says until when it is held, and the clocks of two hosts differ.
        now, seen = self.now(), found.lock if found else None
        ours: dict[str, Any] = {
            "token": numbers[0], "limit": numbers[1], "who": request.owner, "host": request.process.host,
            "pid": request.process.pid, "since": round(now, 3), "reason": request.reason, "key": request.key,
            "turn": (seen.turn if seen else 0) + turn,
            "line": contender.pace.line_with_me(seen, waits=request.waits) if turn or seen is None else seen.line,
        }  # fmt: skip
        if found is not None and "broken" in found.lock.ours:
            # A breaker may have died before its second write, so each grant carries the last record along.
            ours["broken"] = found.lock.ours["broken"]
        mine = LockObject(ms(now + request.lease_s), False, contender.owner, ours)
        tag = found.tag if found else None
        put = self.write(contender.names.lock, mine.encode(), tag)
        if put.done and put.tag is not None:
            contender.rhythm.took(turn=turn)
            return ObjectGrant(self, contender, request.lease_s, Found(mine, put.tag))
        if put.outcome is Outcome.UNKNOWN:
            contender.unsure = (tag,)
        if contender.unsure is not None:
            # A write whose answer was lost may have been carried out. Our name in the object is new for each request,
            # so it tells.
            again = self.look(contender.names)
            if again is not None and again.lock == mine:
                return ObjectGrant(self, contender, request.lease_s, again)
        return None

    def inspect(self, key: str) -> Holder | None:
        """Return the holder, by one request."""
        with self.told():
            found = self.look(Names.of(key, self._layout))
            return found.lock.holder(key) if found is not None and self._holds(found.lock) else None

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Mark the object as expired and put the record into it by the same write; then keep the record elsewhere too."""
        names = Names.of(key, self._layout)
        with self.told():
            record = BreakRecord(key, token, reason, who, self.now())
            for _ in range(TRIES):
                found = self.look(names)
                if found is None or found.lock.token != token or not self._holds(found.lock):
                    return False
                # The record goes in by the write that ends the lease: a breaker that dies in between must not leave a
                # break without a record.
                broken = replace(found.lock, expired=True, ours={**found.lock.ours, "broken": to_json(record)})
                put = self.write(names.lock, broken.encode(), found.tag)
                if not put.done and put.outcome is Outcome.UNKNOWN:
                    again = self.look(names)
                    if again is None or again.lock != broken:
                        continue
                elif not put.done:
                    continue  # renewed in this moment, or released
                self._keep(names, [*broken_of(key, found.lock), record])
                return True
        raise LockUnavailableError(
            f"Lock {key!r} at {self.where} changes all the time; it was not broken. Try again", key=key
        )

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the break records, by two requests."""
        names = Names.of(key, self._layout)
        with self.told():
            tokens, found = self._tokens(names)[0], self.look(names)
        return tokens.with_breaks(*(broken_of(key, found.lock) if found else ())).breaks

    def now(self) -> float:
        """Return the server's time.

        Two requests measure it again when this machine's clock was set or the machine slept.
        """
        if self.clock.moved:
            self._measure()
        return self.clock.now()

    # Requests: each of these is one, and is counted -----------------------------------------------------------------

    def look(self, names: Names) -> Found | None:
        """Return the current lock object, or None."""
        self.requests += 1
        stored = self._store.get(names.lock, bytes_max=OBJECT_BYTES_MAX)
        if stored is None:
            return None
        written = self._written.get(names.lock)
        # An object that we wrote ourselves dates the server's clock against ours, without a request for it.
        if written is not None and written[0] == stored.tag:
            self.clock.saw(stored.mtime, *written[1:])
            del self._written[names.lock]
        return Found(LockObject.decode(stored.body, self._store.uri(names.lock)), stored.tag)

    def write(self, path: str, body: bytes, tag: str | None) -> Put:
        """Replace the version ``tag``, or create the object."""
        if len(body) > OBJECT_BYTES_MAX:
            raise InputError(
                f"A lock object of {len(body):,} bytes is too large; give a shorter reason. Nothing is held", path=path
            )
        self.requests += 1
        sent = self.clock.stamp()
        put = self._store.put_if_absent(path, body) if tag is None else self._store.replace_if_match(path, body, tag)
        after = self._env.monotonic()
        self._capacity.took(after - sent.at)
        if put.done:
            if len(self._written) > _KEYS_MAX:
                self._written.clear()
            self._written[path] = put.tag, sent, after
        return put

    def _tokens(self, names: Names) -> tuple[TokenObject, str | None]:
        self.requests += 1
        stored = self._store.get(names.tokens, bytes_max=OBJECT_BYTES_MAX)
        if stored is None:
            return TokenObject(), None
        return TokenObject.decode(stored.body, names.key, self._store.uri(names.tokens)), stored.tag

    # Inside -----------------------------------------------------------------------------------------------------------

    def _prove(self) -> None:
        """Race for the place once per place; compare the clocks once per process and ten minutes."""
        if not self._proven:
            self.requests += 1
            path, verdict = self._verdict
            known = self._store.get(path, bytes_max=OBJECT_BYTES_MAX)
            if known is None or known.body != verdict:
                self._race(self._store)
            self._proven = True
        # Again and again, because clocks drift: a lease is trusted only as far as the two clocks agree.
        if self.clock.due:
            self._measure()
        self.clock.check()

    @property
    def _verdict(self) -> tuple[str, bytes]:
        path = f".hoodie/.lakelatch/locks/{_VERDICT}" if self._layout else _VERDICT
        return path, json.dumps({"v": 1, "atomic": True, "place": self.where}).encode()

    def _measure(self) -> None:
        self.requests += 2
        path, verdict = self._verdict
        sent = self.clock.stamp()
        self._store.put(path, verdict)
        found = self._store.get(path, bytes_max=OBJECT_BYTES_MAX)
        self.clock.saw(found.mtime if found else None, sent, self._env.monotonic())

    def _next_token(self, names: Names, found: Found | None, token_above: int) -> tuple[int, int] | None:
        """Return the token to grant and the end of its block; None while another contender reserves a block."""
        ours = found.lock.ours if found else {}
        last = max(int(ours.get("token", 0)), token_above)
        if "token" in ours and last < int(ours["limit"]):
            return last + 1, int(ours["limit"])
        tokens, tag = self._tokens(names)
        last = max(last, tokens.limit)
        limit = last + TOKEN_BLOCK
        # Reserved before its first token is granted: a crash between the two skips numbers and never repeats one.
        put = self.write(names.tokens, replace(tokens, limit=limit).encode(), tag)
        return (last + 1, limit) if put.done else None

    def _keep(self, names: Names, records: list[BreakRecord]) -> None:
        for _ in range(TRIES):
            tokens, tag = self._tokens(names)
            if self.write(names.tokens, tokens.with_breaks(*records).encode(), tag).done:
                return
        _log.warning("lock %r: the record of a break stays in the lock object only: %s", names.key, records[-1])

    def _holds(self, lock: LockObject) -> bool:
        return not lock.expired and self.now() <= lock.valid_until_ms / 1000 + DRIFT_S

    def withdraw(self, contender: ObjectContender) -> None:
        """Make sure that no unanswered write of ``contender`` can give it the lock from now on."""
        names = contender.names
        for _ in range(TRIES):
            found = self.look(names)
            if found is None:
                body, tag = LockObject(0, True, contender.owner), None
            elif found.lock.owner == contender.owner and not found.lock.expired:
                body, tag = replace(found.lock, expired=True), found.tag  # it was carried out
            elif (found.tag,) == contender.unsure:
                # It may still be carried out on this version, so this version has to go.
                body, tag = replace(found.lock, ours={**found.lock.ours, "touched": self._env.uuid()}), found.tag
            else:
                return
            if self.write(names.lock, body.encode(), tag).done:
                return

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        except UnsafeStoreError:
            raise
        except StorageError as e:
            raise LockUnavailableError(
                f"The locks at {self.where} cannot be used now: {e}. Nothing is held; it is safe to try again",
                where=self.where,
            ) from e


class ObjectContender(Contender):
    """One wait for one key; ``unsure`` holds the version on which an unanswered write may still be carried out."""

    def __init__(self, backend: ObjectBackend, names: Names, owner: str, pace: Pace, rhythm: Rhythm) -> None:
        self.names = names
        self.owner = owner
        self.pace = pace
        self.rhythm = rhythm
        self.unsure: tuple[str | None] | None = None
        self._backend = backend

    def wait(self, limit_s: float) -> None:
        self.pace.wait(limit_s)

    def leave(self) -> None:
        if self.unsure is not None:
            self._backend.withdraw(self)


class ObjectGrant(Grant):
    """A grant: the version of the object that we wrote last."""

    def __init__(self, backend: ObjectBackend, contender: ObjectContender, lease_s: float, found: Found) -> None:
        self.token = found.lock.token
        self._backend = backend
        self._names = contender.names
        self._rhythm = contender.rhythm
        self._lease_s = lease_s
        self._found = found

    def renew(self) -> bool:
        return self._replace(lambda lock: replace(lock, valid_until_ms=ms(self._backend.now() + self._lease_s)))

    def check(self) -> bool:
        with self._backend.told():
            found = self._backend.look(self._names)
        return found is not None and found.lock.owner == self._found.lock.owner and not found.lock.expired

    def release(self) -> Release:
        ours = self._replace(lambda lock: replace(lock, expired=True))
        if ours:
            self._rhythm.left(self._found)
        return Release.RELEASED if ours else Release.WAS_LOST

    def _replace(self, change: Callable[[LockObject], LockObject]) -> bool:
        """Replace our own version.

        Without a clear answer the owner in the object says what happened.
        """
        backend, owner = self._backend, self._found.lock.owner
        with backend.told():
            for _ in range(TRIES):
                new = change(self._found.lock)
                put = backend.write(self._names.lock, new.encode(), self._found.tag)
                if put.done and put.tag is not None:
                    self._found = Found(new, put.tag)
                    return True
                found = backend.look(self._names)
                if found is None:
                    return False
                if found.lock == new:
                    self._found = found
                    return True
                if found.lock.owner != owner:
                    # Taken by another after our release was carried out, unless a break came before it.
                    broken = [record.token for record in broken_of(self._names.key, found.lock)]
                    return put.outcome is Outcome.UNKNOWN and new.expired and self.token not in broken
                if found.lock.expired:
                    return False
                self._found = found  # an earlier write of ours was carried out late
        raise LockUnavailableError(
            f"The store at {backend.where} gave no clear answer {TRIES} times about lock {self._names.key!r} (token "
            f"{self.token}). It ends at the latest when its lease does",
            key=self._names.key,
            token=self.token,
        )
