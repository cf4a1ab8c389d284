"""The schema of a table after two writers.

Pure: schemas are texts, and only compared for equality.
"""

from __future__ import annotations

from collections.abc import Sequence

from .operations import INGESTION
from .party import Party
from .resolve import Conflict


def settle_schema(
    ours: Party, began: str | None, wanted: str | None, later: Sequence[tuple[Party, str | None]]
) -> str | Conflict | None:
    """Return the schema for our commit, or the conflict with the first candidate that changed it.

    Args:
        ours: the committing transaction; a table service changes no schema and takes over what it finds.
        began: the table's schema at our begin; None if it has none.
        wanted: the schema that we write; None or ``began`` if we change nothing.
        later: candidates in slot order, each with the schema that it left; None or "" if it recorded none.

    Source: the eight scenarios of Apache Hudi's RFC-82.
    """
    settled = (wanted if ours.kind in INGESTION else None) or began
    for candidate, schema in later:
        if not schema or schema in (began, settled):
            continue
        # Both changed it, and to different schemas: neither contains the other's columns for certain.
        if settled != began:
            return Conflict(
                candidate,
                ours,
                (),
                "both changed the table's schema",
                "run the write again on the new schema: Table.run does",
            )
        # We changed nothing, so theirs becomes the base that later candidates are compared with.
        settled = began = schema
    return settled
