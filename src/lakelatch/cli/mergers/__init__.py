"""``lakelatch mergers``: which there are, and whether one keeps its laws."""
