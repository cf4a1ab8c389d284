"""The store on a local disk."""

from .files import next_step, open_file, other_kind, refuse_no_folder
from .store import LocalStore
from .turn import BUSY, OFD, byte_lock

__all__ = ["BUSY", "OFD", "LocalStore", "byte_lock", "next_step", "open_file", "other_kind", "refuse_no_folder"]
