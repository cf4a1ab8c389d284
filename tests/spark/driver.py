"""Drivers: what a test does between the calls of one, and such that are processes of their own."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakelatch.occ.check.check import check
from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.occ.table import Table
from lakelatch.spark import JobSizes
from lakelatch.testing.contention import until
from lakelatch.testing.faults import FaultStore, On, Pause

ROOT = Path(__file__).parents[2]
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


def swept(table: Table) -> None:
    """Nothing is left over of jobs that were cancelled or killed.

    Spark ends their tasks, and the slower of two runs of one task, while these may be sending a marker: it arrives when the
    transaction is over, and the next cleaning removes it.
    """

    def clean() -> bool:
        findings = check(table.store, deep=True).findings
        assert {each.kind for each in findings} <= {"markers-of-ended"}, findings
        if findings:
            table.rollback_failed_writes()
        return not findings

    until(clean, "something is left over")


def started(module: str, folder: Path, *steps: str, stdout: int | None = None) -> subprocess.Popen[str]:
    """A module of these tests as a driver with a process group of its own; what it says goes to FOLDER/log."""
    pytest.importorskip("pyspark")
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.spark.{module}", str(folder), *steps],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            start_new_session=True,
            text=True,
        )
