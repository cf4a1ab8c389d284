"""A table's lock, and locks by themselves."""
