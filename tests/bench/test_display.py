"""The display while the lab measures."""

from __future__ import annotations

import io

from rich.console import Console

from lakelatch.bench import Progress
from lakelatch.cli.bench.display import Display

DONE = {
    "scenario": "s",
    "writers": 2,
    "system": "[red]x\x1b[2J",
    "goodput": 12.34,
    "aborted": 3,
    "latency_ms": {"p99": 5.0},
}


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, legacy_windows=False), out


def test_it_shows_the_run_that_goes_on_and_those_that_are_done():
    where, out = console(terminal=True)
    with Display(where) as display:
        progress = Progress(
            "hot", 4, "peer %s {}", run=2, runs=9, seconds=7, elapsed=2, done=20, lost=3, finished=[DONE]
        )
        display(progress)
    told = out.getvalue()
    assert "run 2 of 9: hot, 4 writers, peer %s {}" in told
    assert "10.0 a second" in told
    assert "2 of 7 s, 20 landed, 3 attempts lost, 0 aborted" in told
    assert "12.3" in told
    assert "[red]x" in told
    assert "\x1b[2J" not in told, "a name clears no screen"


def test_a_run_without_a_rate_and_one_that_has_not_begun_are_shown():
    where, out = console(terminal=True)
    with Display(where) as display:
        display(Progress("hot", 4, "x", run=1, runs=1, finished=[{**DONE, "failed": "wrong"}]))
    assert "no rate" in out.getvalue()
    assert "starting" in out.getvalue()


def test_where_nobody_looks_nothing_is_written():
    where, out = console(terminal=False)
    with Display(where) as display:
        display(Progress("hot", 4, "x"))
    assert out.getvalue() == ""
