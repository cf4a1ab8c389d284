"""Locks as files in a folder, wire-compatible with Hudi's FileSystemBasedLockProvider."""

from .backend import open_file_locks
