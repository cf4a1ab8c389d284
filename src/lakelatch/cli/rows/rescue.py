"""``lakelatch rescue``.

JSON: ``instant``, ``hidden_by`` (T of the commits that hide its rows), ``paths`` (files that have them), ``rows`` (number to be
written), ``newer`` (keys written since, which keep their values), and ``written``: T of the commit that wrote them, or null.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Url
from ..output import count_text, print_json, say
from .text import json_line


def rescue(
    url: Url,
    instant: Annotated[
        str, typer.Argument(metavar="INSTANT", help="The commit whose rows are lost, as `check` names it.")
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Write them; otherwise they are only shown.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Show so many rows at most.")] = 20,
    json: Json = False,
) -> None:
    """Write the rows again that a commit wrote and another, which had not seen it, hides.

    Such a loss needs a writer of another engine that took no lock, or a holder paused past its lease; `check` names it.
    """
    import lakelatch

    with lakelatch.open(url) as table:
        written = None
        if yes:
            done = table.rescue(instant)
            found, written = done.value, done.commit.instant if done.commit else None
        else:
            found = table.lost_rows(instant)
        url = table.url
    if json:
        told = {"instant": found.instant, "hidden_by": found.hidden_by, "paths": found.paths}
        print_json(told | {"rows": found.rows.num_rows, "newer": found.newer, "written": written})
        return
    say(f"{found.instant}, hidden by {', '.join(found.hidden_by)}: {count_text(found.rows.num_rows, 'lost row')}")
    for row in found.rows.slice(0, limit).to_pylist():
        say(f"  {json_line(row)}")
    if (more := found.rows.num_rows - limit) > 0:
        say(f"  and {count_text(more, 'more row')}")
    if found.newer:
        say(f"{count_text(found.newer, 'key')} written since: not changed")
    if written:
        say(f"written again by {written}")
    elif found.rows.num_rows:
        say(f"nothing was written; `lakelatch rescue {url} {found.instant} --yes` writes them")
