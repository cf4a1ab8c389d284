"""Optimistic concurrency control: the commit log, transactions, table services. Rooms import downwards only."""

if __name__ != "lakelatch.occ":
    raise ImportError(
        "import lakelatch.occ, not the folder: a second copy of every class would not be equal to the first"
    )
