"""``lakelatch demo``: many writers on one table of real flights, one killed, the result checked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .performance import add_keep, perform

if TYPE_CHECKING:
    from ..demo.stage import Place
    from ..demo.story import Story


def run(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration. Return 0 when the result is right, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="lakelatch demo", description=__doc__)
    parser.add_argument("--writers", type=int, default=5, help="writer processes at once, 5 to 32 (default 5)")
    parser.add_argument("--rows", type=int, default=0, help="flights to start from (default: all 336,776)")
    parser.add_argument("--seed", type=int, default=0, help="chooses months, carrier and rows (default 0)")
    add_keep(parser)
    options = parser.parse_args(argv)
    if not 5 <= options.writers <= 32:
        parser.error("--writers must be between 5 and 32: four that land and one that is killed are the least")

    def play(console: Console, folder: Path) -> int:
        return _run(console, folder, writers=options.writers, rows=options.rows, seed=options.seed)

    return perform(parser, options, play)


def _run(console: Console, folder: Path, *, writers: int, rows: int, seed: int) -> int:
    from ..demo import story
    from ..demo.cluster import java_or_refuse
    from ..demo.stage import Place

    # Refused before the folder is made: a run without Java leaves nothing behind.
    java_or_refuse()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / "flights"
    return act(console, folder.resolve(), story.tell(writers=writers, rows=rows, seed=seed), Place(str(path), path))


def act(console: Console, folder: Path, told: Story, place: Place) -> int:
    """Run the story at a place, show it, and judge the table. Return 0 when the table is right, 1 when not."""
    from ..demo import stage, verdict
    from ..demo.show import Screen
    from ..occ.table import open as open_table

    screen = Screen(console, {task.name: task.title for task in told.tasks})
    for task in told.tasks:
        end = ", will be killed" if task.doomed else ", loses an executor" if task.loses_executor else ""
        months = f" ({task.months[0]} to {task.months[-1]})" if task.months else ""
        console.print(f"{task.name:<12}{task.title}{months}{end}", highlight=False)
    play = stage.Stage(told, folder, screen, place)
    play.make_table()
    try:
        with screen:
            play.perform()
    except stage.WriterFailed as e:
        console.print(f"WRONG  {e}", style="red", soft_wrap=True, markup=False)
        return 1
    with open_table(place.url, storage=place.storage) as table:
        screen.transactions(play.rows(table))
        findings = [play.executor_finding()] if place.cluster else []
        for finding in findings:
            screen.finding(finding)
        for finding in verdict.judge(table, told, list(table.session.log.entries()), place.files):
            screen.finding(finding)
            findings.append(finding)
    right = all(f.right for f in findings)
    console.print()
    screen.say("every change is there, none twice, none half" if right else "the table is not what it must be")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(run())
