"""The commit log, the history of transactions: its entries, its state, and publishing its commits on the timeline."""

from .commit_log import EPOCH_SLOTS, CommitLog, Follower
from .creation import (
    CREATION,
    Creation,
    claim,
    creation_of,
    finish,
    put_properties,
    start_log,
    strange_files,
)
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
    refuse_obstacle,
    slot_path,
)
from .imports import rolled_back
from .publisher import FOLDER_KEEPER, Publisher, attach, files_of, files_only, metadata_of, plain_metadata_of
from .standing_batches import commits_by, known_batches, standing_batches
from .state import LogState
from .tail import Tail
from .undecided import UndecidedError
from .unknown_outcome import OutcomeGuard

__all__ = [
    "CREATION",
    "EPOCH_SLOTS",
    "FOLDER_KEEPER",
    "LOG",
    "CommitLog",
    "Creation",
    "Follower",
    "LogState",
    "OutcomeGuard",
    "Publisher",
    "Tail",
    "UndecidedError",
    "attach",
    "chain",
    "claim",
    "commits_by",
    "commits_since",
    "creation_of",
    "epochs",
    "files_of",
    "files_only",
    "finish",
    "first_slot",
    "is_epoch",
    "is_slot",
    "known_batches",
    "metadata_of",
    "plain_metadata_of",
    "put_properties",
    "read_all",
    "read_epoch",
    "read_to_the_tear",
    "refuse_obstacle",
    "rolled_back",
    "slot_path",
    "standing_batches",
    "start_log",
    "strange_files",
]
