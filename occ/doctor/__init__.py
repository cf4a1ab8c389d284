"""The diagnosis of a table: what is unsafe, what is slow, and the command that mends it."""

from .advice import Advice, advise
from .facts import Facts, OpenWork, gather, state_of
from .hudi_writers import judge_writer, options_in, rendered, writer_options
