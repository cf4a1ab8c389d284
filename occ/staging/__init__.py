"""The files that a transaction writes before it commits: encoding, markers, exclusive names."""

from .apply_rows import (
    NEW,
    Kept,
    NewGroups,
    TaskFiles,
    WritePlan,
    appends,
    apply,
    holders,
    log_change,
    owners,
    slices_by_partition,
    write_successor,
)
from .base_file import BaseFileWriter
from .file_spec import FileSpec, FileWatcher, refuse_if_over, token, wanted_of
from .key_spans import KeySpans
from .log_file import LogFileWriter
from .meta_columns import COMMIT_TIME, SEQNO, RowNumbers
from .new_file import NewFile
from .old_file import held_keys, read_slice
from .selection import GROUP_COLUMN, PARTITION_COLUMN, RowsInMemory, Selection, units
from .staged import Staged
from .stream_files import StreamPlan, append_events, replace_events, write_bucket
