"""The demonstrations as programs: ``python -m lakelatch.demo.commands flights``, ``cluster`` or ``streams``.

Each returns 0 when the result is right, 1 when it is not, 2 when it cannot run here, and 130 when it is interrupted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from rich.console import Console

from ..errors import LakeLatchError
from ..occ.table import open as open_table
from . import cluster as servers
from .neighbours import JVM, KILLED, OURS, ROLES, NeighbourStage
from .show import Screen
from .stage import Place, Stage, WriterFailed
from .story import WRITERS_MIN, Story, tell
from .stream_stage import VICTIM, StreamStage
from .verdict import judge
from .wide_row import sources

_WRITERS_MAX = 32
_HEARTBEAT_TIMEOUT_S = 5.0  # on a cluster: a dozen JVMs may share two cores


def flights(argv: Sequence[str] | None = None) -> int:
    """Let many writers change one table of real flights at once, kill one, and check the result."""
    parser = _parser("lakelatch demo", flights, writers=5)
    options = _parsed(parser, argv)

    def play(console: Console, folder: Path) -> int:
        servers.java_or_refuse()  # before the folder is made: a run without Java leaves nothing behind
        folder.mkdir(parents=True, exist_ok=True)
        story = tell(writers=options.writers, rows=options.rows, seed=options.seed)
        return _act(console, folder, story, Place(str(folder / "flights"), folder / "flights"))

    return _perform(parser, options, play)


def cluster(argv: Sequence[str] | None = None) -> int:
    """Let the writers be jobs on a Spark cluster, the table lie in S3; kill a driver and an executor."""
    parser = _parser("make demo-cluster", cluster, writers=7)
    parser.add_argument(
        "--s3a", metavar="FOLDER", type=Path, help="jars of hadoop-aws; without it Python workers read S3"
    )
    options = _parsed(parser, argv)

    def play(console: Console, folder: Path) -> int:
        logs = folder / "servers"
        logs.mkdir(parents=True)
        story = tell(writers=options.writers, rows=options.rows, seed=options.seed, cluster=True)
        with ExitStack() as stack:
            url, storage, objects = stack.enter_context(servers.s3_server(logs))
            lock = stack.enter_context(servers.redis_server(logs))
            # Each Spark writer has one executor of one core, on either host; so has the one that replaces the dead writer.
            cores = sum(task.spark for task in story.tasks)
            spark = stack.enter_context(servers.spark_cluster(logs, cores=cores))
            place = Place(
                f"{url}/flights",
                objects / "flights",
                storage=storage,
                settings={
                    "lock": lock,
                    "heartbeat_interval_s": _HEARTBEAT_TIMEOUT_S / 4,
                    "heartbeat_timeout_s": _HEARTBEAT_TIMEOUT_S,
                },
                spark=_session(spark.url, options.s3a),
                cluster=spark,
            )
            hosts = " and ".join(servers.HOSTS)
            console.print(f"Spark at {spark.url} with workers on {hosts}, S3 at {storage['endpoint']}, lock at {lock}")
            return _act(console, folder, story, place)

    return _perform(parser, options, play)


def streams(argv: Sequence[str] | None = None) -> int:
    """Let four jobs fill one wide row of each flight, and compare the result with the join."""
    parser = _parser("make demo-streams", streams, rows=50_000)
    parser.add_argument("--plain", action="store_true", help="all jobs in plain Python; three are PySpark's otherwise")
    options = _parsed(parser, argv)

    def play(console: Console, folder: Path) -> int:
        if not options.plain:
            servers.java_or_refuse()
        folder.mkdir(parents=True, exist_ok=True)

        def say(text: str, style: str = "") -> None:
            console.print(text, style=style, highlight=False, markup=False)

        found = sources(options.rows)
        spark = frozenset() if options.plain else frozenset(each.name for each in found) - {"planes"}
        for source in found:
            end = ", will be killed" if source.name == VICTIM else ""
            how = "PySpark" if source.name in spark else "plain Python"
            say(f"{source.name:<12}{source.rows.num_rows:,} rows of {', '.join(source.columns)} ({how}{end})")
        stage = StreamStage(found, folder, spark=spark, seed=options.seed, say=say)
        stage.make_table()
        try:
            stage.perform()
        except WriterFailed as e:
            say(str(e), "red")
            return 1
        for name, line in stage.who_wrote_when():
            say(f"{name:<12}{line}")
        verdict = stage.verdict()
        for what, right in verdict:
            say(f"{'ok' if right else 'WRONG':<6}{what}", "" if right else "red")
        return 0 if all(right for _, right in verdict) else 1

    return _perform(parser, options, play)


def neighbours(argv: Sequence[str] | None = None) -> int:
    """Let JVM jobs of Hudi, a PySpark job and plain Python change one table; kill one of each side, and check the result."""
    parser = argparse.ArgumentParser(prog="make demo-neighbours", description=neighbours.__doc__)
    parser.add_argument("--jvm", metavar="FOLDER", type=Path, default=Path(".cache/jvm"), help="PySpark 3.5 and Hudi")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the table and the writers' logs there")
    options = _parsed(parser, argv)

    def play(console: Console, folder: Path) -> int:
        servers.java_or_refuse()
        folder.mkdir(parents=True, exist_ok=True)

        def say(text: str, style: str = "") -> None:
            console.print(text, style=style, highlight=False, markup=False)

        stage = NeighbourStage(folder, options.jvm.resolve(), say)
        for name, rounds in (JVM | OURS).items():
            end = ", will be killed" if name in KILLED else ""
            say(f"{name:<12}{rounds} rounds ({ROLES[name]}{end})")
        stage.make_table()
        try:
            stage.perform()
            verdict = list(stage.verdict())
        except WriterFailed as e:
            say(str(e), "red")
            return 1
        for what, right in verdict:
            say(f"{'ok' if right else 'WRONG':<6}{what}", "" if right else "red")
        return 0 if all(right for _, right in verdict) else 1

    return _perform(parser, options, play)


def _parser(
    program: str, run: Callable[..., int], *, rows: int = 0, writers: int | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the options that demonstrations share; those without a number of writers have no such option."""
    parser = argparse.ArgumentParser(prog=program, description=run.__doc__)
    if writers is not None:
        known = f"writer processes at once, {WRITERS_MIN} to {_WRITERS_MAX} (default {writers})"
        parser.add_argument("--writers", type=int, default=writers, help=known)
    known = f"{rows:,}; 0: all 336,776" if rows else "all 336,776"
    parser.add_argument("--rows", type=int, default=rows, help=f"flights to start from (default: {known})")
    parser.add_argument("--seed", type=int, default=0, help="chooses what is left to chance (default 0)")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the table and the writers' logs there")
    return parser


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser.parse_args(argv)
    if not WRITERS_MIN <= getattr(options, "writers", WRITERS_MIN) <= _WRITERS_MAX:
        parser.error(
            f"--writers must be between {WRITERS_MIN} and {_WRITERS_MAX}: four that land and one that is killed are the least"
        )
    if 0 < getattr(options, "rows", 0) < 1000:
        parser.error("--rows must be at least 1000, so that everybody finds rows")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep {options.keep} is not empty; name a new folder")
    return options


