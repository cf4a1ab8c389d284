"""The front door: create, adopt and open tables, and all operations on an open one."""

from .adopt import adopt
from .coordinators import LocalCoordinator
from .create import create
from .several import Cut, read_together, run, transaction
from .stream import TableStream
from .table import Table, open  # noqa: A004 - lakelatch.open is the name people expect
