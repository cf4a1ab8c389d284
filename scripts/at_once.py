"""Run named commands at once and tell how long each took: ``at_once.py 'fast: pytest tests' 'lint: ruff check'``.

The first one's output appears as it comes, the others' when they have ended. Exits with the worst code. A shell would
start those in the background deaf to Ctrl-C, and all that they start as well.
"""

import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor


def main(*stages: str) -> int:
    """The worst exit code."""
    began = time.monotonic()
    running = []

    def wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
        return process.wait(), time.monotonic() - began

    try:
        for number, stage in enumerate(stages):
            name, _, command = stage.partition(": ")
            log = tempfile.TemporaryFile() if number else None  # noqa: SIM115 - read below, gone with this process
            running.append((name, command, log, subprocess.Popen(shlex.split(command), stdout=log, stderr=log)))
        with ThreadPoolExecutor(len(running)) as waiting:
            ended = list(waiting.map(wait, (process for *_, process in running)))
        for _name, command, log, _process in running:
            if log is not None:
                log.seek(0)
                print(f"\n$ {command}\n{log.read().decode(errors='replace')}", end="")
        for (name, *_), (code, took_s) in zip(running, ended, strict=True):
            print(f"-- {name}: {took_s:.0f} s" + (f", failed with {code}" if code else ""), flush=True)
    finally:
        for *_, process in running:
            process.terminate()
    return max(abs(code) for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
