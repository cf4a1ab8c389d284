"""Signs of life: heartbeats, markers, readers' leases, and the rollback of dead writers."""

from .epoch_pruner import Pruner
from .heartbeat import HEARTBEATS, HeartbeatObserver, HeartbeatSender, beat_age_s, heartbeat_path, lag_s
from .late_files import is_no_part
from .marker_client import MarkerClient, MarkerServer, MarkerService, refuse_unsafe, ticket, token_in
from .marker_lists import encoded, fits, is_list, names_in, put_type
from .markers import MARKERS, Io, Marker, announce_all, delete_announced, instants_with_markers, list_markers, stands
from .neighbours import NeighboursAtWork, groups_of_plan
from .own_record import OwnRecord
from .reader_leases import READERS, LeaseOfAnotherProcess, LeaseSender, ReaderLease, ReaderLeases, lease_path
from .removal import delete_data_file
from .rollback import FailedWriteCleaner
