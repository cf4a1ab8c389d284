"""Optimistic concurrency control: timeline, commit log, transactions, heartbeats, failed-write cleaning."""

if __name__ != "lakelatch.occ":
    raise ImportError(
        "import lakelatch.occ, not the folder: a second copy of every class would not be equal to the first"
    )
