"""The command ``lakelatch bench run`` from its plan on, and the values of its options."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ...bench import Plan, Progress, measure, read
from ...bench.report import aborted, advise, write
from ...errors import ConfigError
from ...occ.entries import Settings
from ..outcome import INTERRUPTED
from ..output import print_json, print_table, say, wrapped
from .display import Display


def measured(plan: Plan, *, json: bool) -> int:
    """Measure, show the progress, write the report and print the figures. Return the exit code."""
    try:
        with Display() as display, interruptible(display) as on_progress:
            measure(plan, on_progress)
    except KeyboardInterrupt:
        _report(plan.out, json=json)
        say(f"interrupted; what was found so far is in {plan.out}", err=True)
        return INTERRUPTED
    return int(_report(plan.out, json=json))


def _report(out: Path, *, json: bool) -> bool:
    """Write the report and print the figures. Return whether any run was wrong."""
    results = read(out)
    made = write(results)
    if json:
        for each in results.runs:
            print_json(each, indent=None)
        return bool(results.wrong)
    rows = []
    fixed = any(cell.fixed for cell in results.cells())
    for cell in results.cells():
        if cell.wrong or not cell.good:
            words = cell.wrong or "ended before its end"
            rows.append(
                (cell.scenario, str(cell.writers), cell.system, *([""] if fixed else []), "no rate", "", "", "", words)
            )
            continue
        p50, p99 = (cell.spread("latency_ms", p).median for p in ("p50", "p99"))
        attempts = cell.spread("attempts_per_commit").median
        rows.append((
            cell.scenario, str(cell.writers), cell.system, *([cell.until_all.text(2)] if fixed else []), cell.goodput.text(),
            aborted(cell), f"{attempts:.2f}", f"{p50:.1f} / {p99:.1f}", "",
        ))  # fmt: skip
    headers = (
        "scenario", "writers", "system", *(["s until all are done"] if fixed else []), "per second", "aborted", "attempts",
        "p50 / p99 ms", "",
    )  # fmt: skip
    print_table(headers, rows, right=headers[3:-1], fold=("", "system"))
    say()
    for scenario, cells in results.scenarios().items():
        for advice in advise(cells):
            typer.echo(wrapped(f"{scenario}: {advice.words}"))
    for words in results.skipped:
        say(f"not measured: {words}")
    say(f"report: {', '.join(map(str, made))}")
    return bool(results.wrong)


def numbers(text: str) -> tuple[int, ...]:
    """Parse numbers with commas between them."""
    try:
        return tuple(int(each) for each in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"--writers {text!r} is no list of numbers; write 1,4,16") from None


def parsed_settings(given: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE, each with the type of its field."""
    found: dict[str, Any] = {}
    known = Settings().plain()
    for each in given:
        name, there, text = each.partition("=")
        if not there or name not in known:
            raise ConfigError(
                f"--setting {each!r} is no setting; write NAME=VALUE with one of {', '.join(sorted(known))}"
            )
        found[name] = _value(name, text, known[name])
    return found


def _value(name: str, text: str, default: object) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"--setting {name}={text} is neither true nor false")
        return text.lower() == "true"
    if Settings.declared()[name].option in (int, float):
        try:
            return float(text) if isinstance(default, float) else int(text)
        except ValueError:
            raise ConfigError(f"--setting {name}={text} is no number") from None
    return text.split(",") if name == "unique_constraints" or (name == "statistics" and text != "all") else text


@contextmanager
def interruptible(on_progress: Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """Let SIGTERM end the lab as Ctrl-C does, with its processes and tables. Yield the callback to use meanwhile.

    Python drops an exception that a handler raises inside a finalizer; the next call of the callback raises it then.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def reported(progress: Progress) -> None:
        if interrupted:
            raise KeyboardInterrupt
        on_progress(progress)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield reported
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
