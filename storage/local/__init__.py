"""The store on a local disk."""

from .files import next_step, open_file, other_kind, refuse_no_folder
from .store import LocalStore
from .turn import BUSY, OFD, byte_lock
