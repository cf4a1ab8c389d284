"""``make demo-cluster``: the demonstration on a Spark cluster, its table in S3; a driver and an executor are killed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from .demo import act
from .performance import add_keep, perform

_TIMEOUT_S = 5.0  # of heartbeats: a dozen JVMs may share two cores


def run(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration. Return 0 when the result is right, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="make demo-cluster", description=__doc__)
    parser.add_argument("--writers", type=int, default=7, help="writer processes at once, 5 to 32 (default 7)")
    parser.add_argument("--rows", type=int, default=0, help="flights to start from (default: all 336,776)")
    parser.add_argument("--seed", type=int, default=0, help="chooses months, carrier and rows (default 0)")
    parser.add_argument(
        "--s3a", metavar="FOLDER", type=Path, help="jars of hadoop-aws; without it Python workers read S3"
    )
    add_keep(parser)
    options = parser.parse_args(argv)
    if not 5 <= options.writers <= 32:
        parser.error("--writers must be between 5 and 32: four that land and one that is killed are the least")

    def play(console: Console, folder: Path) -> int:
        return _run(console, folder, options)

    return perform(parser, options, play)


def _run(console: Console, folder: Path, options: argparse.Namespace) -> int:
    from ..demo import cluster, story
    from ..demo.stage import Place

    folder = folder.resolve()
    servers = folder / "servers"
    servers.mkdir(parents=True)
    told = story.tell(writers=options.writers, rows=options.rows, seed=options.seed, cluster=True)
    with ExitStack() as stack:
        url, storage, objects = stack.enter_context(cluster.s3_server(servers))
        lock = stack.enter_context(cluster.redis_server(servers))
        # Each Spark writer has one executor of one core, on either host; so has the one that replaces the dead writer.
        cores = sum(task.spark for task in told.tasks)
        spark = stack.enter_context(cluster.spark_cluster(servers, cores=cores))
        place = Place(
            f"{url}/flights",
            objects / "flights",
            storage=storage,
            settings={"lock": lock, "heartbeat_interval_s": _TIMEOUT_S / 4, "heartbeat_timeout_s": _TIMEOUT_S},
            spark=_session(spark.url, options.s3a),
            cluster=spark,
        )
        hosts = " and ".join(cluster.HOSTS)
        console.print(f"Spark at {spark.url} with workers on {hosts}, S3 at {storage['endpoint']}, lock at {lock}")
        return act(console, folder, told, place)


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
    sys.exit(run())
