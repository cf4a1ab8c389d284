"""The diagnosis of a table: what is unsafe, what is slow, and the command that mends it."""

from .advice import Advice, Severity, advise
from .facts import Facts, OpenWork, gather, state_of
from .hudi_writers import judge_writer, options_in, rendered, writer_options

__all__ = [
    "Advice",
    "Facts",
    "OpenWork",
    "Severity",
    "advise",
    "gather",
    "judge_writer",
    "options_in",
    "rendered",
    "state_of",
    "writer_options",
]
