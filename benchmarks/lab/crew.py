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


class Member:
    """One process and the thread that listens to it."""

    def __init__(self, job: dict[str, Any], errors: Path, events: queue.Queue[tuple[Member, dict[str, Any]]]) -> None:
        self.job, self._errors, self._events = job, errors, events
        self.done: dict[str, Any] | None = None
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
        self.pid = self._process.pid
        self.tell(job)
        threading.Thread(target=self._listen, name=f"listen-{self.pid}", daemon=True).start()

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

    def tell(self, facts: dict[str, Any]) -> None:
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


class Crew:
    """All processes of one run.

    Attributes:
        start: the moment at which they began, monotonic seconds; 0 before.
        done: the final event of each process that ended normally.
        strikes: injected faults, with ``at`` in seconds since the start.
    """

    def __init__(self, jobs: list[dict[str, Any]], folder: Path, tell: Callable[[Crew], None]) -> None:
        self._jobs, self._folder, self._tell = jobs, folder, tell
        self._events: queue.Queue[tuple[Member, dict[str, Any]]] = queue.Queue()
        self._members: list[Member] = []
        self._running: set[Member] = set()
        self._paused: list[tuple[float, Member]] = []
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
            self._await_ready()
            # A moment ahead, so that every process has received the signal before it starts.
            self.start = time.monotonic() + _LEAD_S
            for member in self._members:
                member.tell({"start": self.start})
            self._await_end(self.start + seconds + _FINISH_S)
        finally:
            for member in self._members:
                member.end()

    @property
    def progress(self) -> dict[str, int]:
        """Operations so far: done, aborted, and attempts lost."""
        return {what: sum(m.progress[what] for m in self._members) for what in ("done", "aborted", "lost")}

    def _add(self, job: dict[str, Any]) -> Member:
        number, generation = job["writers"][0][0], job["generation"]
        member = Member(job, self._folder / f"writer-{number:04d}-{generation}.err", self._events)
        self._members.append(member)
        self._running.add(member)
        return member

    def _await_ready(self) -> None:
        waiting, give_up = set(self._members), time.monotonic() + _READY_S
        while waiting:
            member, event = self._next(give_up, "become ready")
            if event["event"] == "ready":
                waiting.discard(member)

    def _await_end(self, give_up: float) -> None:
        while self._running:
            self._next(give_up, "come to their end")

    def _next(self, give_up: float, what: str) -> tuple[Member, dict[str, Any]]:
        """Handle and return the next event."""
        while True:
            self._tell(self)
            now = time.monotonic()
            for due, sleeper in [each for each in self._paused if each[0] <= now]:
                self._paused.remove((due, sleeper))
                sleeper.go_on()
            if now > give_up:
                raise RunFailedError(f"{len(self._running)} of {len(self._members)} processes did not {what} in time")
            with suppress(queue.Empty):
                member, event = self._events.get(timeout=min([0.1, *(due - now for due, _ in self._paused)]))
                self._handle(member, event)
                return member, event

    def _handle(self, member: Member, event: dict[str, Any]) -> None:
        match event["event"]:
            case "progress":
                member.progress = {what: event[what] for what in ("done", "aborted", "lost")}
            case "strikes":
                now = time.monotonic()
                writer = member.job["writers"][0][0]
                self.strikes.append({"writer": writer, "kind": event["kind"], "at": now - self.start})
                if event["kind"] == "pause":
                    self._paused.append((now + event["pause_s"], member))
                else:
                    self._replace(member, event["number"])
            case "done":
                member.done = event
                self.done.append(event)
            case "crashed":
                raise RunFailedError(f"writer {member.job['writers'][0][0]} crashed: {event['error']}")
            case "ended":
                self._running.discard(member)
                # A process killed by a fault of the scenario ends early on purpose.
                if member.done is None and member.job.get("killed") is None:
                    raise RunFailedError(
                        f"writer {member.job['writers'][0][0]} ended with code {event['code']} before its work was done: "
                        f"{member.last_words() or 'it said nothing'}"
                    )

    def _replace(self, member: Member, number: int) -> None:
        """Start another process in place of a killed one."""
        member.job["killed"] = True
        job = {name: value for name, value in member.job.items() if name != "killed"}
        successor = self._add(job | {"generation": job["generation"] + 1, "first": number + 1})
        successor.tell({"start": self.start})


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
