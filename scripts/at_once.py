"""Run named commands at once: ``at_once.py 'fast: pytest tests' 'lint: ruff check'``. Tell how long each took, and its CPU.

With ``--at-most N`` first, the others wait in their order until one of N has ended; what stands after a command whose name
ends in an exclamation mark waits for that one. The first one's output appears as it comes, the others' when all have
ended. Exits with the worst code. A shell would start those in the background deaf to Ctrl-C, and all that they start as
well.

Their temporary folder lies in memory, if there is room: tests flush and delete hundreds of thousands of small files, and on
a disk wait for little else. ``TMPDIR`` names another one.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

_MEMORY, _ROOM = "/dev/shm", 8 << 30  # noqa: S108 - a folder of a name of its own is made in it


@contextmanager
def scratch() -> Iterator[dict[str, str]]:
    """Yield the environment that names the temporary folder; it goes with the block."""
    folder, named = "", dict[str, str]()
    try:
        with suppress(OSError):
            room = os.statvfs(_MEMORY)
            if room.f_bavail * room.f_frsize >= _ROOM and not room.f_flag & os.ST_NOEXEC:
                folder = tempfile.mkdtemp(prefix="ll-", dir=_MEMORY)  # short, since sockets lie in it
                os.chmod(folder, 0o711)  # noqa: S103 - PostgreSQL runs as another user, and its data lie below
                os.setxattr(folder, "user.lakelatch", b"")  # one of the S3 servers keeps what it knows in such
                named = {"TMPDIR": folder, "SPARK_LOCAL_DIRS": folder}
        yield named
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(*arguments: str) -> int:
    """The worst exit code."""
    if "TMPDIR" in os.environ:
        return run_all(arguments, dict(os.environ))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the folder would stay, and its memory
    with scratch() as folder:
        return run_all(arguments, os.environ | folder)


def run_all(arguments: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run them in that environment, and return the worst exit code."""
    at_most, stages = (int(arguments[1]), arguments[2:]) if arguments[0] == "--at-most" else (len(arguments), arguments)
    commands = [(name, command) for name, _, command in (stage.partition(": ") for stage in stages)]
    over = [threading.Event() for _ in stages]
    logs = [tempfile.TemporaryFile() if number else None for number in range(len(stages))]  # noqa: SIM115 - gone with us
    running: list[subprocess.Popen[bytes]] = []
    interrupted = threading.Event()

    def run(number: int) -> tuple[int, float, float]:
        for (name, _), ended in zip(commands[:number], over, strict=False):
            if name.endswith("!"):
                ended.wait()
        began = time.monotonic()
        log = logs[number]
        try:
            if interrupted.is_set():
                return 1, 0.0, 0.0
            process = subprocess.Popen(shlex.split(commands[number][1]), stdout=log, stderr=log, env=environment)
            running.append(process)
            if interrupted.is_set():  # after who ends those in the list has looked
                process.terminate()
            code, cpu_s = _ended(process)
            took_s = time.monotonic() - began
            if log is not None:
                print(
                    f"\n-- {commands[number][0]} has ended: {'ok' if not code else f'failed with {code}'}", flush=True
                )
            return code, took_s, cpu_s
        finally:
            over[number].set()

    workers = ThreadPoolExecutor(at_most)
    try:
        futures = [workers.submit(run, number) for number in range(len(stages))]
        ended = [_result(each) for each in futures]
    finally:
        interrupted.set()
        workers.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        for process in running:  # or they would write on where their folder is deleted
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
    for (_, command), log in zip(commands, logs, strict=True):
        if log is not None:
            log.seek(0)
            print(f"\n$ {command}\n{log.read().decode(errors='replace')}", end="")
    for (name, _), (code, took_s, cpu_s) in zip(commands, ended, strict=True):
        failed = f", failed with {code}" if code else ""
        print(f"-- {name}: {took_s:.0f} s, {cpu_s:.0f} s of CPU{failed}", flush=True)
    return max(abs(code) for code, *_ in ended)


def _result(future: Future[tuple[int, float, float]]) -> tuple[int, float, float]:
    # Python calls the handler of a signal when this thread returns from its wait. A signal that came the moment before
    # does not end the wait, so none is without end.
    while not future.done():
        wait([future], timeout=0.5)
    return future.result()


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for its end; its code, and the CPU seconds of it and of those that it has waited for."""
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except ChildProcessError:  # another thread has ended it, and waited
        return process.wait(), 0.0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
