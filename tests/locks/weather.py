"""Bad weather for lock tests: a holder that is a process to kill or stop, a server that is killed or stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakelatch.environment import SystemEnvironment
from lakelatch.locks import Release, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

_HOLD = """
import sys
from lakelatch.errors import LockLostError, LockUnavailableError
from lakelatch.locks import open_provider
locks, lease = open_provider(sys.argv[1]), None
for _ in range(10):  # a server may stand still for longer than a request with a short lease waits; another is safe
    try:
        lease = lease or locks.acquire(sys.argv[2], wait_s=60)
    except LockUnavailableError:
        continue
print(lease.token, flush=True)
sys.stdin.readline()
try:
    lease.ensure_held()
    print("held", flush=True)
except LockLostError as e:
    print(e.reason, lease.release().value, flush=True)
sys.stdin.readline()
"""


@dataclass
class Holder:
    """A process that holds a key, and its token."""

    process: subprocess.Popen[str]
    token: int

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def says(self) -> str:
        """Whether it holds the key by its own account: "held", or why not and what its release answered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def holding(url: str, key: str) -> Iterator[Holder]:
    """A process that holds the key until the block ends."""
    command = [sys.executable, "-c", _HOLD, url, key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield Holder(child, int(child.stdout.readline()))
        finally:
            child.kill()


class KilledServer:
    """The contract's hooks for a server of ours (``self.server``) that keeps what it has on disk."""

    server: Any

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self.server.kill()
        try:
            yield
        finally:
            self.server.start()

    def restart(self) -> None:
        self.server.kill()
        self.server.start()


def sits_out_an_outage(server: Any, url: str, key: str) -> None:
    """One waits for ``key``, the server is killed and started while it does, and it gets the lock."""
    with (
        open_provider(url) as locks,
        open_provider(url, env=SystemEnvironment()) as rival,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = locks.acquire(key, wait_s=PATIENCE_S)
        before = rival.requests
        waiting = pool.submit(rival.acquire, key, wait_s=2 * PATIENCE_S)
        until(lambda: rival.requests > before + 4, "nobody waits")
        server.kill()
        try:
            met = rival.requests
            until(lambda: waiting.done() or rival.requests > met + 4, "it does not try again")
            assert not waiting.done(), waiting.exception()
        finally:
            server.start()
        lease.release()
        assert waiting.result(2 * PATIENCE_S).release() is Release.RELEASED


class StoppedServer(KilledServer):
    """The same for one that does not answer, and carries out late what it was asked meanwhile."""

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self.server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.signal(signal.SIGCONT)