def _perform(parser: argparse.ArgumentParser, options: argparse.Namespace, play: Callable[[Console, Path], int]) -> int:
    """Run ``play`` in a folder, and return the exit code."""
    # On a pipe rich takes 80 columns; the final table needs more, and nothing wraps there anyway.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    try:
        with ExitStack() as stack:
            folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakelatch-demo-")))
            return play(console, folder.resolve())
    except LakeLatchError as e:
        console.print(f"{parser.prog}: {e}", style="red", soft_wrap=True, markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def _act(console: Console, folder: Path, story: Story, place: Place) -> int:
    """Run the story at a place, show it, and judge the table. Return 0 when the table is right, 1 when not."""
    screen = Screen(console, {task.name: task.title for task in story.tasks})
    for task in story.tasks:
        end = ", will be killed" if task.doomed else ", loses an executor" if task.loses_executor else ""
        months = f" ({task.months[0]} to {task.months[-1]})" if task.months else ""
        console.print(f"{task.name:<12}{task.title}{months}{end}", highlight=False)
    stage = Stage(story, folder, screen, place)
    stage.make_table()
    try:
        with screen:
            stage.perform()
    except WriterFailed as e:
        console.print(f"WRONG  {e}", style="red", soft_wrap=True, markup=False)
        return 1
    right = True
    with open_table(place.url, storage=place.storage) as table:
        screen.transactions(stage.rows(table))
        findings = judge(table, story, list(table.session.log.entries()), place.files)
        for finding in chain([stage.executor_finding()] if place.cluster else [], findings):
            screen.finding(finding)
            right = right and finding.right
    console.print()
    screen.say("every change is there, none twice, none half" if right else "the table is not what it must be")
    return 0 if right else 1


def _session(master: str, jars: Path | None) -> dict[str, str]:
    found = {
        "spark.master": master,
        "spark.cores.max": "1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",  # a dead executor fills the log otherwise
    }
    if jars is not None and jars.is_dir():
        found |= {f"spark.{each}.extraClassPath": f"{jars.resolve()}/*" for each in ("driver", "executor")}
    return found


if __name__ == "__main__":
    sys.exit(
        {"flights": flights, "cluster": cluster, "streams": streams, "neighbours": neighbours}[sys.argv[1]](
            sys.argv[2:]
        )
    )
