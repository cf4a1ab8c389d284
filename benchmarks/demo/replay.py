"""The same changes, one after the other, on plain dicts. Shares no code with what it checks, but for the story."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from .story import KEY, ORDERING, PARTITION, Story, Task, mark

Rows = dict[str, dict[str, Any]]


def replay(story: Story, order: Iterable[str]) -> pa.Table:
    """The rows after the writers named in ``order`` have each had the table for themselves, sorted by key."""
    rows: Rows = {row[KEY]: row for row in story.first.to_pylist()}
    tasks = {task.name: task for task in story.tasks}
    for name in order:
        task = tasks[name]
        if task.kind == "upsert":
            _upsert(rows, story.incoming[name])
        elif task.kind == "delete":
            rows = {key: row for key, row in rows.items() if row["carrier"] != task.carrier}
        else:
            _mark(rows, task)
    return pa.Table.from_pylist([rows[key] for key in sorted(rows)], schema=story.first.schema)


def _upsert(rows: Rows, incoming: pa.Table) -> None:
    for row in incoming.to_pylist():
        old = rows.get(row[KEY])
        if old is None or row[ORDERING] >= old[ORDERING]:
            rows[row[KEY]] = row


def _mark(rows: Rows, task: Task) -> None:
    wanted, note = mark(task)
    for row in rows.values():
        if row[PARTITION] in task.months and (
            row["dep_time"] is None if wanted == "cancelled" else row["origin"] == wanted
        ):
            row["note"] = note
