"""Locks in Redis, Sentinel or Cluster."""

from .backend import open_redis_locks

__all__ = ["open_redis_locks"]
