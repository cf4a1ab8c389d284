"""One writer's attempt from begin to commit, and its retry."""

from .beginning import begin, lay_floor
from .retry import Bounds, RunResult, run
from .several import SeveralTransaction, is_one_cut, refuse_together, run_several
from .transaction import Transaction
from .written import Retries, WriteOptions, WriteResult, refuse_unknown

__all__ = [
    "Bounds",
    "Retries",
    "RunResult",
    "SeveralTransaction",
    "Transaction",
    "WriteOptions",
    "WriteResult",
    "begin",
    "is_one_cut",
    "lay_floor",
    "refuse_together",
    "refuse_unknown",
    "run",
    "run_several",
]
