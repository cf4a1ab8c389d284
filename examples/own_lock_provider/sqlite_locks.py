"""Locks in a SQLite database: ``sqlite:///var/lib/locks.db``, for processes of one host.

One row for each key, changed only within a transaction that holds the database's write lock, so a grant is atomic. The
row stays when the lock is free: it keeps the token. A lease ends at ``until``, in seconds of this host's monotonic
clock, which all processes since one boot share.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator

from lakelatch.environment import Environment
from lakelatch.errors import ConfigError, LockUnavailableError
from lakelatch.locks import BreakRecord, Holder, Release
from lakelatch.locks.core.lease import Grant
from lakelatch.locks.core.provider import Contender, LeasedLocks, LockRequest
from lakelatch.locks.lock_url import parse_lock_url

_BREAKS_KEPT = 20
_PAUSE_S_MAX = 0.05
_TABLES = (
    "create table if not exists locks (key text primary key, token integer, boot text, until real, holder text)",
    "create table if not exists breaks (key text, token integer, reason text, who text, at real)",
)


def open_sqlite_locks(url: str, *, env: Environment) -> LeasedLocks:
    """What the entry point names. Connects to nothing yet."""
    settings = parse_lock_url(url)  # knows lease, max_hold and key, and refuses what it does not know
    if settings.host or not settings.path.strip("/"):
        raise ConfigError(f"{url!r} names no database; write sqlite:///folder/locks.db.", url=url)
    return LeasedLocks(SqliteBackend(settings.path, min(settings.lease_s / 3, 5.0), env), settings, env)


class SqliteBackend:
    """Holds a path, not a connection, so that it pickles and survives fork."""

    fair = False  # waiters look again and again; who looks first after a release has it
    durable_tokens = True
    lifts_tokens = True
    max_leases = None
    requests = 0  # a file is asked, no server

    def __init__(self, path: str, patience_s: float, env: Environment) -> None:
        self._path = path
        self._patience_s = patience_s
        self.env = env

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Alone with the database; all of the block happens, or nothing."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=self._patience_s, isolation_level=None)) as db:
                db.execute("begin immediate")
                for table in _TABLES:
                    db.execute(table)
                yield db
                db.execute("commit")
        except sqlite3.Error as e:
            raise LockUnavailableError(
                f"The lock database {self._path} cannot be used: {e}. Nothing is held; check its folder and permissions."
            ) from e

    def row(self, db: sqlite3.Connection, key: str) -> tuple[int, Holder | None]:
        """The last token, and the holder if its lease has not ended."""
        found = db.execute("select token, boot, until, holder from locks where key = ?", (key,)).fetchone()
        if found is None:
            return 0, None
        token, boot, until, holder = found
        left_s = until - self.env.monotonic()
        if holder is None or boot != self.env.process().boot or left_s <= 0:
            return token, None
        return token, Holder(**json.loads(holder), until=self.env.now() + left_s)

    def line_up(self, key: str) -> Contender:  # noqa: ARG002 - waiters are the same for every key
        """Waiters are not written down."""
        return SqlitePlace(self.env)

    def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:  # noqa: ARG002 - and say nothing about a try
        """The next token, if nobody holds the key."""
        with self.transaction() as db:
            last, holder = self.row(db, ask.key)
            if holder is not None:
                return None
            token = max(last, ask.token_above) + 1
            me = {
                "key": ask.key, "owner": ask.owner, "token": token, "since": self.env.now(), "reason": ask.reason,
                "host": ask.process.host, "pid": ask.process.pid,
            }  # fmt: skip
            db.execute(
                "insert or replace into locks values (?, ?, ?, ?, ?)",
                (ask.key, token, ask.process.boot, self.env.monotonic() + ask.lease_s, json.dumps(me)),
            )
        return SqliteGrant(self, ask, token)

    def inspect(self, key: str) -> Holder | None:
        """Who holds the key now."""
        with self.transaction() as db:
            return self.row(db, key)[1]

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Free the key if that token holds it, and write down who did it."""
        with self.transaction() as db:
            holder = self.row(db, key)[1]
            if holder is None or holder.token != token:
                return False
            db.execute("update locks set holder = null where key = ?", (key,))
            db.execute("insert into breaks values (?, ?, ?, ?, ?)", (key, token, reason, who, self.env.now()))
            return True

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """The last of them, oldest first."""
        with self.transaction() as db:
            found = db.execute("select * from breaks where key = ? order by at", (key,)).fetchall()
        return tuple(BreakRecord(*each) for each in found[-_BREAKS_KEPT:])

    def close(self) -> None:
        """Nothing is open between two requests."""


class SqliteGrant:
    """One token. Every statement touches the row only while it is still this token's."""

    def __init__(self, backend: SqliteBackend, ask: LockRequest, token: int) -> None:
        self.token = token
        self._backend = backend
        self._ask = ask

    def renew(self) -> bool:
        """Move the end, unless the lease has ended already."""
        with self._backend.transaction() as db:
            if not self._ours(db):
                return False
            until = self._backend.env.monotonic() + self._ask.lease_s
            db.execute("update locks set until = ? where key = ?", (until, self._ask.key))
            return True

    def check(self) -> bool:
        """Whether the row still names this grant."""
        with self._backend.transaction() as db:
            return self._ours(db)

    def release(self) -> Release:
        """Free the key, if it is ours to free."""
        with self._backend.transaction() as db:
            if not self._ours(db):
                return Release.WAS_LOST
            db.execute("update locks set holder = null where key = ?", (self._ask.key,))
            return Release.RELEASED

    def listen(self, call: Callable[[str], None]) -> None:
        """A database brings no news: the holder learns of a break at its next renewal."""

    def _ours(self, db: sqlite3.Connection) -> bool:
        holder = self._backend.row(db, self._ask.key)[1]
        return holder is not None and holder.token == self.token


class SqlitePlace:
    """Looks again after a pause that grows, with jitter, so that waiters do not come all at once."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._pause_s = 0.002

    def wait(self, limit_s: float) -> None:
        """Sleep until another try is worth its cost."""
        self._env.sleep(min(limit_s, self._pause_s * (0.5 + self._env.random())))
        self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)

    def leave(self) -> None:
        """Nothing was written."""
