"""Streams: several jobs fill one wide row, each its own columns, in the order of its own events."""

from .contributions import needs_batch, refuse_mergers
from .declaration import (
    CLEAR,
    IGNORE,
    KEEP,
    ROW,
    WRITE,
    Default,
    Stream,
    declared,
    described,
    joined,
    of_name,
    refuse_columns,
    refuse_incomplete,
    refuse_table,
)
from .events import Events, events_of, folded, refuse_undeclared, slot_order
from .explain import Cell, Event, RowHistory, explained
from .merge import Stitched, slice_rows, stitched
from .notes import CLEARED, DELETED, UPSERT, BlockNote, floors_to_footer
from .properties import Declared, declared_in, newest_of, with_streams
from .totals import keep_within_range

__all__ = [
    "CLEAR",
    "CLEARED",
    "DELETED",
    "IGNORE",
    "KEEP",
    "ROW",
    "UPSERT",
    "WRITE",
    "BlockNote",
    "Cell",
    "Declared",
    "Default",
    "Event",
    "Events",
    "RowHistory",
    "Stitched",
    "Stream",
    "declared",
    "declared_in",
    "described",
    "events_of",
    "explained",
    "floors_to_footer",
    "folded",
    "joined",
    "keep_within_range",
    "needs_batch",
    "newest_of",
    "of_name",
    "refuse_columns",
    "refuse_incomplete",
    "refuse_mergers",
    "refuse_table",
    "refuse_undeclared",
    "slice_rows",
    "slot_order",
    "stitched",
    "with_streams",
]
