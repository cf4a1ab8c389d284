"""Who is alive: heartbeats, markers, readers' leases, and the rollback of writers that are dead."""

from .epoch_pruner import Pruner
from .heartbeat import HEARTBEATS, HeartbeatObserver, HeartbeatSender, beat_age_s, heartbeat_path, lag_s
from .late_files import is_no_part
from .markers import MARKERS, announce, announced_paths, delete_announced, instants_with_markers, list_markers, stands
from .reader_leases import Beating, Lease, Leases, lease_path
from .removal import delete_data_file
from .rollback import FailedWriteCleaner

__all__ = [
    "HEARTBEATS",
    "MARKERS",
    "Beating",
    "FailedWriteCleaner",
    "HeartbeatObserver",
    "HeartbeatSender",
    "Lease",
    "Leases",
    "Pruner",
    "announce",
    "announced_paths",
    "beat_age_s",
    "delete_announced",
    "delete_data_file",
    "heartbeat_path",
    "instants_with_markers",
    "is_no_part",
    "lag_s",
    "lease_path",
    "list_markers",
    "stands",
]
