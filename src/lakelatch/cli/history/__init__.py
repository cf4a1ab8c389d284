"""A table's history: its timeline, live events, and why a transaction lost."""
