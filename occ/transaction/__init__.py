"""One writer's attempt from begin to commit, and its retry."""

from .beginning import begin, lay_floor
from .retry import Bounds, RunResult, run
from .transaction import Transaction
from .written import Retries, WriteOptions, WriteResult, refuse_unknown

__all__ = [
    "Bounds",
    "Retries",
    "RunResult",
    "Transaction",
    "WriteOptions",
    "WriteResult",
    "begin",
    "lay_floor",
    "refuse_unknown",
    "run",
]
