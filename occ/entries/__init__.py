"""The entries of the commit log: begin, commit, end and setting, as values and as bytes."""

from .batches import COVERS, NOTHING, UNTOLD, Batch, Batches, BatchGiven, Landed, Origin, note_in
from .column_statistics import (
    RANGES,
    columns_of,
    decode_ranges,
    encode_ranges,
    encoded,
    of_footer,
    ranges_path,
    slices_that_may_match,
)
from .echo import echo, echo_body, echo_of
from .entries import (
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    Import,
    LogEntry,
    Open,
    Partner,
    Prepare,
    Setting,
    Single,
    at_slot,
    decode,
    encode,
    singly,
)
from .entry_rules import content_of
from .losses import Changed, Loss
from .operations import Operation, operation
from .requests import REQUEST_BYTES, BeginRequest, Request
from .service_content import (
    Content,
    by_partition,
    extent,
    groups_of,
    held,
    hold,
    instant_body,
    paths_of,
    plan_body,
    undone_by,
)
from .settings import (
    NO_LOCK,
    OFF,
    OWN_LOCK,
    TABLE_KEYS,
    AdoptedSettings,
    FileSizes,
    Settings,
    SettingsDict,
    lock_options,
)
from .side_objects import INLINE_BYTES, SIDES, hash_of, put_aside, read_aside
from .value_checks import ValueCheck, value_checks
from .value_hashes import (
    FileFacts,
    Hashed,
    constraint_values,
    hashed_keys,
    joined,
    keys_in,
    name_of,
    refuse_type,
    to_entry,
    together,
    without,
)
from .write_sets import write_set_of
