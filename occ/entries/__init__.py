"""The words of the commit log: what begin, commit, end and setting say, as values and as bytes."""

from .batches import SOURCES_MAX, Batch, Batches, Landed
from .column_statistics import columns_of, encoded, of_footer, slices_that_may_match
from .echo import echo, echo_body, echo_of
from .entries import Begin, Close, Commit, End, LogEntry, Open, Setting, decode, encode
from .entry_rules import content_of
from .losses import Changed, Loss
from .operations import SERVICES, Operation, operation
from .service_content import (
    Content,
    by_partition,
    extent,
    groups_of,
    held,
    hold,
    instant_body,
    paths_of,
    plan_body,
    undone_by,
)
from .settings import ASYNC, NO_LOCK, OFF, OWN_LOCK, TRANSACTIONAL, Settings
from .side_objects import INLINE_BYTES, SIDES, hash_of, put_aside, read_aside
from .value_hashes import (
    FileFacts,
    Hashed,
    constraint_values,
    hashed_keys,
    joined,
    keys_in,
    name_of,
    refuse_type,
    to_entry,
    together,
    without,
)
from .write_sets import write_set_of

__all__ = [
    "ASYNC",
    "INLINE_BYTES",
    "NO_LOCK",
    "OFF",
    "OWN_LOCK",
    "SERVICES",
    "SIDES",
    "SOURCES_MAX",
    "TRANSACTIONAL",
    "Batch",
    "Batches",
    "Begin",
    "Changed",
    "Close",
    "Commit",
    "Content",
    "End",
    "FileFacts",
    "Hashed",
    "Landed",
    "LogEntry",
    "Loss",
    "Open",
    "Operation",
    "Setting",
    "Settings",
    "by_partition",
    "columns_of",
    "constraint_values",
    "content_of",
    "decode",
    "echo",
    "echo_body",
    "echo_of",
    "encode",
    "encoded",
    "extent",
    "groups_of",
    "hash_of",
    "hashed_keys",
    "held",
    "hold",
    "instant_body",
    "joined",
    "keys_in",
    "name_of",
    "of_footer",
    "operation",
    "paths_of",
    "plan_body",
    "put_aside",
    "read_aside",
    "refuse_type",
    "slices_that_may_match",
    "to_entry",
    "together",
    "undone_by",
    "without",
    "write_set_of",
]
