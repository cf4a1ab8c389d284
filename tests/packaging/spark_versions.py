"""The core of the Spark tests on each line of PySpark that pyproject.toml allows, each in an environment of its own.

    make matrix-spark [ARGS="--spark 4.0 --spark 4.1"]

Without the newest one, which `make test` runs. Also a real session of Spark Connect (connect.py).
Packages come from where pip gets them. Hadoop's S3 file system is of one version, so S3 stays with `make test`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .extras import ROOT, Failed, run, uv

LINES = ("3.5", "4.0", "4.1", "4.2")
CORE = ("writes", "reads", "merge_on_read", "sink", "sessions", "shipping")


def one(line: str, folder: Path) -> str:
    """What became of one line, in words that begin with ok or FAILED."""
    python = folder / "bin/python"
    try:
        uv("venv", "--python", sys.executable, str(folder))
        needs = ("-e", f"{ROOT}[cloud,redis,demo,testing]", f"pyspark[connect]=={line}.*", "pytest-timeout")
        uv("pip", "install", "--python", str(python), *needs)
        ours = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON")}
        run([str(python), str(ROOT / "tests/packaging/connect.py"), str(folder / "table")], cwd=folder, env=ours)
    except Failed as e:
        return f"FAILED: {e}"
    tests = [str(ROOT / "tests/spark" / f"test_{name}.py") for name in CORE]
    told = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, env=ours, capture_output=True, text=True, check=False,
    )  # fmt: skip
    version = subprocess.run(
        [str(python), "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    last = re.sub(r"^=+ | =+$", "", told.stdout.strip().rpartition("\n")[2])
    if told.returncode:
        return f"FAILED: PySpark {version}\n{told.stdout[-6000:]}"
    return f"ok: PySpark {version}, {last}"


def main() -> int:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--spark", action="append", choices=LINES)
    told.add_argument("--keep", metavar="FOLDER", type=Path, help="make the environments there, and leave them")
    given = told.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lakelatch-spark-") as name:
        for line in given.spark or LINES:
            told_of = one(line, (given.keep or Path(name)) / line)
            print(f"{line} {told_of}", flush=True)
            failed += told_of.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
