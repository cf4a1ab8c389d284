"""Small DataFrames in tests: many in one job, since one for each takes longer than their rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any


def keys_of(frames: Sequence[Any]) -> list[list[str]]:
    """The column ``id`` of each of the frames, sorted."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    found: list[list[str]] = [[] for _ in frames]
    numbered = [frame.select(F.lit(n).alias("n"), "id") for n, frame in enumerate(frames)]
    for n, key in functools.reduce(lambda one, other: one.unionAll(other), numbered).coalesce(2).collect():
        found[n].append(key)
    return [sorted(each) for each in found]
