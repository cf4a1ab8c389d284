"""Makes child processes quickly: one process imports everything once, and forks a child for each job.

It never starts a thread and opens no table itself, so a child inherits nothing that a fresh process would not have.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_HERE = Path(__file__).parent


def until(condition: Callable[[], object], *, what: str, within_s: float = 120.0) -> None:
    """Wait for something that another process does. The only place in these tests that sleeps."""
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up, f"{what}: not within {within_s:g} s"
        time.sleep(0.002)


@dataclass
class Child:
    """A process that runs one job; its result is what the job returned, if it lived to return."""

    forge: Forge
    pid: int
    out: Path

    def wait(self) -> int:
        """Exit status, or minus the signal that ended it."""
        return int(self.forge._ask({"wait": self.pid})["status"])

    def result(self) -> Any:
        """What the job returned; the job must have ended well."""
        status = self.wait()
        assert status == 0, f"the job ended with {status}; see the test's output"
        return json.loads(self.out.read_text())

    def stop_here(self) -> None:
        """Wait until it has stopped itself by SIGSTOP."""
        until(lambda: self.state() == "T", what=f"process {self.pid} stops")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def state(self) -> str:
        """The letter of /proc: T is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]


class Forge:
    """The parent of all children of a test session."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._jobs = folder, 0
        quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / "forge.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | quiet,
        )
        self._children: list[int] = []

    def start(self, job: str, **arguments: Any) -> Child:
        """Fork a child that runs the function of that name in jobs.py."""
        self._jobs += 1
        out = self._folder / f"result-{self._jobs}.json"
        pid = int(self._ask({"job": job, "arguments": arguments, "out": str(out)})["pid"])
        self._children.append(pid)
        return Child(self, pid, out)

    def run(self, job: str, **arguments: Any) -> int:
        """Start a job and wait for its end."""
        return self.start(job, **arguments).wait()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question, default=str) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it kills the children that are left, and ends
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()


# --- in the process that forks ----------------------------------------------------------------------------------


def serve() -> None:
    sys.path[:0] = [str(_HERE), str(_HERE.parent / "occ")]
    import jobs

    _import_what_jobs_need(jobs.modules_needed)
    children: dict[int, int | None] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "job" in question:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                _child(getattr(jobs, question["job"]), question["arguments"], Path(question["out"]))
            children[pid] = None
            answer = {"pid": pid}
        else:
            pid = question["wait"]
            if children[pid] is None:
                children[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            answer = {"status": children[pid]}
        print(json.dumps(answer), flush=True)
    for pid in [pid for pid, status in children.items() if status is None]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _import_what_jobs_need(modules_needed: Callable[[str], list[str]]) -> None:
    """Let a first child find out what is imported on the way, so that no later one has to do it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "modules.json"
        pid = os.fork()
        if pid == 0:
            _child(modules_needed, {"folder": f"{folder}/table"}, out)
        if os.waitpid(pid, 0)[1] == 0:
            for name in json.loads(out.read_text()):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)


def _child(job: Callable[..., Any], arguments: dict[str, Any], out: Path) -> None:
    status = 1
    try:
        os.dup2(2, 1)  # the answers' line is not for the job's own words
        result = json.dumps(job(**arguments))
        temporary = out.with_suffix(".tmp")
        temporary.write_text(result)
        temporary.rename(out)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
