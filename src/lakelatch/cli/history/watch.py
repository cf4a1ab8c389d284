"""``lakelatch watch``.

JSON: one object a line, with ``slot`` (its place in the log), ``event`` (begin, plan, commit, abort, rollback, setting),
``instant``, ``completion``, ``operation``, ``writer``, ``reason`` and ``winner``; "" where there is none.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json, Url
from ..output import print_json, say

if TYPE_CHECKING:
    from ...occ.history import Event


def watch(
    url: Url,
    *,
    after: Annotated[
        str | None, typer.Option(metavar="T", help="Begin with what happened after this time; from now on otherwise.")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="Stop after so many lines.")] = None,
    every_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    json: Json = False,
) -> None:
    """Print each begin, commit, abort, rollback and plan as it happens, until Ctrl-C."""
    import lakelatch

    with lakelatch.open(url) as table:
        for event in islice(table.events(after=after, every_s=every_s), limit):
            if json:
                print_json(asdict(event), indent=None)
            else:
                say(_line(event))


def _line(event: Event) -> str:
    if event.event == "setting":
        return f"{'setting':<8}  {event.reason} by {event.writer}"
    at = f" at {event.completion}" if event.completion else ""
    lost = f" lost against {event.winner}" if event.winner else ""
    because = f": {event.reason}" if event.reason else ""
    return f"{event.event:<8}  {event.instant} {event.operation.lower()} by {event.writer}{at}{lost}{because}"
