"""The parts of one attempt: its begin and heartbeat, and its staged and declared changes."""

from .attempt import Attempt
from .begin_entry import begun_together, takes
from .unique_constraints import constrained, refuse_check, refuse_unique, with_table_keys
from .workspace import Workspace

__all__ = [
    "Attempt",
    "Workspace",
    "begun_together",
    "constrained",
    "refuse_check",
    "refuse_unique",
    "takes",
    "with_table_keys",
]
