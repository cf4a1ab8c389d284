"""One writer's attempt from begin to commit, and its retry."""

from .retry import Bounds, RunResult, run
from .several import SeveralTransaction, is_one_cut, refuse_together, run_several
from .transaction import Transaction, begin, lay_floor
from .written import Retries, WriteOptions, WriteResult, refuse_unknown
