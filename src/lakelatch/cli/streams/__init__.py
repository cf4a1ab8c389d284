"""A table's streams: their declarations, and the effect of their events on one row."""
