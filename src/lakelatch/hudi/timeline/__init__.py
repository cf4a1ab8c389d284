"""Instants, active and archived: names, times, Avro contents, and the file slices they make visible."""

from .archived import Archived, History
from .archived_files import NOTED, ArchivedFiles, note_archived_files
from .avro_container import decode_container
from .commit_metadata import (
    NO_PREVIOUS_COMMIT,
    CommitMetadata,
    WriteStat,
    decode_commit,
    encode_commit,
)
from .instant import (
    ACTIONS,
    COMMIT_ACTIONS,
    COMPLETED_AS,
    Instant,
    State,
    file_name,
    from_epoch_ms,
    is_time,
    parse,
    parse_unknown,
    to_epoch_ms,
)
from .instant_time import EARLIEST, LATEST, next_label, refuse_clock
from .lineage import skipped
from .service_metadata import (
    MOMENT,
    encode_clean,
    encode_clean_plan,
    encode_clustering_plan,
    encode_compaction_plan,
    encode_restore,
    encode_savepoint,
)
from .snapshot import FileSlice, Landed, Replacement, Slices, Snapshot, TimelineView, build, named_slices
from .timeline import TIMELINE, Timeline, has_archive, read_timeline
from .times import Time, same_time, time_of
from .unlisted import ListedLater, Named

__all__ = [
    "ACTIONS",
    "COMMIT_ACTIONS",
    "COMPLETED_AS",
    "EARLIEST",
    "LATEST",
    "MOMENT",
    "NOTED",
    "NO_PREVIOUS_COMMIT",
    "TIMELINE",
    "Archived",
    "ArchivedFiles",
    "CommitMetadata",
    "FileSlice",
    "History",
    "Instant",
    "Landed",
    "ListedLater",
    "Named",
    "Replacement",
    "Slices",
    "Snapshot",
    "State",
    "Time",
    "Timeline",
    "TimelineView",
    "WriteStat",
    "build",
    "decode_commit",
    "decode_container",
    "encode_clean",
    "encode_clean_plan",
    "encode_clustering_plan",
    "encode_commit",
    "encode_compaction_plan",
    "encode_restore",
    "encode_savepoint",
    "file_name",
    "from_epoch_ms",
    "has_archive",
    "is_time",
    "named_slices",
    "next_label",
    "note_archived_files",
    "parse",
    "parse_unknown",
    "read_timeline",
    "refuse_clock",
    "same_time",
    "skipped",
    "time_of",
    "to_epoch_ms",
]
