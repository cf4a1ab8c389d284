"""The demonstration on a Spark cluster, as `make demo-cluster` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakelatch.testing.contention import PATIENCE_S

from ..servers import TOOLS, require
from ..servers.spark_cluster import S3A


@pytest.mark.spark
@pytest.mark.process
def test_the_demonstration_runs_on_a_cluster_and_a_driver_and_an_executor_die(tmp_path: Path) -> None:
    for program in ("java", "versitygw", "redis-server"):
        require(program)
    command = [sys.executable, "-m", "lakelatch.demo.commands", "cluster", "--rows", "20000", "--writers", "5"]
    command += ["--keep", str(tmp_path), *(["--s3a", str(S3A)] if S3A.is_dir() else [])]
    environment = os.environ | {"PATH": f"{TOOLS}/bin{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count("ok   ") == 6
    assert "corrections loses its executor by SIGKILL" in done.stdout
    assert "doomed      killed with SIGKILL" in done.stdout
    assert "rolled back by" in done.stdout
    assert "lost against arrivals" in done.stdout


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakelatch.demo.commands", "cluster", "--rows", "1000", "--keep", str(tmp_path)]
    done = subprocess.run(
        command,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "needs versitygw, an S3 server, which is not on the PATH: `make demo-cluster`" in done.stdout
