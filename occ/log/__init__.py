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
from .imports import ENGINE, rolled_back
from .publisher import Publisher, attach, files_of, files_only, metadata_of, plain_metadata_of
from .standing_batches import commits_by, known_batches, standing_batches
from .state import LogState
from .tail import Tail
from .undecided import UndecidedError
from .unknown_outcome import OutcomeGuard
