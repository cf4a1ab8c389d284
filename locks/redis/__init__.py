"""Locks in Redis, Sentinel or Cluster."""

from .backend import open_redis_locks, redis_locks_on
