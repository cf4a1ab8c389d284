"""The diagnosis of a table: what is unsafe, what is slow, and the command that mends it."""

from .advice import Finding, Severity, advise
from .facts import Facts, OpenWork, gather, state_of

__all__ = ["Facts", "Finding", "OpenWork", "Severity", "advise", "gather", "state_of"]
