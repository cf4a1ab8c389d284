"""All tables, and all answers of one JVM session about them: starting one costs more than all its reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ..occ.mor import Mor
from ..thorough import THOROUGH, some
from . import compaction, log_compactions
from .cases import (
    BY_SPARK,
    CASES,
    WRITE_OPTIONS,
    WRITES,
    WRITTEN_BY_JVM,
    for_jvm_writer,
    for_our_spark,
    written_by_spark,
)
from .readers import PROGRAM_S_MAX, Row, ask_jvm, require_jvm, write_by_spark
from .services import Served, questions, serve
from .story import Story

EARLIEST = "000"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * PROGRAM_S_MAX))  # the first one asks two programs for all


class Library:
    """The stories by name, and what the JVM said of each; some it reads, to others it writes."""

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.answers: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.served: dict[str, Served] = {}
        self.compacted: dict[str, compaction.Compacted] = {}
        self.logs_compacted: dict[str, Mor] = {}

    def questions(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        asked: dict[tuple[Any, ...], dict[str, Any]] = {}
        for name, story in self.read.items():
            path = {"path": str(story.path)}
            asked[name, "snapshot"] = path | {"kind": "snapshot"}
            for begin, end in jvm_spans(story):
                asked[name, "incremental", begin, end] = path | {"kind": "incremental", "begin": begin, "end": end}
            for instant in jvm_moments(story):
                asked[name, "as_of", instant] = path | {"kind": "as_of", "as_of": instant}
            for begin, end, instant in carried(story):
                asked[name, "incremental", begin, end] = path | {"kind": "incremental", "begin": begin, "end": end}
                asked[name, "as_of", instant] = path | {"kind": "as_of", "as_of": instant}
        for index, options in WRITES.items():
            story = self.stories[written(index)]
            own = {"hoodie.table.name": story.table.config.name}
            asked[written(index), "upsert"] = {
                "path": str(story.path),
                "kind": "upsert",
                "rows": WRITTEN_BY_JVM,
                "options": WRITE_OPTIONS | options | own,
            }
        asked |= questions(self.served) | compaction.questions(self.compacted)
        asked |= log_compactions.questions(self.logs_compacted)
        return asked

    @property
    def read(self) -> dict[str, Story]:
        """Those that the JVM reads as they are."""
        own = {written(index) for index in WRITES}
        return {name: story for name, story in self.stories.items() if name not in own}

    def jvm(self, *question: Any) -> list[Row]:
        """The rows of the JVM's answer."""
        answer = self.answers[question]
        assert "rows" in answer, answer["error"]
        return answer["rows"]


def written(index: str) -> str:
    return f"written_by_jvm-{index}"


def spans(story: Story) -> list[tuple[str, str | None]]:
    """Incremental reads: from the beginning and from every C to now, and between each two neighbours."""
    times = [change.completion for change in story.landed]
    odd = {(begin, end) for begin, end, _ in carried(story)}
    closed = [span for span in zip((EARLIEST, *times), times, strict=False) if span not in odd]
    return [*((b, None) for b in (EARLIEST, *times)), *closed]


def carried(story: Story) -> list[tuple[str, str, str]]:
    """Where Hudi's readers tell a rebase otherwise than a replay: the span of the one whose file group was replaced under
    a smaller T, and that T.
    """
    if not story.as_of_works:
        return []
    times = {after.instant: (before.completion, after.completion) for before, after in pairwise(story.landed)}
    return [(*times[change.carries], change.instant) for change in story.landed if change.carries]


def jvm_spans(story: Story) -> list[tuple[str, str | None]]:
    """Some of them; of a table of version 9 only open ones: the JVM plans the others with the same code as for 8.

    `make test` asks for none where the order of the commits is not what the story is about; hudi-rs is asked for all of each.
    """
    if not (THOROUGH or story.about_commits):
        return []
    to_now = [span for span in spans(story) if span[1] is None]
    between = [span for span in spans(story) if span[1] is not None]
    inner = between if THOROUGH else between[1:-1] or between  # the first and the last are most like an open one
    return some(to_now, 2) + (some(inner, 2) if story.table.config.version == 8 else [])


def jvm_moments(story: Story) -> list[str]:
    """Some of them, the last only in `make thorough`: back at the last commit, the rows are those of now."""
    if story.table.config.version != 8 or not (THOROUGH or story.about_commits):
        return []
    back = moments(story)
    return some(back if THOROUGH else back[:-1] or back, 2)


def moments(story: Story) -> list[str]:
    return sorted(change.instant for change in story.landed if not change.carries) if story.as_of_works else []


def by_spark(index: str) -> str:
    return f"written_by_spark-{index}"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    require_jvm()
    folder = tmp_path_factory.mktemp("jvm")
    made = Library()
    with ExitStack() as stack:
        for name, tell in CASES.items():
            made.stories[name] = tell(folder / name)
        for index in WRITES:
            made.stories[written(index)] = for_jvm_writer(folder / written(index), index)
        if BY_SPARK:
            made.stories |= spark_stories(folder)
        for story in made.stories.values():
            stack.callback(story.table.close)
        made.served = serve(folder / "served")
        made.compacted = compaction.build(folder / "compacted")
        made.logs_compacted = log_compactions.build(folder / "logs")
        asked = made.questions()
        made.answers = dict(zip(asked, ask_jvm(list(asked.values()), folder), strict=True))
        yield made


def spark_stories(folder: Path) -> dict[str, Story]:
    """Tables that lakelatch.spark has written."""
    told = {by_spark(index): for_our_spark(folder / by_spark(index), index) for index in BY_SPARK}
    times = write_by_spark([{"path": str(story.path), "writes": writes} for story, writes in told.values()], folder)
    for story, writes in told.values():
        written_by_spark(story, writes, [times.pop(0) for _ in writes])
    return {name: story for name, (story, _) in told.items()}
