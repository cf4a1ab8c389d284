"""The cheapest correct lock on a Redis server by raw commands, and the peers, for benchmarks.locks.floors_and_faults.

A list of waiters, one script to take the lock or line up, one to give it to the next, BLPOP to wait, a counter for the
token. No lease, nobody notices a death, nothing to read for others: a floor, not a lock to use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import redis

KEY = f"bench-floor-{os.getppid()}"  # the workers of one run share it; a run that was killed leaves a lock behind
_TAKE = """
if redis.call('exists', KEYS[1]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[1])
  return 0
end
redis.call('set', KEYS[1], ARGV[1])
return redis.call('incr', KEYS[3])
"""
_GIVE = """
local next = redis.call('lpop', KEYS[2])
if not next then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], next)
redis.call('rpush', KEYS[4] .. next, redis.call('incr', KEYS[3]))
return 1
"""
_KEYS = [KEY, f"{KEY}:queue", f"{KEY}:token", f"{KEY}:go:"]


class Floor:
    """``url`` is a lock URL of ours for one server; ``worker`` a number."""

    def __init__(self, url: str, worker: int) -> None:
        self._client = redis.Redis.from_url(
            url.partition("?")[0], protocol=2, socket_timeout=None
        )  # a turn may be long in coming
        self._me = str(worker)
        self._take = self._client.script_load(_TAKE)
        self._give = self._client.script_load(_GIVE)

    def cycle(self, hold: Callable[[], None]) -> float:
        """One turn; the seconds waited."""
        begin = time.perf_counter()
        if not self._client.evalsha(self._take, 4, *_KEYS, self._me):
            self._client.blpop([_KEYS[3] + self._me])
        waited_s = time.perf_counter() - begin
        hold()
        self._client.evalsha(self._give, 4, *_KEYS, self._me)
        return waited_s

    def close(self) -> None:
        self._client.close()


class RedisPyLock:
    """redis-py's own; it polls ten times a second unless told otherwise."""

    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002 (every worker is the same)
        self._client = redis.Redis.from_url(url.partition("?")[0])
        self._lock = self._client.lock("bench-redis-py", timeout=30)

    def cycle(self, hold: Callable[[], None]) -> float:
        begin = time.perf_counter()
        self._lock.acquire()
        waited_s = time.perf_counter() - begin
        hold()
        self._lock.release()
        return waited_s

    def close(self) -> None:
        self._client.close()


class PythonRedisLock:
    """python-redis-lock, without its renewal (a thread for every turn)."""

    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002
        import redis_lock

        self._client = redis.StrictRedis.from_url(url.partition("?")[0])
        self._new = lambda: redis_lock.Lock(self._client, "bench-python-redis-lock", expire=30)

    def cycle(self, hold: Callable[[], None]) -> float:
        begin = time.perf_counter()
        lock = self._new()
        lock.acquire()
        waited_s = time.perf_counter() - begin
        hold()
        lock.release()
        return waited_s

    def close(self) -> None:
        self._client.close()


PEERS = {"redis-py": RedisPyLock, "python-redis-lock": PythonRedisLock}
