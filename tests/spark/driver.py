"""What a test does between the calls of a write's driver."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.spark import JobSizes
from lakelatch.testing.faults import FaultStore, On, Pause

# Small batches are merged on the driver, large ones by Spark's tasks: both have to do the same.
ROUTES = {"driver": JobSizes(tasks_per_core=1), "tasks": JobSizes(small_rows=0, tasks_per_core=1)}


class DriverStore(FaultStore):
    """Faults for the driver alone: what travels to a task is the store inside."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copy.copy, (self.inner,)


def meanwhile(table: Any, other: Callable[[], object]) -> None:
    """Once, when the next write of this table is about to commit, something else happens."""
    # The first call of a commit looks for files of the transaction that nobody has staged.
    table.table.store.add(Pause(On("list", MARKERS), call=other))
