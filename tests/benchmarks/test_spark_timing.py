"""The clock of the Spark benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakelatch.testing.contention import PATIENCE_S

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "spark"
# As PySpark's daemon does: anyone who ignores SIGCHLD is told nothing of the time of children that end.
SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from timing import timed

def burn(seconds):
    while time.process_time() < seconds:
        pass

def worker(first, then):
    told, tell = os.pipe()
    heard, hear = os.pipe()
    if not os.fork():
        os.close(hear)
        burn(first)
        os.write(tell, b"x")
        os.read(heard, 1)
        burn(first + then)
        os._exit(0)
    os.close(tell)
    os.read(told, 1)
    def end():
        os.close(hear)
        assert os.read(told, 1) == b""
    return end

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(timed(worker(0.6, 0))[1], timed(worker(0.3, 0.6))[1])
"""


def test_the_time_of_workers_that_end_stays_counted():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(BENCHMARKS)], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    idle, busy = map(float, ran.stdout.split())
    assert -0.05 < idle < 0.3  # the 0.6 s of before are neither counted nor taken off
    assert 0.4 < busy < 0.8
