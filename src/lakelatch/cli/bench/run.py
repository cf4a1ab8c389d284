"""``lakelatch bench run``: make the plan, show its progress, write the report.

JSON: each run as one line, as ``results.jsonl`` has it (docs/bench.md).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ...bench import Plan, Progress, contenders, load, measure, read
from ...bench.report import aborted, advise, write
from ...errors import ConfigError
from ...occ.entries import Settings
from ..outcome import INTERRUPTED
from ..output import print_json, print_table, say, wrapped
from .display import Display


def run(
    names: Sequence[str],
    *,
    locks: Sequence[str],
    strategies: Sequence[str],
    isolations: Sequence[str],
    settings: Sequence[str],
    writers: str,
    seconds: float,
    rounds: int,
    operations: int,
    place: str | None,
    keep: bool,
    peers: Sequence[str],
    ours: bool,
    out: Path | None,
    seed: int,
    json: bool,
) -> None:
    """Measure, and write the report; see `lakelatch bench run`."""
    found, skipped = contenders(
        locks=locks, strategies=strategies, isolations=isolations, settings=_settings(settings), peers=peers, ours=ours
    )
    plan = Plan(
        tuple(map(load, names)),
        tuple(found),
        out or Path(f"bench-{time.strftime('%Y%m%d-%H%M%S')}"),
        writers=_numbers(writers),
        seconds=seconds,
        rounds=rounds,
        operations=operations,
        place=place,
        keep=keep,
        seed=seed,
    )
    for words in skipped:
        say(words, err=True)
    try:
        with Display() as display, interruptible(display) as tell:
            measure(plan, tell)
    except KeyboardInterrupt:
        _tell(plan.out, json=json)
        say(f"interrupted; what was found so far is in {plan.out}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if _tell(plan.out, json=json):
        raise typer.Exit(1)


def _tell(out: Path, *, json: bool) -> bool:
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


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"--writers {text!r} is no list of numbers; write 1,4,16") from None


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE, each with the type of its field."""
    found: dict[str, Any] = {}
    default = Settings()  # its JSON leaves out settings that earlier versions do not know
    known = default.to_json() | {"group_commit": default.group_commit, "archive_above": default.archive_above}
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
    if isinstance(default, int | float) or name == "bucket_count":
        try:
            return float(text) if isinstance(default, float) else int(text)
        except ValueError:
            raise ConfigError(f"--setting {name}={text} is no number") from None
    return text.split(",") if name == "unique_constraints" or (name == "statistics" and text != "all") else text


@contextmanager
def interruptible(tell: Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """Let SIGTERM end the lab as Ctrl-C does, with its processes and tables. Yield the ``tell`` to call meanwhile.

    Python drops an exception that a handler raises inside a finalizer; the next call of ``tell`` raises it then.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def telling(progress: Progress) -> None:
        if interrupted:
            raise KeyboardInterrupt
        tell(progress)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield telling
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
