"""The commit log, the history of transactions: its entries, its state, and the publication of its commits on the timeline."""

from .column_statistics import columns_of, encoded, of_footer, slices_that_may_match
from .commit_log import EPOCH_SLOTS, CommitLog, Follower
from .echo import echo, echo_of
from .entries import Begin, Close, Commit, End, LogEntry, Open, Setting, decode, encode
from .epochs import (
    LOG,
    chain,
    commits_since,
    epochs,
    first_slot,
    is_epoch,
    is_slot,
    read_all,
    read_epoch,
    read_to_the_tear,
    slot_path,
)
from .losses import Changed, Loss
from .operations import SERVICES, Operation, operation
from .publisher import FOLDER_KEEPER, Publisher, attach, files_of, metadata_of, plain_metadata_of
from .service_content import Content, by_partition, extent, groups_of, held, hold, paths_of, plan_body, undone_by
from .settings import ASYNC, NO_LOCK, OFF, OWN_LOCK, TRANSACTIONAL, Settings
from .side_objects import INLINE_BYTES, SIDES
from .state import LogState
from .tail import Tail
from .unknown_outcome import OutcomeGuard
from .value_hashes import (
    FileFacts,
    Hashed,
    constraint_values,
    from_entry,
    hashed_keys,
    joined,
    keys_in,
    name_of,
    refuse_type,
    together,
    without,
)
from .write_sets import write_set_of

__all__ = [
    "ASYNC",
    "EPOCH_SLOTS",
    "FOLDER_KEEPER",
    "INLINE_BYTES",
    "LOG",
    "NO_LOCK",
    "OFF",
    "OWN_LOCK",
    "SERVICES",
    "SIDES",
    "TRANSACTIONAL",
    "Begin",
    "Changed",
    "Close",
    "Commit",
    "CommitLog",
    "Content",
    "End",
    "FileFacts",
    "Follower",
    "Hashed",
    "LogEntry",
    "LogState",
    "Loss",
    "Open",
    "Operation",
    "OutcomeGuard",
    "Publisher",
    "Setting",
    "Settings",
    "Tail",
    "attach",
    "by_partition",
    "chain",
    "columns_of",
    "commits_since",
    "constraint_values",
    "decode",
    "echo",
    "echo_of",
    "encode",
    "encoded",
    "epochs",
    "extent",
    "files_of",
    "first_slot",
    "from_entry",
    "groups_of",
    "hashed_keys",
    "held",
    "hold",
    "is_epoch",
    "is_slot",
    "joined",
    "keys_in",
    "metadata_of",
    "name_of",
    "of_footer",
    "operation",
    "paths_of",
    "plain_metadata_of",
    "plan_body",
    "read_all",
    "read_epoch",
    "read_to_the_tear",
    "refuse_type",
    "slices_that_may_match",
    "slot_path",
    "together",
    "undone_by",
    "without",
    "write_set_of",
]
