"""``lakelatch services run``: rounds of services, by one leader where a lock is given.

JSON, a line a round: ``done``, by service, the facts of `lakelatch.occ.services.Executed` or `Archival`; ``failed``, by
service, its message; ``not_begun``, the services that a signal left.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import StorageError
from ..options import Json, Url
from ..outcome import COULD_NOT
from ..output import print_json, say
from .commands import names

if TYPE_CHECKING:
    from ...locks import Lease
    from ...occ.services import ServiceRound
    from ...occ.table import Table

_HEARS_AFTER_S = 0.2


class Rounds:
    """Rounds of services until a signal. A round runs only while the lock, if there is one, is held."""

    def __init__(
        self, table: Table, lock_url: str | None, every_s: float, *, loop: bool, json: bool, **given: Any
    ) -> None:
        self.table, self.every_s, self.loop, self.json, self.given = table, every_s, loop, json, given
        self.told_to_stop, self.serving = False, False
        self.step_down = threading.Event()
        self.lock: AbstractContextManager[Lease | None] = nullcontext()
        if lock_url is not None:
            import lakelatch

            self.lock = lakelatch.lock(
                lock_url,
                f"services of {table.url}",
                # With --loop this process stands by as the next leader; a single round ends at once if another leads.
                wait_s=float("inf") if loop else 0,
                reason="table services",
                on_lost=lambda _: self.step_down.set(),
                on_revoke=lambda _: self.step_down.set(),
            )

    def stop(self, *_: object) -> None:
        """Handle a signal: a leader finishes its current service, a waiter ends at once."""
        self.told_to_stop = True  # and no more: this may interrupt the event's own code, whose lock would not be free
        # A waiter blocks in the lock's queue, where it does not check the flag; SystemExit from this handler ends it
        # there.
        if not self.serving:
            sys.exit()

    def run(self) -> None:
        """Run rounds until a signal, or one round without ``loop``. Return 2 when a service of that one failed."""
        from ...errors import LockLostError, LockUnavailableError

        while not self.told_to_stop:
            try:
                with self.lock as lease:
                    self.serving = True
                    self._serve(lease)
            except (LockLostError, LockUnavailableError) as e:
                if not self.loop:
                    raise
                say(str(e), err=True)
                # Without a pause a lock service that is down would be asked in a busy loop.
                if isinstance(e, LockUnavailableError):
                    self._pause()
            finally:
                self.serving = False
            if not self.loop:
                return
            self.step_down.clear()  # a lost or revoked lease ends this leadership only

    def _serve(self, lease: Lease | None) -> None:
        def stop() -> bool:
            if lease is not None and not self._ends():
                lease.ensure_held()
            return self._ends()

        while not stop():
            try:
                done = self.table.run_services(stop=stop, **self.given)
            except StorageError as e:  # an outage of the store is sat out
                if not self.loop:
                    raise
                say(str(e), err=True)
            else:
                self._tell(done)
                if not self.loop:
                    if done.failed:
                        raise typer.Exit(COULD_NOT)
                    return
            self._pause()

    def _ends(self) -> bool:
        return self.told_to_stop or self.step_down.is_set()

    def _pause(self) -> None:
        until = time.monotonic() + self.every_s
        # A signal does not end a wait, and one that comes in the moment before is heard only after it.
        while not self._ends() and (left := until - time.monotonic()) > 0:
            self.step_down.wait(min(left, _HEARS_AFTER_S))

    def _tell(self, done: ServiceRound) -> None:
        if self.json:
            facts = {name: asdict(each) for name, each in done.done.items()}
            failed = {name: str(e) for name, e in done.failed.items()}
            print_json({"done": facts, "failed": failed, "not_begun": list(done.not_begun)}, indent=None)
        else:
            for name, each in done.done.items():
                say(f"{name}: {getattr(each, 'files', None) or getattr(each, 'instants', 0)} done")
            if not (done.done or done.failed or done.not_begun):
                say("nothing is due")
        for name, e in done.failed.items():
            say(f"{name} failed: {e}", err=True)
        sys.stdout.flush()


def run(
    url: Url,
    *,
    loop: Annotated[bool, typer.Option("--loop", help="Go on until SIGTERM or Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option(min=0.001, max=86400, help="Seconds between rounds of --loop.")] = 60,
    lock: Annotated[
        str | None, typer.Option(metavar="LOCK_URL", help="Elect a leader with this lock; others wait in line.")
    ] = None,
    retain_commits: Annotated[int | None, typer.Option(help="As of clean.")] = None,
    keep_min: Annotated[int | None, typer.Option(help="As of archive.")] = None,
    keep_max: Annotated[int | None, typer.Option(help="As of archive.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Join small files too.")] = False,
    sort_by: Annotated[str | None, typer.Option(help="As of cluster.")] = None,
    layout: Annotated[str, typer.Option(help="As of cluster.")] = "linear",
    json: Json = False,
) -> None:
    """Run what is due: compaction and log compaction, clean, archival, and clustering if asked for."""
    import lakelatch

    with lakelatch.open(url) as table:
        rounds = Rounds(
            table, lock, every_s, loop=loop, json=json, retain_commits=retain_commits, keep_min=keep_min,
            keep_max=keep_max, cluster=cluster, sort_by=names(sort_by), layout=layout,
        )  # fmt: skip
        before = {each: signal.signal(each, rounds.stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            rounds.run()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
