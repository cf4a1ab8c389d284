"""A worker that cannot run a task says so in a sentence. tests/spark/test_cluster.py has one that lacks the package."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError
from lakelatch.spark.shipping import shipped, spare_the_collector, workers_refusals
from lakelatch.spark.tasks import ANSWER, Packed


def ask(spark: Any, task: Any) -> None:
    with workers_refusals():
        spark.range(3).mapInArrow(shipped(task), ANSWER).collect()


def test_a_worker_with_another_version_refuses_and_names_both(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = lakelatch.__version__
    monkeypatch.setattr(lakelatch, "__version__", "0.0.1")
    with pytest.raises(
        ConfigError, match=rf"worker .* has lakelatch {there} and the driver 0.0.1; nothing was written"
    ):
        ask(spark, Packed(100))


def test_a_module_that_a_worker_lacks_is_named(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only_here = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    only_here.task = task = type("task", (Packed,), {"__module__": "only_here"})  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"worker .* has no module 'only_here'; nothing was written"):
        ask(spark, task(100))


def test_what_else_fails_in_a_task_is_sparks_to_tell(spark: Any) -> None:
    with pytest.raises(Exception, match="AttributeError") as caught:
        ask(spark, lambda batches: batches.no_such_thing)
    assert not isinstance(caught.value, ConfigError)


def test_no_collection_of_a_worker_looks_at_imported_modules(spark: Any) -> None:
    """Spark's daemon collects after each task, which would take longer than many a task."""

    def spared(_batches: Any) -> Any:
        yield pa.record_batch({"spared": [gc.get_freeze_count()]})

    rows = spark.range(3).mapInArrow(shipped(spared), "spared long").collect()
    assert all(row.spared for row in rows)
    before = gc.get_freeze_count()
    spare_the_collector()
    assert gc.get_freeze_count() == before, "only there"
