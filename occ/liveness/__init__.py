"""Who is alive: heartbeats, markers, readers' leases, and the rollback of writers that are dead."""

from .epoch_pruner import Pruner
from .heartbeat import HEARTBEATS, HeartbeatObserver, HeartbeatSender, beat_age_s, heartbeat_path
from .late_files import is_no_part
from .markers import MARKERS, announce, delete_announced, instants_with_markers, list_markers, stands
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
    "beat_age_s",
    "delete_announced",
    "delete_data_file",
    "heartbeat_path",
    "instants_with_markers",
    "is_no_part",
    "lease_path",
    "list_markers",
    "stands",
]
