"""``lakelatch diff``.

JSON: one line for each row that differs, with ``partition``, ``key``, ``kind`` (added, changed, removed), ``before`` and
``after`` (its columns, null where it is not there) and ``columns`` (that changed, else null). Then a last line ``summary``
with ``before``, ``after`` (T), and the numbers ``added``, ``changed`` and ``removed``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import Lines, Url
from ..output import say
from .text import json_line

if TYPE_CHECKING:
    from ...occ.scan import Difference

State = Annotated[
    str, typer.Argument(metavar="T", help="Requested time, as `lakelatch timeline` prints it, or a date.")
]
_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


def diff(
    url: Url,
    before: State,
    after: State,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="So many of the rows at most.")] = 20,
    json: Lines = False,
) -> None:
    """Print which rows were added (+), changed (~) and removed (-) between two states, by partition and record key."""
    import lakelatch

    from ...occ.scan import differences

    numbers = dict.fromkeys(("added", "changed", "removed"), 0)
    shown = 0
    with lakelatch.open(url) as table:
        for each in differences(table.session, before, after):
            numbers[each.kind] += each.rows
            # The rest is still counted: the summary covers all rows.
            if not json and shown >= limit:
                continue
            for row in _rows(each):
                if json:
                    sys.stdout.write(json_line(row) + "\n")
                    continue
                if shown >= limit:
                    break
                shown += 1
                _print(row)
    if json:
        sys.stdout.write(json_line({"summary": {"before": before, "after": after, **numbers}}) + "\n")
        return
    if sum(numbers.values()) > shown:
        say(f"and {sum(numbers.values()) - shown:,} more; --limit shows more, --json all")
    say(", ".join(f"{number:,} {kind}" for kind, number in numbers.items())
        + f": rows by partition and record key, from {before} to {after}")  # fmt: skip


def _rows(found: Difference) -> Iterator[dict[str, Any]]:
    from ...hudi.table import RECORD_KEY, python_rows

    sides = [python_rows(each) if each is not None else [None] * found.rows for each in (found.before, found.after)]
    for was, now in zip(*sides, strict=True):
        key = (now or was)[RECORD_KEY]
        was, now = ({n: v for n, v in each.items() if n != RECORD_KEY} if each else None for each in (was, now))
        changed = None
        if was is not None and now is not None:
            # Compared as texts: NaN equals itself there, while 1, 1.0 and True differ.
            changed = [name for name in now if repr(was[name]) != repr(now[name])]
        yield {
            "partition": found.partition, "key": key, "kind": found.kind, "columns": changed, "before": was, "after": now,
        }  # fmt: skip


def _print(row: dict[str, Any]) -> None:
    where = f"{row['partition']}/{row['key']}" if row["partition"] else row["key"]
    words = ""
    if row["columns"]:
        words = ": " + ", ".join(
            f"{name} {json_line({'': row['before'][name]})[5:-1]} -> {json_line({'': row['after'][name]})[5:-1]}"
            for name in row["columns"]
        )
    say(f"{_SIGNS[row['kind']]} {where}{words}")
