"""Ask a coordinator, which begins and commits transactions for the writers that ask it: messages and the client."""

from .client import CoordinatorServer
from .messages import Answer, Coordinating, Question

__all__ = [
    "Answer",
    "Coordinating",
    "CoordinatorServer",
    "Question",
]
