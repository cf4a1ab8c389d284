"""Commit one attempt: validate it against every commit since its begin, append its entry, or yield."""

from .landing import Landing, staged_entry
from .validator import CommitValidator

__all__ = [
    "CommitValidator",
    "Landing",
    "staged_entry",
]
