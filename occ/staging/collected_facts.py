"""The facts about written rows that a table's settings ask commits to record."""

from __future__ import annotations

import functools

import pyarrow as pa

from ...errors import InputError
from ..entries import Settings, columns_of, refuse_type
from .file_spec import WantedFacts


@functools.lru_cache(maxsize=64)
def wanted_of(settings: Settings, schema: pa.Schema, operation: str) -> WantedFacts:
    """Return the facts to record for a transaction that writes rows of this schema.

    A bucket index needs no keys: equal ones meet in one bucket. bulk_insert needs none either: it is for rows known to be
    new, and promises nothing about keys, as in Hudi.

    Raises:
        InputError: the schema lacks a column of a unique constraint, or its type cannot be compared exactly.
    """
    for name in dict.fromkeys(name for constraint in settings.unique_constraints for name in constraint):
        if name not in schema.names:
            raise InputError(
                f"unique_constraints names {name!r}, and there is no such column: write it, or leave it out of the "
                "setting unique_constraints",
                column=name,
            )
        refuse_type(name, schema.field(name).type)
    return WantedFacts(
        keys=bool(settings.unique_keys) and settings.bucket_count is None and operation != "bulk_insert",
        unique_constraints=settings.unique_constraints,
        statistics=columns_of(schema, settings.statistics, isolation=settings.isolation),
    )
