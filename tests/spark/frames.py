"""Small DataFrames in tests: many in one job, since one for each takes longer than their rows; under settings of the session;
planned by Python again where a busy machine was too slow for Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def planned(act: Callable[[], T]) -> T:
    """What a call that has Python plan a read of the format returns.

    Spark waits ten seconds, whatever its settings say, for each of those processes to start, which a busy machine may exceed.
    """
    for tries_left in range(9, -1, -1):
        try:
            return act()
        except Exception as e:
            if "Python worker failed to connect back" not in str(e) or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


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
