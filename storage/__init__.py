"""Atomic object operations on local disk, S3, GCS and Azure: the only part that reads and writes a table's bytes."""

if __name__ != "lakelatch.storage":
    raise ImportError(
        "import lakelatch.storage, not the folder: a second copy of every class would not be equal to the first"
    )

from .interface import PROBES, Durable, Entry, NewObject, Outcome, Put, Store, Stored, put_secured, secured
from .location import is_far, may_hold_secret, same_place
from .opening import open_beside, open_store, read_input

__all__ = [
    "PROBES",
    "Durable",
    "Entry",
    "NewObject",
    "Outcome",
    "Put",
    "Store",
    "Stored",
    "is_far",
    "may_hold_secret",
    "open_beside",
    "open_store",
    "put_secured",
    "read_input",
    "same_place",
    "secured",
]
