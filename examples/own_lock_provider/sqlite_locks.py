"""Locks in a SQLite database: ``sqlite:///var/lib/locks.db``, for processes of one host."""

import json
import sqlite3
from contextlib import closing

from lakelatch.errors import ConfigError, LockUnavailableError
from lakelatch.locks import (
    BREAKS_KEPT,
    Backend,
    BreakRecord,
    Contender,
    Grant,
    Holder,
    LeasedLocks,
    Release,
    parse_lock_url,
)


def open_sqlite_locks(url, *, env):
    """What the entry point names. Connects to nothing yet."""
    settings = parse_lock_url(url)  # knows lease, max_hold and key, and refuses what it does not know
    if settings.host or not settings.path.strip("/"):
        raise ConfigError(f"{url!r} names no database; write sqlite:///folder/locks.db", url=url)
    return LeasedLocks(SqliteBackend(settings.path, min(settings.lease_s / 3, 5.0), env), settings, env)


class SqliteBackend(Backend):
    """Holds a path, not a connection, so that it pickles and survives fork."""

    fair = False  # waiters look again and again; who looks first after a release has it
    durable_tokens = True
    lifts_tokens = True

    def __init__(self, path, patience_s, env):
        self.path, self.patience_s, self.env = path, patience_s, env

    def change(self, key, step):
        """Let ``step`` look at the record of a key and change it, alone with the database: all of it happens, or nothing.

        The record stays when the lock is free, because it has the token.
        """
        try:
            with closing(sqlite3.connect(self.path, timeout=self.patience_s, isolation_level=None)) as db:
                db.execute("begin immediate")
                db.execute("create table if not exists locks (key text primary key, record text)")
                found = db.execute("select record from locks where key = ?", (key,)).fetchone()
                record = json.loads(found[0]) if found else {"token": 0, "holder": None, "breaks": []}
                answer = step(record)
                db.execute("insert or replace into locks values (?, ?)", (key, json.dumps(record)))
                db.execute("commit")
                return answer
        except sqlite3.Error as e:
            raise LockUnavailableError(
                f"The lock database {self.path} cannot be used: {e}. Nothing is held; check its folder and permissions"
            ) from e

    def holder(self, record):
        """Who holds the key now. A lease ends by this host's monotonic clock, which begins again at each boot."""
        if record["holder"] is None or record["boot"] != self.env.process().boot:
            return None
        left_s = record["ends"] - self.env.monotonic()
        return Holder(**record["holder"] | {"until": self.env.now() + left_s}) if left_s > 0 else None

    def line_up(self, key):
        return SqliteContender(self.env)

    def try_grant(self, request, contender):
        """The next token, if nobody holds the key."""

        def step(record):
            if self.holder(record) is not None:
                return None
            record["token"] = token = max(record["token"], request.token_above) + 1
            record |= {"boot": request.process.boot, "ends": self.env.monotonic() + request.lease_s}
            record["holder"] = {
                "key": request.key, "owner": request.owner, "token": token, "since": self.env.now(), "reason": request.reason,
                "host": request.process.host, "pid": request.process.pid,
            }  # fmt: skip
            return SqliteGrant(self, request, token)

        return self.change(request.key, step)

    def inspect(self, key):
        return self.change(key, self.holder)

    def end(self, key, *, token, reason, who):
        """Free the key if that token holds it, and write down who did it."""

        def step(record):
            holder = self.holder(record)
            if holder is None or holder.token != token:
                return False
            record["holder"] = None
            record["breaks"] = [*record["breaks"], [key, token, reason, who, self.env.now()]][-BREAKS_KEPT:]
            return True

        return self.change(key, step)

    def breaks(self, key):
        return self.change(key, lambda record: tuple(BreakRecord(*each) for each in record["breaks"]))


class SqliteGrant(Grant):
    """One token. Every step touches the record only while it is still this token's."""

    def __init__(self, backend, request, token):
        self.token, self._backend, self._request = token, backend, request

    def _if_ours(self, step):
        def checked(record):
            holder = self._backend.holder(record)
            ours = holder is not None and holder.token == self.token
            if ours:
                step(record)
            return ours

        return self._backend.change(self._request.key, checked)

    def renew(self):
        ends = self._backend.env.monotonic() + self._request.lease_s
        return self._if_ours(lambda record: record.update(ends=ends))

    def check(self):
        return self._if_ours(lambda record: None)

    def release(self):
        return Release.RELEASED if self._if_ours(lambda record: record.update(holder=None)) else Release.WAS_LOST


class SqliteContender(Contender):
    """A waiter: it looks again after a pause that grows, with jitter, so that waiters do not come all at once."""

    def __init__(self, env):
        self._env, self._pause_s = env, 0.002

    def wait(self, limit_s):
        self._env.sleep(min(limit_s, self._pause_s * (0.5 + self._env.random())))
        self._pause_s = min(self._pause_s * 2, 0.05)
