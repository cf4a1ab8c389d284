"""All tables, and all answers of one JVM session about them: starting one costs more than all its reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from .cases import CASES, WRITE_OPTIONS, WRITES, WRITTEN_BY_JVM, for_jvm_writer
from .readers import Row, ask_jvm, require_jvm
from .story import Story

EARLIEST = "000"


class Library:
    """The stories by name, and what the JVM said of each."""

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.answers: dict[tuple[Any, ...], dict[str, Any]] = {}

    def questions(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        asked: dict[tuple[Any, ...], dict[str, Any]] = {}
        for name, story in self.stories.items():
            path = {"path": str(story.path)}
            asked[name, "snapshot"] = path | {"kind": "snapshot"}
            for begin, end in spans(story):
                asked[name, "incremental", begin, end] = path | {"kind": "incremental", "begin": begin, "end": end}
            for instant in moments(story):
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
        return asked

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
    return [(b, None) for b in (EARLIEST, *times)] + list(zip((EARLIEST, *times), times, strict=False))


def moments(story: Story) -> list[str]:
    return sorted(change.instant for change in story.landed) if story.as_of_works else []


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
        for story in made.stories.values():
            stack.callback(story.table.close)
        asked = made.questions()
        made.answers = dict(zip(asked, ask_jvm(list(asked.values()), folder), strict=True))
        yield made
