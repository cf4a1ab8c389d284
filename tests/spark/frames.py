"""Small DataFrames in tests: many in one job, since one for each takes longer than their rows; under settings of the session."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def keys_of(frames: Sequence[Any]) -> list[list[str]]:
    """The column ``id`` of each of the frames, sorted."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    found: list[list[str]] = [[] for _ in frames]
    numbered = [frame.select(F.lit(n).alias("n"), "id") for n, frame in enumerate(frames)]
    for n, key in functools.reduce(lambda one, other: one.unionAll(other), numbered).coalesce(2).collect():
        found[n].append(key)
    return [sorted(each) for each in found]


@contextmanager
def session_settings(spark: Any, **values: str) -> Iterator[None]:
    """In the block the session has these settings, named without ``spark.sql.``."""
    names = {f"spark.sql.{name}": value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
