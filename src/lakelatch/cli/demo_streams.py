"""``make demo-streams``: four jobs fill one wide row of each flight, and the result is compared with the join."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .performance import add_keep, perform


def run(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration. Return 0 when the result is right, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="make demo-streams", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="flights (default 50,000; 0: all 336,776)")
    parser.add_argument("--seed", type=int, default=0, help="chooses which events are late or come twice (default 0)")
    parser.add_argument("--plain", action="store_true", help="all jobs in plain Python; three are PySpark's otherwise")
    add_keep(parser)
    options = parser.parse_args(argv)

    def play(console: Console, folder: Path) -> int:
        return _run(console, folder, rows=options.rows, seed=options.seed, plain=options.plain)

    return perform(parser, options, play)


def _run(console: Console, folder: Path, *, rows: int, seed: int, plain: bool) -> int:
    from ..demo.cluster import java_or_refuse
    from ..demo.stream_stage import VICTIM, JobFailed, StreamStage
    from ..demo.wide_row import sources

    if not plain:
        java_or_refuse()
    folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    found = sources(rows)
    for source in found:
        end = ", will be killed" if source.name == VICTIM else ""
        how = "plain Python" if plain or source.name == "planes" else "PySpark"
        say(f"{source.name:<12}{source.rows.num_rows:,} rows of {', '.join(source.columns)} ({how}{end})")
    spark = frozenset() if plain else frozenset(each.name for each in found) - {"planes"}
    stage = StreamStage(found, folder.resolve(), spark=spark, seed=seed, say=say)
    stage.make_table()
    try:
        stage.perform()
    except JobFailed as e:
        console.print(str(e), style="red", markup=False)
        return 1
    for name, line in stage.who_wrote_when():
        say(f"{name:<12}{line}")
    verdict = stage.verdict()
    for what, right in verdict:
        console.print(f"{'ok' if right else 'WRONG':<6}{what}", style="" if right else "red", highlight=False)
    return 0 if all(right for _, right in verdict) else 1


if __name__ == "__main__":
    sys.exit(run())
