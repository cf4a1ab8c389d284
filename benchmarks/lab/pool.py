"""The processes of one run: started, released at one moment, replaced when a fault has killed one, and ended."""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import ConfigError, LakeLatchError

_READY_S, _FINISH_S = 300.0, 120.0  # the machine may be slow; nothing may hang
_HANDLES = 8  # of a process's pipes and files here, and some to spare
_LEAD_S = 0.1  # from the signal to the start


class RunFailedError(LakeLatchError):
    """A run that did not finish: a writer crashed or hung."""


class WorkerProcess:
    """One process and the thread that listens to it."""

    def __init__(
        self, job: dict[str, Any], errors: Path, events: queue.Queue[tuple[WorkerProcess, dict[str, Any]]]
    ) -> None:
        self.job, self._errors, self._events = job, errors, events
        self.writer: int = job["writers"][0][0]
        self.may_end = False  # once it is done, or a fault of the scenario kills it
        self.progress: dict[str, int] = {"done": 0, "aborted": 0, "lost": 0}
        with errors.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lakelatch.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                start_new_session=True,  # Ctrl-C is for the runner, which ends its processes itself
            )
        self.send(job)
        threading.Thread(target=self._listen, name=f"listen-{self._process.pid}", daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library of the system printed something
            if isinstance(event, dict) and "event" in event:
                self._events.put((self, event))
        self._events.put((self, {"event": "ended", "code": self._process.wait()}))

    def send(self, facts: dict[str, Any]) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and its exit is reported by `_listen`
            self._process.stdin.write(json.dumps(facts) + "\n")
            self._process.stdin.flush()

    def go_on(self) -> None:
        """Wake it from a pause."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """Return the end of what it printed to standard error."""
        return self._errors.read_text(errors="replace").strip()[-600:]

    def end(self) -> None:
        """End it, if it runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class WorkerPool:
    """All processes of one run.

    Attributes:
        start: the moment at which they began, monotonic seconds; 0 before.
        done: the final event of each process that ended normally.
        strikes: injected faults, with ``at`` in seconds since the start.
    """

    def __init__(self, jobs: list[dict[str, Any]], folder: Path, on_progress: Callable[[WorkerPool], None]) -> None:
        self._jobs, self._folder, self._on_progress = jobs, folder, on_progress
        self._events: queue.Queue[tuple[WorkerProcess, dict[str, Any]]] = queue.Queue()
        self._processes: list[WorkerProcess] = []
        self._running: set[WorkerProcess] = set()
        self._paused: list[tuple[float, WorkerProcess]] = []
        self.start = 0.0
        self.done: list[dict[str, Any]] = []
        self.strikes: list[dict[str, Any]] = []

    def perform(self, seconds: float) -> None:
        """Start all processes, let them work, and wait for their end.

        Raises:
            RunFailedError: a process crashed, or did not end in time. All are ended then.
        """
        refuse_too_many(len(self._jobs))
        try:
            for job in self._jobs:
                self._add(job)
            waiting, give_up = set(self._processes), time.monotonic() + _READY_S
            while waiting:
                process, event = self._next(give_up, "become ready")
                if event["event"] == "ready":
                    waiting.discard(process)
            # A moment ahead, so that every process has received the signal before it starts.
            self.start = time.monotonic() + _LEAD_S
            for process in self._processes:
                process.send({"start": self.start})
            while self._running:
                self._next(self.start + seconds + _FINISH_S, "come to their end")
        finally:
            for process in self._processes:
                process.end()

    @property
    def progress(self) -> dict[str, int]:
        """Operations so far: done, aborted, and attempts lost."""
        return {what: sum(each.progress[what] for each in self._processes) for what in ("done", "aborted", "lost")}

    def _add(self, job: dict[str, Any]) -> WorkerProcess:
        errors = self._folder / f"writer-{job['writers'][0][0]:04d}-{job['generation']}.err"
        process = WorkerProcess(job, errors, self._events)
        self._processes.append(process)
        self._running.add(process)
        return process

    def _next(self, give_up: float, what: str) -> tuple[WorkerProcess, dict[str, Any]]:
        """Handle and return the next event."""
        while True:
            self._on_progress(self)
            now = time.monotonic()
            for due, sleeper in [each for each in self._paused if each[0] <= now]:
                self._paused.remove((due, sleeper))
                sleeper.go_on()
            if now > give_up:
                raise RunFailedError(f"{len(self._running)} of {len(self._processes)} processes did not {what} in time")
            with suppress(queue.Empty):
                process, event = self._events.get(timeout=min([0.1, *(due - now for due, _ in self._paused)]))
                self._handle(process, event)
                return process, event

    def _handle(self, process: WorkerProcess, event: dict[str, Any]) -> None:
        match event["event"]:
            case "progress":
                process.progress = {what: event[what] for what in ("done", "aborted", "lost")}
            case "strikes":
                now = time.monotonic()
                self.strikes.append({"writer": process.writer, "kind": event["kind"], "at": now - self.start})
                if event["kind"] == "pause":
                    self._paused.append((now + event["pause_s"], process))
                else:
                    self._replace(process, event["number"])
            case "done":
                process.may_end = True
                self.done.append(event)
            case "crashed":
                raise RunFailedError(f"writer {process.job['writers'][0][0]} crashed: {event['error']}")
            case "ended":
                self._running.discard(process)
                if not process.may_end:
                    raise RunFailedError(
                        f"writer {process.job['writers'][0][0]} ended with code {event['code']} before its work was done: "
                        f"{process.last_words() or 'it said nothing'}"
                    )

    def _replace(self, process: WorkerProcess, number: int) -> None:
        """Start another process in place of a killed one."""
        process.may_end = True
        successor = self._add(process.job | {"generation": process.job["generation"] + 1, "first": number + 1})
        successor.send({"start": self.start})


def refuse_too_many(processes: int) -> None:
    """Raise `ConfigError` if this process may not open as many files as it needs."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 32
    needed = there + _HANDLES * processes
    if needed > allowed:
        raise ConfigError(
            f"{processes} processes need {needed} open files, and {allowed} are allowed here: ulimit -n {max(needed, 4096)}"
            + ("" if needed <= most else f" (above the hard limit of {most}; ask for fewer --writers)"),
            needed=needed,
            allowed=allowed,
        )
