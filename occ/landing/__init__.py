"""Commit one attempt: validate it against every commit since its begin, append its entry, or yield."""

from .coordinator import Coordinator
from .landing import Landing, staged_entry
from .several import Participant, SeveralLanding
from .validator import CommitValidator
