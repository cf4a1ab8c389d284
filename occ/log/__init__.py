"""The commit log, the history of transactions: its entries, its state, and the publication of its commits on the timeline."""

from .commit_log import EPOCH_SLOTS, CommitLog, Follower
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
from .publisher import FOLDER_KEEPER, Publisher, attach, files_of, metadata_of, plain_metadata_of
from .standing_batches import known_batches, standing_batches
from .state import LogState
from .tail import Tail
from .unknown_outcome import OutcomeGuard

__all__ = [
    "EPOCH_SLOTS",
    "FOLDER_KEEPER",
    "LOG",
    "CommitLog",
    "Follower",
    "LogState",
    "OutcomeGuard",
    "Publisher",
    "Tail",
    "attach",
    "chain",
    "commits_since",
    "epochs",
    "files_of",
    "first_slot",
    "is_epoch",
    "is_slot",
    "known_batches",
    "metadata_of",
    "plain_metadata_of",
    "read_all",
    "read_epoch",
    "read_to_the_tear",
    "slot_path",
    "standing_batches",
]
