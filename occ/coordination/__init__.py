"""Ask a coordinator, which begins and commits transactions for the writers that ask it: messages and the client."""

from .client import CoordinatorServer
from .messages import ALONE_S, Answer, Coordinating, Question
