"""A worker that cannot run a task says so in a sentence. tests/spark/test_cluster.py has one that lacks the package."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import lakelatch
from lakelatch.errors import ConfigError
from lakelatch.spark.shipping import shipped, workers_refusals
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
