"""Docstrings of what users call: each says what it does and describes its arguments, and none sends the reader elsewhere."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from lakelatch import Scan, Table, Transaction
from lakelatch.occ.writing import like, retried

VERBS = [
    name
    for name, each in inspect.getmembers(Table, inspect.isfunction)
    if "retries" in inspect.signature(each).parameters
]
PUBLIC = [
    pytest.param(each, id=f"{cls.__name__}.{name}")
    for cls in (Table, Transaction, Scan)
    for name, each in inspect.getmembers(cls)
    if not name.startswith("_")
]
# "See `Transaction.delete`", "as of `Table.read`", "arguments and errors as for `snapshot`".
_ELSEWHERE = re.compile(r"[^.;,]*\b(?:see|as (?:of|in|for))\s+`[^`]+`[^.;]*", re.IGNORECASE)


def says(doc: str) -> str:
    """Return what is left without references to other docstrings."""
    return _ELSEWHERE.sub("", doc)


@pytest.mark.whole
@pytest.mark.parametrize("each", PUBLIC)
def test_a_docstring_says_something_by_itself(each: Any) -> None:
    assert len(says(inspect.getdoc(each) or "").split()) >= 4


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_describes_its_arguments_result_and_errors(name: str) -> None:
    method = getattr(Table, name)
    doc = inspect.getdoc(method) or ""
    opening, arguments, returns, raises = re.split(r"\n(?:Args|Returns|Raises):\n", doc)
    assert opening
    assert returns.strip()
    assert "ConflictError:" in raises
    described = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert sorted(described) == sorted(set(inspect.signature(method).parameters) - {"self"})
    assert not re.search(r": as (?:of|in|for) `", doc)
    assert "seconds" in arguments


def test_the_verbs_are_all_looked_at() -> None:
    assert {"upsert", "insert", "delete", "delete_where", "update_where", "merge", "overwrite"} <= set(VERBS)


def test_only_references_are_nothing() -> None:
    assert not says("See `Transaction.delete`, and `upsert` for the rest.").strip(". ")
    assert not says("As for `snapshot`.").strip(". ")


def test_an_argument_is_described_once_and_shown_in_each_verb() -> None:
    def put(rows: Any, zone: str) -> None:
        """Put rows.

        Args:
            rows: in any form,
                or none.
            zone: of the times.

        Raises:
            InputError: they are odd.
        """

    @like(put)
    def add(rows: Any) -> None:
        """Add rows.

        Args:
            rows: as in `put`. None is fine.

        Raises:
            InputError: as in `put`.
        """

    @retried(add)
    def table_add(rows: Any) -> None:
        """Add rows to a table."""

    doc = inspect.getdoc(table_add) or ""
    assert doc.startswith(
        "Add rows to a table.\n\nArgs:\n    rows: in any form,\n        or none. None is fine.\n    retries: "
    )
    assert "\n\nRaises:\n    InputError: they are odd.\n    ConflictError: " in doc
