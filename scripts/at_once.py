"""Run named commands at once and tell how long each took: ``at_once.py 'fast: pytest tests' 'lint: ruff check'``.

With ``--at-most N`` first, the others wait in their order until one of N has ended; what stands after a command whose name
ends in an exclamation mark waits for that one. The first one's output appears as it comes, the others' when all have
ended. Exits with the worst code. A shell would start those in the background deaf to Ctrl-C, and all that they start as
well.
"""

import shlex
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor


def main(*arguments: str) -> int:
    """The worst exit code."""
    at_most, stages = (int(arguments[1]), arguments[2:]) if arguments[0] == "--at-most" else (len(arguments), arguments)
    commands = [(name, command) for name, _, command in (stage.partition(": ") for stage in stages)]
    over = [threading.Event() for _ in stages]
    logs = [tempfile.TemporaryFile() if number else None for number in range(len(stages))]  # noqa: SIM115 - gone with us
    running: list[subprocess.Popen[bytes]] = []
    interrupted = threading.Event()

    def run(number: int) -> tuple[int, float]:
        for (name, _), ended in zip(commands[:number], over, strict=False):
            if name.endswith("!"):
                ended.wait()
        began = time.monotonic()
        log = logs[number]
        try:
            if interrupted.is_set():
                return 1, 0.0
            process = subprocess.Popen(shlex.split(commands[number][1]), stdout=log, stderr=log)
            running.append(process)
            code, took_s = process.wait(), time.monotonic() - began
            if log is not None:
                print(
                    f"\n-- {commands[number][0]} has ended: {'ok' if not code else f'failed with {code}'}", flush=True
                )
            return code, took_s
        finally:
            over[number].set()

    workers = ThreadPoolExecutor(at_most)
    try:
        ended = list(workers.map(run, range(len(stages))))
    finally:
        interrupted.set()
        workers.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
    for (_, command), log in zip(commands, logs, strict=True):
        if log is not None:
            log.seek(0)
            print(f"\n$ {command}\n{log.read().decode(errors='replace')}", end="")
    for (name, _), (code, took_s) in zip(commands, ended, strict=True):
        print(f"-- {name}: {took_s:.0f} s" + (f", failed with {code}" if code else ""), flush=True)
    return max(abs(code) for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
