"""Merge a transaction's changes again onto the commits of others."""

from .rebase import ROUNDS_MAX, Again, Lost, Unit
from .replay_rows import (
    merge_rows,
    merge_unit,
    refuse_known,
    refuse_read_rows,
    refuse_same_rows,
    write_changes,
)
from .rounds import MergeAgain, Rebase
