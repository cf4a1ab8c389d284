"""Who may commit: pure functions over values. No I/O, no clock, no Spark."""

if __name__ != "lakelatch.conflict":
    raise ImportError(
        "import lakelatch.conflict, not the folder: a second copy of every class would not be equal to the first"
    )

from .resolve import Candidate, Conflict, resolve
from .schema import settle_schema
from .strategies import strategy_names
from .write_set import FileGroupId, ReadSet, WriteSet

__all__ = ["Candidate", "Conflict", "FileGroupId", "ReadSet", "WriteSet", "resolve", "settle_schema", "strategy_names"]
