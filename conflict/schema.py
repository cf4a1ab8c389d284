"""Whose schema does a table have after two writers? Pure; schemas are texts that are only compared."""

from __future__ import annotations

from collections.abc import Sequence

from .resolve import Candidate, Conflict


def settle_schema(
    began: str | None, ours: str | None, later: Sequence[tuple[Candidate, str | None]]
) -> str | Conflict | None:
    """The schema that our commit shall leave, or the conflict with the first candidate that changed it otherwise.

    Args:
        began: the table's schema at our begin; None for a table without one.
        ours: the schema that we write; None or ``began`` when we change nothing.
        later: candidates in slot order with the schema that each left.

    Source: Apache Hudi RFC-82, the rows with two writers: one that does not change the schema takes over the other's.
    """
    settled = ours or began
    for candidate, schema in later:
        if schema in (began, settled):
            continue
        if settled != began:
            return Conflict(
                candidate,
                (),
                "both changed the table's schema",
                "run the write again on the new schema: Table.run does",
            )
        settled = began = schema
    return settled
