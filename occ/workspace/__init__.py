"""What one attempt has: its begin and heartbeat, and what it has staged and declared."""

from .attempt import Attempt
from .unique_constraints import constrained, refuse_unique
from .workspace import Workspace

__all__ = [
    "Attempt",
    "Workspace",
    "constrained",
    "refuse_unique",
]
