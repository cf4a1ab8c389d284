"""The words that arguments with few choices take, for type checkers and editors; each is checked where it is used, too."""

from __future__ import annotations

from typing import Literal

Isolation = Literal["snapshot", "write-serializable", "serializable"]
Strategy = Literal["simple", "bucket", "prefer-writer", "priority"]
OperationName = Literal[
    "insert", "bulk_insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition"
]
Missing = Literal["refuse", "null"]
NewColumns = Literal["refuse", "add"]
LayoutName = Literal["linear", "z-order"]
OnDelete = Literal["row", "clear", "ignore"]
NullEvents = Literal["keep", "write"]
BulkSort = Literal["none", "partition", "global"]
Sink = Literal["upsert", "insert", "bulk_insert", "delete", "overwrite", "overwrite_table"]
