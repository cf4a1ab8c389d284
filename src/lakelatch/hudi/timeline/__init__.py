"""Instants, active and archived: names, times, Avro contents, and the file slices they make visible."""

from .archived import Archived, History
from .archived_files import NOTED, ArchivedFiles, note_archived_files
from .commit_metadata import (
    NO_PREVIOUS_COMMIT,
    CommitMetadata,
    WriteStat,
    decode_commit,
    decode_container,
    encode_commit,
)
from .instant import (
    ACTIONS,
    COMMIT_ACTIONS,
    COMPLETED_AS,
    EARLIEST,
    LATEST,
    Instant,
    State,
    file_name,
    from_epoch_ms,
    is_time,
    next_label,
    parse,
    parse_unknown,
    refuse_clock,
    to_epoch_ms,
)
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
from .snapshot import FileSlice, Replacement, Slices, Snapshot, TimelineView, build, named_slices
from .timeline import TIMELINE, Timeline, has_archive, read_timeline
from .times import Time, same_time, time_of
from .unlisted import ListedLater, Named
