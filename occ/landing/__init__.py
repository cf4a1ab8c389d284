"""The commit of one attempt: validation against all that landed since, the moment that counts, or giving way."""

from .landing import Landing, staged_entry
from .validator import CommitValidator

__all__ = [
    "CommitValidator",
    "Landing",
    "staged_entry",
]
