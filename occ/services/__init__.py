"""Table services: plans and their execution, cleaning, clustering, compaction, archival, savepoints, restore."""

from .archive import Archival, Keep, take_archived_away
from .clean import RETAIN_COMMITS, Retention, Savepoint, kept_from, savepoints
from .clustering import SMALL_BYTES, TARGET_BYTES, Sizes
from .log_compaction import MIN_LOGS
from .pinned_view import PinnedView, pinned
from .restore import Restored, remove_undone, restore
from .rewriting import Damaged
from .rounds import Round, run_round
from .savepoint import delete_savepoint, savepoint
from .scheduling import Executed, Find, cancel, execute, finish_decided, perform, schedule

__all__ = [
    "MIN_LOGS",
    "RETAIN_COMMITS",
    "SMALL_BYTES",
    "TARGET_BYTES",
    "Archival",
    "Damaged",
    "Executed",
    "Find",
    "Keep",
    "PinnedView",
    "Restored",
    "Retention",
    "Round",
    "Savepoint",
    "Sizes",
    "cancel",
    "delete_savepoint",
    "execute",
    "finish_decided",
    "kept_from",
    "perform",
    "pinned",
    "remove_undone",
    "restore",
    "run_round",
    "savepoint",
    "savepoints",
    "schedule",
    "take_archived_away",
]
