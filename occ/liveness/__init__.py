"""Signs of life: heartbeats, markers, readers' leases, and the rollback of dead writers."""

from .epoch_pruner import Pruner
from .heartbeat import HEARTBEATS, HeartbeatObserver, HeartbeatSender, beat_age_s, heartbeat_path, lag_s
from .late_files import is_no_part
from .marker_client import MarkerClient, MarkerServer, MarkerService, refuse_unsafe, ticket, token_in
from .marker_lists import encoded, fits, is_list, names_in, put_type
from .markers import (
    MARKERS,
    Io,
    Marker,
    announce,
    announce_all,
    delete_announced,
    instants_with_markers,
    list_markers,
    stands,
)
from .neighbours import NeighboursAtWork, groups_of_plan
from .own_record import OwnRecord
from .reader_leases import READERS, LeaseOfAnotherProcess, LeaseSender, ReaderLease, ReaderLeases, lease_path
from .removal import delete_data_file
from .rollback import FailedWriteCleaner

__all__ = [
    "HEARTBEATS",
    "MARKERS",
    "READERS",
    "FailedWriteCleaner",
    "HeartbeatObserver",
    "HeartbeatSender",
    "Io",
    "LeaseOfAnotherProcess",
    "LeaseSender",
    "Marker",
    "MarkerClient",
    "MarkerServer",
    "MarkerService",
    "NeighboursAtWork",
    "OwnRecord",
    "Pruner",
    "ReaderLease",
    "ReaderLeases",
    "announce",
    "announce_all",
    "beat_age_s",
    "delete_announced",
    "delete_data_file",
    "encoded",
    "fits",
    "groups_of_plan",
    "heartbeat_path",
    "instants_with_markers",
    "is_list",
    "is_no_part",
    "lag_s",
    "lease_path",
    "list_markers",
    "names_in",
    "put_type",
    "refuse_unsafe",
    "stands",
    "ticket",
    "token_in",
]
