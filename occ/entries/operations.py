"""The operations of transactions: their names, how each appears on the timeline, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import ConfigError
from ...hudi.timeline import State


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of write: how it appears on the timeline, and whether it reads nothing of the table (blind).

    ``announced``: states of its pending instant, as files without content. ``service``: it changes no row, and declares
    its dependencies itself.
    """

    action: str
    hudi_name: str
    blind: bool = False
    announced: tuple[State, ...] = ("requested", "inflight")
    service: bool = False


OPERATIONS = {
    "insert": Operation("commit", "INSERT", blind=True),
    "bulk_insert": Operation("commit", "BULK_INSERT", blind=True),
    "upsert": Operation("commit", "UPSERT"),
    "delete": Operation("commit", "DELETE"),
    "insert_overwrite": Operation("replacecommit", "INSERT_OVERWRITE"),
    "insert_overwrite_table": Operation("replacecommit", "INSERT_OVERWRITE_TABLE"),
    "delete_partition": Operation("replacecommit", "DELETE_PARTITION"),
}


def operation(name: str, *, merge_on_read: bool = False) -> Operation:
    """The operation of that name; `ConfigError` listing all for another name."""
    if name not in OPERATIONS:
        raise ConfigError(f"no operation {name!r}; known: {', '.join(OPERATIONS)}")
    found = OPERATIONS[name]
    return replace(found, action="deltacommit") if merge_on_read and found.action == "commit" else found
