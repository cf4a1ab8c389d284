"""``lakelatch locks check``: does a lock service keep its promises?

JSON: ``url``, ``verdict`` (keeps, breaks, untried), ``kept`` (true, false, or null where that could not be tried),
``findings`` (``promise``, ``kept``, ``seen``), ``figures`` (numbers by name), ``limits``.
"""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json, LockUrl
from ..outcome import COULD_NOT
from ..output import Waiting, print_json, print_pairs, print_table, say, wrapped

if TYPE_CHECKING:
    from ...locks.checkup import Verdict

_ENDS = {True: ("keeps", 0), False: ("breaks", 1), None: ("untried", COULD_NOT)}
_MARKS = {True: "yes", False: "NO", None: "not tried"}


def check(
    lock: LockUrl,
    *,
    processes: Annotated[int, typer.Option(min=2, max=64, help="How many processes contend.")] = 4,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long they do.")] = 2.0,
    json: Json = False,
) -> None:
    """Check that a lock service keeps its promises, and measure it.

    Takes ten to thirty seconds and uses keys that begin with lakelatch-check-. Exit code 0: every
    promise was kept; 1: one was broken; 2: one could not be tried, with the reason.
    """
    from ...locks.checkup import check_up

    with Waiting("trying the locks") as progress:
        verdict = check_up(
            lock, processes=processes, seconds=seconds, progress=lambda what: progress(f"trying: {what}")
        )
    word, code = _ENDS[verdict.kept]
    if json:
        print_json(asdict(verdict) | {"verdict": word, "kept": verdict.kept})
    else:
        print_verdict(verdict)
    if code:
        raise typer.Exit(code)


def print_verdict(verdict: Verdict) -> None:
    """Print the verdict for people, and then what it rests on."""
    count = {kept: sum(each.kept is kept for each in verdict.findings) for kept in _MARKS}
    end = {
        True: "keeps its promises",
        False: f"does NOT keep its promises: {count[False]} of {len(verdict.findings)} broken; do not use it",
        None: f"could not be tried: {count[None]} of {len(verdict.findings)} promises are open, for the reason below",
    }
    say(f"{verdict.url} {end[verdict.kept]}")
    say()
    rows = [(_MARKS[each.kept], each.promise, each.seen) for each in verdict.findings]
    print_table(("kept", "promise", "what was seen"), rows, fold=("promise", "what was seen"))
    say()
    print_pairs([(name.replace("_", " "), figure(value)) for name, value in verdict.figures.items()])
    say()
    for limit in verdict.limits:
        typer.echo(wrapped(f"not promised: {limit}"))


def figure(value: float) -> str:
    """Return a number with three digits that count, and none of its powers of ten: 0.123, 5,260."""
    return f"{Decimal(f'{value:.3g}'):,f}"
