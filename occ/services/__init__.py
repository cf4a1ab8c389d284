"""Table services: plans and their execution, cleaning, clustering, compaction, archival, savepoints, restore."""

from .archive import Archival, Keep, take_archived_away
from .clean import RETAIN_COMMITS, Retention
from .clustering import Sizes, find_buckets
from .execution import Executing, Part, Runner, one_by_one, refuse_no_runner
from .layout import LINEAR, Layout
from .log_compaction import MIN_LOGS
from .pinned_view import PinnedView, pinned
from .planned_service import Find
from .registry import SERVICES
from .restore import Restored, remove_undone, restore
from .rewriting import Damaged, refuse_types
from .rounds import ServiceRound, compaction_due, run_round
from .savepoint import delete_savepoint, savepoint
from .scheduling import Executed, cancel, execute, finish_decided, perform, schedule
