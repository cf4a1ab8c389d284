"""Streams: several jobs fill one wide row, each its own columns, in the order of its own events."""

from .contributions import needs_batch, refuse_mergers
from .declaration import (
    CLEAR,
    IGNORE,
    IGNORE_DEFAULTS,
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
from .events import Events, events_of, slot_order
from .explain import Cell, Event, RowHistory, explained
from .fold import folded
from .merge import Stitched, slice_rows, stitched
from .notes import CLEARED, DELETED, UPSERT, BlockNote, floors_to_footer

__all__ = [
    "CLEAR",
    "CLEARED",
    "DELETED",
    "IGNORE",
    "IGNORE_DEFAULTS",
    "KEEP",
    "ROW",
    "UPSERT",
    "WRITE",
    "BlockNote",
    "Cell",
    "Default",
    "Event",
    "Events",
    "RowHistory",
    "Stitched",
    "Stream",
    "declared",
    "described",
    "events_of",
    "explained",
    "floors_to_footer",
    "folded",
    "joined",
    "needs_batch",
    "of_name",
    "refuse_columns",
    "refuse_incomplete",
    "refuse_mergers",
    "refuse_table",
    "slice_rows",
    "slot_order",
    "stitched",
]
