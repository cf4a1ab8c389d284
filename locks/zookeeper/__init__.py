"""Locks in ZooKeeper, wire-compatible with Hudi's ZookeeperBasedLockProvider."""

from .backend import open_zookeeper_locks, zookeeper_locks_on
