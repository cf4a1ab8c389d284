"""Random sequences of transactions give what a dict gives, no matter who reads them (`story`). `make soak` runs many more."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..jvm.readers import ask_jvm, in_order, plain, require_jvm
from ..thorough import THOROUGH
from .__main__ import told_in_spark
from .awkward import PARTITIONS
from .story import Row, Story

SEEDS = range(40 if THOROUGH else 20)
IN_SPARK = range(100, 106 if THOROUGH else 104)
ON_THE_JVM = range(200, 222)  # every kind of partition is among them, which the test looks at


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Nothing here is about power failures, and flushing takes most of the time."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="differential-") as name:
        yield Path(name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_sequence_of_transactions_agrees_with_a_dict_and_hudi_rs(memory: Path, seed: int) -> None:
    Story(memory / "table", seed).run()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
@pytest.mark.parametrize("route", ["driver", "tasks"])
@pytest.mark.parametrize("seed", IN_SPARK)
def test_a_random_sequence_that_is_written_and_read_by_spark_agrees_too(tmp_path: Path, seed: int, route: str) -> None:
    if shutil.which("java") is None:
        pytest.skip("Java 17 is missing")
    pytest.importorskip("pyspark")
    from .in_spark import SparkStory

    if route == "tasks" and seed % 2:
        pytest.skip("every second one: it takes long")
    SparkStory(tmp_path / "table", seed, tasks=route == "tasks").run()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_the_command_of_make_soak_tells_stories_in_spark_too() -> None:
    if shutil.which("java") is None:
        pytest.skip("Java 17 is missing")
    pytest.importorskip("pyspark")
    assert told_in_spark(7) == ""


@pytest.mark.jvm
def test_the_jvm_reads_the_rows_of_random_sequences(tmp_path: Path) -> None:
    require_jvm()
    stories = [Story(tmp_path / str(seed), seed) for seed in ON_THE_JVM]
    for story in stories:
        story.run()
    stories = [story for story in stories if story.model]
    assert {story.by for story in stories} == {None, *PARTITIONS}
    answers = ask_jvm([{"path": str(story.folder), "kind": "snapshot"} for story in stories], tmp_path)
    for story, answer in zip(stories, answers, strict=True):
        assert "error" not in answer, (story.seed, answer)
        assert in_order(answer["rows"]) == in_order(as_the_jvm_tells(story)), (story.seed, story.told)


def as_the_jvm_tells(story: Story) -> list[Row]:
    """Null and empty text are one folder, and Hudi 1.2.0 takes a partition's value from its folder: it tells null of both.

    Everything else has to be as it was written.
    """
    empty = {"p": None} if story.by == "text" else {}
    return [plain(row | (empty if row.get("p") == "" else {})) for row in story.model.values()]
