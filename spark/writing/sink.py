"""Micro-batches of a streaming query, each committed once: the function for ``foreachBatch``.

    t=0  Spark hands over batch 7 of a query; the commit has (query, 7) in its log entry
    t=1  the driver dies before Spark has noted that batch 7 is done
    t=2  restarted from its checkpoint, Spark hands over batch 7 again; the log shows that it was committed

Spark keeps the id of a query in its checkpoint, and hands over the same rows under the same number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InputError
from ...occ.transaction import WriteResult

_QUERY = "sql.streaming.queryId"  # a local property of the job, set by Spark's micro-batch execution


def each_once(write: Callable[..., WriteResult], source: str | None) -> Callable[[Any, int], WriteResult]:
    """Return a function for ``foreachBatch`` that writes each batch once.

    Args:
        write: takes a DataFrame and ``batch``.
        source: the name of their source; None: the query's id.
    """

    def land(rows: Any, number: int) -> WriteResult:
        name = source or rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        if not name:
            raise InputError(
                "no streaming query hands over these rows, so nobody knows whose batch they are; hand the sink to foreachBatch, "
                'or name them: sink(source="clicks"). Nothing was written'
            )
        return write(rows, batch=(name, number))

    return land
