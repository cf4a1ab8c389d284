"""The verbs on rows inside a transaction: each stages files in the workspace and declares its reads."""

from . import reading, replacing, row_writes, stream_writes
from .documented import like, retried
from .merge_into import Asked, Clause, Clauses, Merge, merging, stage_merge
from .moves import moves_rows, take_away, without_moved
from .new_values import Computed, NewValues, sql
from .replacing import partitions_of, replace_with
from .row_writes import Write, replaced
from .stream_writes import TransactionStream, Verb
