"""``lakelatch locks check``: does a lock service keep its promises?

JSON: ``url``, ``kept``, ``findings`` (``promise``, ``kept``, ``seen``), ``figures`` (numbers by name), ``limits``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from .output import Waiting, print_json, print_pairs, print_table, wrapped

if TYPE_CHECKING:
    from ..locks.checkup import Verdict

BROKEN = 1


def check(url: str, *, processes: int, seconds: float, json: bool) -> None:
    """Try the locks at ``url`` and print a verdict; ends with exit code 1 when a promise was broken."""
    from ..locks.checkup import check_up

    with Waiting("trying the locks") as progress:
        verdict = check_up(url, processes=processes, seconds=seconds, progress=lambda what: progress(f"trying: {what}"))
    if json:
        print_json(asdict(verdict) | {"kept": verdict.kept})
    else:
        print_verdict(verdict)
    if not verdict.kept:
        raise typer.Exit(BROKEN)


def print_verdict(verdict: Verdict) -> None:
    """For people."""
    rows = [("yes" if each.kept else "NO", each.promise, each.seen) for each in verdict.findings]
    print_table(("kept", "promise", "what was seen"), rows, fold=("promise", "what was seen"))
    typer.echo()
    print_pairs([(name.replace("_", " "), f"{value:.3g}") for name, value in verdict.figures.items()])
    typer.echo()
    for limit in verdict.limits:
        typer.echo(wrapped(f"not promised: {limit}"))
    broken = sum(not each.kept for each in verdict.findings)
    typer.echo(
        f"{verdict.url} does NOT keep its promises: {broken} of {len(verdict.findings)} broken; do not use it"
        if broken
        else f"{verdict.url} keeps its promises"
    )
