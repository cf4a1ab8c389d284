"""The record of a writer's operations, as lines of JSON in a file of its own.

One line says that an operation begins, before anything is written, a second one how it ended. So the last operation of a
killed writer has no end: its outcome is `UNKNOWN`. Times are seconds since the start of the run, on the clock that all
processes of one machine share (`time.monotonic`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

DONE, ABORTED, UNKNOWN, FAILED = "done", "aborted", "unknown", "failed"


@dataclass(slots=True)
class Try:
    """One attempt of an operation.

    Attributes:
        began, ended: seconds.
        reason: why it lost; "" if it committed.
        winner: the system's name of the commit that it lost against; "" if the system does not report it.
    """

    began: float
    ended: float = 0.0
    reason: str = ""
    winner: str = ""


@dataclass(slots=True)
class Hold:
    """One use of the lock: the times of request, grant and release."""

    asked: float
    granted: float
    released: float | None = None


@dataclass(slots=True)
class Operation:
    """One operation of one writer.

    Attributes:
        name: unique in the run; the rows carry it in their column ``by``.
        writer, role: the writer and its role.
        work: a name of `works.WORKS`.
        intended: when it should have begun; in a closed loop the end of the operation before.
        parts, keys, value, rows: what it writes, for the oracle.
        warm: True if before the start; counts for the oracle but not for figures.
        outcome: `DONE`, `ABORTED` (nothing committed), `UNKNOWN`, `FAILED` (refused for another reason than a conflict).
        commit: the system's name of the commit.
        saw: for rows that it read and changed, key -> the operation that had written them.
        tries, holds: attempts, and the lock.
    """

    name: str
    writer: int
    role: str
    work: str
    intended: float
    began: float
    ended: float = 0.0
    parts: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    value: int = 0
    rows: int = 0
    warm: bool = False
    outcome: str = UNKNOWN
    reason: str = ""
    commit: str = ""
    saw: dict[str, str] = field(default_factory=dict)
    tries: list[Try] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)


_AT_BEGIN = ("name", "writer", "role", "work", "intended", "began", "parts", "keys", "value", "rows", "warm")
_AT_END = ("name", "ended", "outcome", "reason", "commit", "saw", "tries", "holds")


class Recorder:
    """The file of one writer's operations; each line reaches the system before the next step."""

    def __init__(self, path: Path) -> None:
        self._out: TextIO = path.open("a", buffering=1, encoding="utf-8")

    def begins(self, operation: Operation) -> None:
        """Record an operation of which nothing is written yet."""
        self._line(operation, _AT_BEGIN)

    def ends(self, operation: Operation) -> None:
        """Record how it ended."""
        self._line(operation, _AT_END)

    def _line(self, operation: Operation, names: tuple[str, ...]) -> None:
        facts = {
            name: value for name, value in asdict(operation).items() if name in names and (value or name == "name")
        }
        self._out.write(json.dumps(facts, default=str) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._out.close()


def read_operations(paths: Iterable[Path], *, start: float) -> list[Operation]:
    """Return all operations of some writers, by their beginning, with times since ``start``.

    A line that a kill has cut off counts as not written.
    """
    found = [_since(start, operation) for path in sorted(paths) for operation in _of_file(path)]
    return sorted(found, key=lambda each: (each.began, each.name))


def _of_file(path: Path) -> Iterator[Operation]:
    # An operation has two lines, or only the first if its writer was killed in between.
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        found.setdefault(facts["name"], {}).update(facts)
    for facts in found.values():
        yield operation_of(facts)


def _since(start: float, operation: Operation) -> Operation:
    for each in (operation, *operation.tries, *operation.holds):
        for name in ("intended", "began", "ended", "asked", "granted", "released"):
            if getattr(each, name, None):
                setattr(each, name, getattr(each, name) - start)
    return operation


def operation_of(facts: dict[str, Any]) -> Operation:
    """Return an operation from its plain values."""
    whole: dict[str, Any] = {"writer": 0, "role": "", "work": "", "intended": 0.0, "began": 0.0} | facts
    whole["tries"] = [Try(**each) for each in facts.get("tries", ())]
    whole["holds"] = [Hold(**each) for each in facts.get("holds", ())]
    whole["parts"], whole["keys"] = tuple(facts.get("parts", ())), tuple(facts.get("keys", ()))
    return Operation(**whole)
