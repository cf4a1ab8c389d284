"""Streams: several jobs fill one wide row, each its own columns, in the order of its own events."""

from .contributions import keep_within_range, needs_batch, refuse_mergers
from .declaration import (
    CLEAR,
    IGNORE,
    Default,
    Stream,
    altered,
    declared,
    declared_in,
    described,
    dropped,
    joined,
    newest_of,
    of_name,
    outdated,
    prepared_for_streams,
    refuse_columns,
    refuse_incomplete,
    refuse_table,
    undropped,
    with_streams,
)
from .events import (
    CLEARED,
    DELETED,
    RETRACTED,
    UPSERT,
    BlockNote,
    floors_to_footer,
    folded,
    has_events,
    refuse_undeclared,
    to_write,
)
from .explain import RowHistory, explained
from .kept import gross_of
from .merge import Overwrite, slice_rows, stitched
