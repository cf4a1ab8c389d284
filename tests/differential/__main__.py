"""`python -m tests.differential 500 [--seed N] [--spark 10]`: so many stories, and what became of them.

Story n has the seed N + n, so that ``1 --seed M`` tells story M again. The last ones write through Spark as well.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .story import Story

MEMORY = Path("/dev/shm")  # nothing here is about power failures, and flushing takes most of the time


def told(seed: int) -> str:
    """Nothing, or what went wrong in the story of this seed."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="differential-") as folder:
        try:
            Story(Path(folder) / "table", seed).run()
        except Exception:  # every kind is a finding
            return traceback.format_exc()
    return ""


def told_in_spark(seed: int) -> str:
    """The same of one that writes through Spark."""
    from .in_spark import SparkStory

    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        try:
            SparkStory(Path(folder) / "table", seed, tasks=bool(seed % 2)).run()
        except Exception:
            return traceback.format_exc()
    return ""


def main() -> int:
    """The exit code."""
    parse = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parse.add_argument("stories", type=int)
    parse.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parse.add_argument("--spark", type=int, default=0, metavar="STORIES")
    given = parse.parse_args()
    plain = range(given.seed, given.seed + given.stories - given.spark)
    in_spark = range(plain.stop, plain.stop + given.spark)
    found: dict[int, str] = {}
    with ProcessPoolExecutor() as pool:
        found |= zip(plain, pool.map(told, plain, chunksize=10), strict=True)
    for seed in in_spark:
        found[seed] = told_in_spark(seed)
    failed = {seed: text for seed, text in found.items() if text}
    for seed, text in failed.items():
        again = f"python -m tests.differential 1 --seed {seed}" + (" --spark 1" if seed in in_spark else "")
        print(f"\n{text}\nseed {seed} failed; {again} tells it again")
    print(f"{len(found)} stories from seed {given.seed}, {given.spark} of them in Spark: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
