"""The store on a local disk."""

from .byte_locks import BUSY, OFD, byte_lock
from .files import next_step, open_file, other_kind, refuse_no_folder
from .store import LocalStore

__all__ = ["BUSY", "OFD", "LocalStore", "byte_lock", "next_step", "open_file", "other_kind", "refuse_no_folder"]
