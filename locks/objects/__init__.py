"""Locks as objects in S3, GCS or Azure, wire-compatible with Hudi's StorageBasedLockProvider."""

from .backend import open_object_locks
