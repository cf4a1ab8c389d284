"""The incoming rows. Few rows are collected on the driver, where an upsert is faster than a job."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from ...occ.liveness import MarkerClient
from ...storage import Store
from ..reading import arrow_schema
from ..shipping import shipped, workers_refusals
from ..tasks import ANSWER, Packed, TaskOfJob, unpacked
from ..versions import frame_of, to_arrow

_SMALL_BYTES = (
    1 << 20
)  # as estimated: for rows in files their compressed size, and an explode or a long text is not seen
_BROUGHT_ROWS_MAX = 1 << 20
_BROUGHT_BYTES_MAX = 16 << 20  # as they are
_COLLECTED_BYTES_MAX = 64 << 20  # of rows in the driver's JVM whose size no worker has checked
_FIXED_BYTES = 16  # of a value, without its text
_TEXTS = frozenset({"string", "binary"})
_FLAT = _TEXTS | {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp"}
_KEPT = "_lakelatch_kept"
_UNKNOWN_BYTES = 1 << 50
# Asking a plan of these for a few rows costs no more than these rows; anything else might do all of its work first.
_CHEAP = frozenset({"Project", "Filter", "LogicalRDD", "LocalRelation", "Union", "Range", "GlobalLimit", "LocalLimit"})


class Shuffled:
    """Shuffled rows for the tasks of a write, which may run several times.

    Every run collects the same frame, whose shuffle files remain after the first: the stages before it, including the
    user's code, are not computed again, and nothing is cached for that. So the frame cannot hold the task, which comes by a
    property of the job. Properties are in Spark's event log, so objects with keys are in the frame instead: the store, and
    the ticket to the server for markers.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._answers: Any = None

    def collect(self, store: Store, marker_client: MarkerClient | None = None) -> Any:
        """Return the answers of the job's task for these rows; the first call's ``store`` and ``marker_client`` serve all."""
        answers, self._answers = (
            self._answers or self.rows.mapInArrow(shipped(TaskOfJob(store, marker_client)), ANSWER),
            None,
        )
        found = answers.collect()
        self._answers = answers  # only now: Spark does not run a frame again of which a stage failed or was cancelled
        return found


class Source:
    """The incoming rows.

    Computed once for all attempts where they are shuffled; else kept by Spark from the second on.
    """

    def __init__(self, rows: Any, small: pa.Table | None) -> None:
        self.rows, self.small = rows, small
        self._uses = 0
        self._kept: Any = None
        self._shuffled: dict[Hashable, Shuffled] = {}

    def shuffled(self, way: Hashable, shuffle: Callable[[Any], Any]) -> Shuffled:
        """Return the rows shuffled in that way, for one more attempt; None is a way that depends on the attempt."""
        if way is None:
            return Shuffled(shuffle(self.use()))
        if way not in self._shuffled:
            self._shuffled[way] = Shuffled(shuffle(self.use()))
        return self._shuffled[way]

    def use(self) -> Any:
        """Return the rows, for one more attempt."""
        if self.small is not None:
            return frame_of(self.rows.sparkSession, self.small)
        self._uses += 1
        if self._uses == 2:
            from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

            # A unique plan: Spark caches by plan, so dropping ours would also drop an equal one that the user has cached.
            self._kept = self.rows.withColumn(_KEPT, F.lit(uuid4().hex)).persist()
            self.rows = self._kept.drop(_KEPT)
        return self.rows

    @contextmanager
    def until_done(self) -> Iterator[Source]:
        """Unpersist the kept rows after the block."""
        try:
            yield self
        finally:
            if self._kept is not None:
                self._kept.unpersist()


def small_rows(rows: Any, rows_max: int) -> pa.Table | None:
    """Return the rows as Arrow when they are at most ``rows_max`` and take little memory, else None.

    Runs one job at most, two where texts are long. Spark's estimate only decides whether it is worth trying.
    """
    if rows_max <= 0:
        return None
    plan = rows._jdf.queryExecution().optimizedPlan()
    # Rows from Python: either Spark has no idea of their size, or to ask for some of them costs nothing.
    if int(str(plan.stats().sizeInBytes())) > _SMALL_BYTES and not _cheap(plan):
        return None
    brought = min(rows_max + 1, _BROUGHT_ROWS_MAX)
    few, found = rows.limit(brought), None
    types = {field.dataType.typeName() for field in rows.schema.fields}
    if plan.nodeName() == "LocalRelation":  # in this process already
        found = to_arrow(few)
    elif types <= _FLAT and (_cheap(plan) or not types & _TEXTS):
        found = narrow_rows(few, _COLLECTED_BYTES_MAX // brought)
    if found is None:  # after a limit they are in one task, which measures them
        with workers_refusals():
            packed = few.mapInArrow(shipped(Packed(_BROUGHT_BYTES_MAX)), ANSWER).collect()
        found = unpacked(packed, arrow_schema(rows.schema))
    fits = found is not None and found.num_rows < brought and found.nbytes <= _BROUGHT_BYTES_MAX
    return found if fits else None


def narrow_rows(rows: Any, width_max: int) -> pa.Table | None:
    """Return the rows as Arrow, without a Python worker, the largest cost; None when a row is wider than ``width_max``.

    Texts that do not fit stay with the executors.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    fields = rows.schema.fields
    if (width := _FIXED_BYTES * len(fields)) > width_max:
        return None
    names = [f"c{place}" for place in range(len(fields))]
    texts = [name for name, field in zip(names, fields, strict=True) if field.dataType.typeName() in _TEXTS]
    fits = sum((F.coalesce(F.octet_length(name), F.lit(0)) for name in texts), F.lit(width)) <= width_max
    narrow = [F.when(fits, F.col(name)).alias(name) if name in texts else name for name in names]
    found = to_arrow(rows.toDF(*names).select(*narrow, fits))
    if pc.all(found.columns[-1], min_count=0).as_py() is False:
        return None
    told = [
        each.with_name(field.name).with_nullable(field.nullable)
        for each, field in zip(found.schema, fields, strict=False)
    ]
    return pa.Table.from_arrays(found.columns[:-1], schema=pa.schema(told))


def estimated_bytes(rows: Any) -> int | None:
    """Return Spark's estimate of the size, or None."""
    size = int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return size if size < _UNKNOWN_BYTES else None


def _cheap(plan: Any) -> bool:
    if plan.nodeName() not in _CHEAP:
        return False
    children = plan.children()
    return all(_cheap(children.apply(i)) for i in range(children.size()))
