"""Test on the user's own server, from several processes, whether locks keep their promises.

For `lakelatch locks check URL`. It is the short form of the conformance suite in `lakelatch.testing`: real time, real
processes, half a minute at most where the server is near. A promise is kept, broken, or could not be tried: a server
that does not answer, or refuses the user, has broken none, nor has one whose leases end while a process of the check stands
still: that part is tried again. Leases are as long as the server's answers require. Its keys begin with ``lakelatch-check-``,
and the first of them is held throughout, so that two checks of one server do not take each other for a fault.

The other processes run this module: ``contend URL KEY FOLDER SECONDS`` and ``hold URL KEY LEASE_S`` take locks as writers do,
and report the result as a line of JSON. Each waits for a line on its standard input before it goes on, so that all begin
together and the checker decides when something happens.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode

from ..environment import SYSTEM, Environment
from ..errors import ConfigError, LakeLatchError, LockError, LockTimeoutError, TokenRegressedError, UnsafeStoreError
from .core import LeasedLocks
from .interface import Release
from .lock_url import format_duration
from .registry import open_provider

PREFIX = "lakelatch-check-"
PATIENCE_S = 60.0
_LEASE_S_MIN = 3.0
_LEASE_ACQUIRES = 8  # how many of the slowest acquire or release fit into a lease
_MEASURED = 3  # times that each is done at least
_NOTICE_S = 1.0  # a holder knows of its loss at most this long after its deadline
_TRIES = 3  # of a part during which a process stood still
_TICK_S, _LATE_S = 0.1, 0.25  # how often a process looks at its clock, and how much later is no delay of a busy machine
# Options that make a URL mean one certain lock, or that fix times which the check has to choose.
_LEFT_OUT = ("key", "layout", "jvm", "jvm_expire", "jvm_pause", "lease", "max_hold", "session")


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise, whether it was kept (None: that could not be tried), and what was seen."""

    promise: str
    kept: bool | None
    seen: str


@dataclass(slots=True)
class Verdict:
    """All findings; ``figures`` are measurements, ``limits`` lists the promises that this provider does not make."""

    url: str
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool | None:
        """True if every promise was kept; None when none was broken and one could not be tried."""
        each = {finding.kept for finding in self.findings}
        return False if False in each else None if None in each else True


def check_up(
    url: str, *, processes: int = 4, seconds: float = 2.0, progress: Callable[[str], None] = lambda _: None,
    env: Environment = SYSTEM,
) -> Verdict:  # fmt: skip
    """Try the locks at ``url``.

    Args:
        processes: how many contend.
        seconds: how long they do, and how long acquire and release are timed.
        progress: called with what is being tried.

    Raises:
        ConfigError: there is no such provider.
    """
    verdict = Verdict(_plain(url, env))
    with _Checkup(verdict, env, processes, seconds) as check:
        for promise, part in check.parts():
            progress(promise)
            kept, seen = check.tried(part)
            verdict.findings.append(Finding(promise, kept, seen))
            if len(verdict.findings) == 1 and not kept:
                break  # it cannot be used, so there is nothing more to learn
        verdict.limits += check.limits()
    return verdict


def _plain(url: str, env: Environment) -> str:
    """Return the URL of the same service, with no lease and no key of its own."""
    with open_provider(url, env=env) as provider:
        place, _, query = provider.url.partition("?")
    if place.startswith("memory:"):
        raise ConfigError("memory:// locks live within one process; there is nothing to check from several", url=url)
    options = [(name, value) for name, value in parse_qsl(query) if name not in _LEFT_OUT]
    return f"{place}?{urlencode(options, quote_via=quote, safe='/:,')}" if options else place


def _with_lease(url: str, lease_s: float, env: Environment) -> str:
    """Return the URL with this lease, where the provider takes it from its URL."""
    wanted = f"{url}{'&' if '?' in url else '?'}lease={format_duration(lease_s)}"
    try:
        open_provider(wanted, env=env).close()
    except ConfigError:
        return url
    return wanted


class _Checkup:
    def __init__(self, verdict: Verdict, env: Environment, processes: int, seconds: float) -> None:
        self._verdict, self._env = verdict, env
        self._processes, self._seconds = processes, seconds
        self._stack = ExitStack()
        self._locks = self._stack.enter_context(open_provider(verdict.url, env=env))  # with short leases, once measured
        self._slowest_s = 0.0
        self._lease_s = _LEASE_S_MIN
        self._stands = _Stands(env)
        self._stack.callback(self._stands.close)
        self._workers_stood_s = 0.0  # in the present try
        self._grants: list[tuple[float, int]] = []

    def parts(self) -> Iterator[tuple[str, Callable[[], tuple[bool | None, str]]]]:
        """Yield each promise in words and its test, which returns kept or not (None: could not be tried) and the evidence."""
        yield "the service answers", self._answers
        yield "one holder at a time, between processes", self._exclusion
        yield "tokens grow with every grant", self._tokens
        yield "tokens start above a number that is asked for, or it is refused", self._lift
        yield "a release answers what became of the lease", self._release
        yield "a waiter that gives up names the holder", self._timeout
        yield "a lease can be ended by its token, on the record, and its holder learns it", self._break
        yield "a holder that was paused knows that it has lost, and spares its successor", self._loss

    def limits(self) -> list[str]:
        """Return the promises that this provider does not make."""
        locks, limits = self._locks, []
        if not locks.fair:
            limits.append("Waiters are not served strictly in the order they came")
        remedy = "lifts them above its last commit's" if locks.lifts_tokens else "begins a new generation of them"
        if not locks.durable_tokens:
            limits.append(f"Tokens do not survive every restart of the service; a table then {remedy} by itself")
        if not locks.lifts_tokens:
            limits.append(
                "Tokens cannot be lifted; when the service was rebuilt a table begins a new generation of them"
            )
        limits.append("No lease excludes a holder that is paused past its end; the table's commit log does")
        return limits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the leases that are held."""
        self._stack.close()

    def tried(self, part: Callable[[], tuple[bool | None, str]]) -> tuple[bool | None, str]:
        """Return what a part found, as a part does. One that was not kept while somebody stood still has learnt nothing."""
        for _ in range(_TRIES):
            before, self._workers_stood_s = self._stands.stood_s(), 0.0
            try:
                kept, seen = part()
            except (AssertionError, UnsafeStoreError) as e:
                kept, seen = False, str(e)
            except LakeLatchError as e:
                kept, seen = None, str(e)
            except Exception as e:  # noqa: BLE001 (a third party's provider may raise anything; nothing was learnt)
                kept, seen = None, f"{type(e).__name__}: {e}"
            stood_s = max(self._stands.stood_s() - before, self._workers_stood_s)
            # A lease is renewed after a third of it, so that no shorter stand ends one. Who holds the first key has it.
            if kept or stood_s < self._lease_s / 2 or part == self._answers:
                return kept, seen
        return None, f"a process of the check stood still for {stood_s:.1f} s; try where less runs. Seen: {seen}"

    # --- the parts ---

    def _answers(self) -> tuple[bool, str]:
        began = self._env.monotonic()
        run = self._locks.acquire(PREFIX + "run", wait_s=PATIENCE_S, reason="lakelatch locks check")
        self._stack.callback(run.release)
        took_s = self._env.monotonic() - began
        self._time_single()
        self._lease_s = float(max(_LEASE_S_MIN, math.ceil(_LEASE_ACQUIRES * self._slowest_s)))
        self._verdict.url = _with_lease(self._verdict.url, self._lease_s, self._env)
        self._locks = self._stack.enter_context(open_provider(self._verdict.url, env=self._env))
        return True, f"the first grant took {took_s * 1000:.0f} ms; leases of {self._lease_s:g} s are tried"

    def _time_single(self) -> None:
        """Measure one process alone: latencies, and requests where the provider counts them."""
        key = PREFIX + "alone"
        acquires: list[float] = []
        releases: list[float] = []
        self._locks.acquire(key, wait_s=PATIENCE_S).release()
        until = self._env.monotonic() + self._seconds
        sent = [0, 0]
        while len(acquires) < _MEASURED or (self._env.monotonic() < until and len(acquires) < 1000):
            counts, times = [self._sent()], [self._env.monotonic()]
            lease = self._locks.acquire(key, wait_s=PATIENCE_S)
            counts.append(self._sent())
            times.append(self._env.monotonic())
            lease.release()
            counts.append(self._sent())
            times.append(self._env.monotonic())
            acquires.append(times[1] - times[0])
            releases.append(times[2] - times[1])
            sent = [sent[0] + counts[1] - counts[0], sent[1] + counts[2] - counts[1]]
        # While this process stands still the server does not answer slowly, which would make leases long.
        self._slowest_s = max(max(acquires + releases) - self._stands.stood_s(), _percentile(acquires, 0.5))
        figures = self._verdict.figures
        for name, values in (("acquire", acquires), ("release", releases)):
            figures[f"{name}_ms_p50"] = _percentile(values, 0.5) * 1000
            figures[f"{name}_ms_p99"] = _percentile(values, 0.99) * 1000
        if any(sent):
            figures["requests_per_acquire"], figures["requests_per_release"] = (each / len(acquires) for each in sent)

    def _sent(self) -> int:
        # Not a part of the contract: built-in providers count, a third party's need not.
        return self._locks.requests if isinstance(self._locks, LeasedLocks) else 0

    def _exclusion(self) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory(prefix="lakelatch-check-") as folder, ExitStack() as stack:
            command = ("contend", self._verdict.url, PREFIX + "contend", folder, str(self._seconds))
            workers = [stack.enter_context(_worker(*command)) for _ in range(self._processes)]
            for worker in workers:
                _heard(worker)
            for worker in workers:
                _go_on(worker)
            results = [self._answer(worker) for worker in workers]
        self._grants = sorted((at, token) for result in results for at, token in result["grants"])
        waits = [wait for result in results for wait in result["waits"]]
        served = [len(result["grants"]) for result in results]
        spent_s = self._grants[-1][0] - self._grants[0][0]
        figures = self._verdict.figures
        figures["handoffs_per_s"] = (len(self._grants) - 1) / spent_s if spent_s > 0 else 0.0
        figures["wait_ms_p50"], figures["wait_ms_p99"] = (_percentile(waits, p) * 1000 for p in (0.5, 0.99))
        figures["least_to_most_served"] = min(served) / max(served)
        overlaps = sum(result["overlaps"] for result in results)
        return overlaps == 0, f"{len(self._grants)} holds of {self._processes} processes, {overlaps} overlaps"

    def _tokens(self) -> tuple[bool | None, str]:
        if not self._grants:
            return None, "nothing was granted between processes"
        tokens = [token for _, token in self._grants]
        wrong = sum(after <= before for before, after in pairwise(tokens))
        return wrong == 0, f"{len(tokens)} grants, {wrong} with a token that is not larger than the one before"

    def _lift(self) -> tuple[bool, str]:
        key = PREFIX + "lift"
        with self._locks.acquire(key, wait_s=PATIENCE_S) as lease:
            token_above = lease.token + 1_000_000
        try:
            with self._locks.acquire(key, wait_s=PATIENCE_S, token_above=token_above) as lease:
                return lease.token > token_above, f"asked for more than {token_above}, got {lease.token}"
        except TokenRegressedError:
            return not self._locks.lifts_tokens, f"more than {token_above} was refused"

    def _release(self) -> tuple[bool, str]:
        lease = self._locks.acquire(PREFIX + "release", wait_s=PATIENCE_S)
        first, second, free = lease.release(), lease.release(), self._locks.inspect(PREFIX + "release") is None
        kept = first is Release.RELEASED and second is first and free
        return kept, f"{first.value}, the second time {second.value}; the key is {'free' if free else 'still held'}"

    def _timeout(self) -> tuple[bool, str]:
        key = PREFIX + "timeout"
        with self._holding(key) as (token, _):
            try:
                self._locks.acquire(key, wait_s=0.3 + 2 * self._slowest_s).release()
            except LockTimeoutError as e:
                holder = self._locks.inspect(key)
                assert holder is not None, "the holder is not shown any more"
                assert holder.token == token, f"another token is shown: {holder.token} instead of {token}"
                return True, str(e).partition(". ")[0]
            raise AssertionError("a busy lock was granted")

    def _break(self) -> tuple[bool, str]:
        key = PREFIX + "break"
        with self._holding(key) as (token, worker):
            assert not self._locks.break_lease(key, token=token + 1, reason="check", who="check"), (
                "a wrong token ended it"
            )
            assert self._locks.break_lease(key, token=token, reason="check", who="lakelatch locks check"), (
                "it was not ended"
            )
            assert not self._locks.break_lease(key, token=token, reason="check", who="check"), "it was ended twice"
            told = self._answer(worker)
        record = [each for each in self._locks.breaks(key) if each.token == token]
        assert record, "there is no record of it"
        assert record[-1].who == "lakelatch locks check", f"the record says {record[-1]}"
        kept = told["lost"] == "stolen" and told["release"] == Release.WAS_LOST.value
        return kept, f"the holder learnt after {told['after_s']:.1f} s: {told['lost']}; its release: {told['release']}"

    def _loss(self) -> tuple[bool, str]:
        key = PREFIX + "loss"
        with self._holding(key, stopped=True) as (token, worker):
            worker.send_signal(signal.SIGSTOP)
            began = self._env.monotonic()
            try:
                successor = self._locks.acquire(key, wait_s=PATIENCE_S + 3 * self._lease_s)
                waited_s = self._env.monotonic() - began
            except LockTimeoutError as e:
                raise AssertionError(f"nobody could take the lock of a paused holder: {e}") from e
            finally:
                worker.send_signal(signal.SIGCONT)
            resumed, stood_s = self._env.monotonic(), self._stands.stood_s()
            with successor:
                told = self._answer(worker, stopped_s=resumed - began)
                late_s = self._env.monotonic() - resumed - max(self._stands.stood_s() - stood_s, self._workers_stood_s)
                successor.ensure_held(fresh=True)
                assert successor.token > token, f"its successor's token {successor.token} is not larger than {token}"
        kept = told["lost"] in ("expired", "stolen", "unreachable") and told["release"] == Release.WAS_LOST.value
        self._verdict.figures["successor_after_s"] = waited_s
        seen = (
            f"its successor had the lock after {waited_s:.1f} s (lease {self._lease_s:g} s); it knew {late_s:.1f} s after it "
            f"woke up: {told['lost']}; its release: {told['release']}"
        )
        return kept and late_s < self._lease_s / 12 + _NOTICE_S + 3 * self._slowest_s, seen

    def _answer(self, worker: subprocess.Popen[str], *, stopped_s: float = 0.0) -> dict[str, Any]:
        """Return what it reports, once it has. ``stopped_s``: how long it stood still because the check wanted it."""
        answer: dict[str, Any] = json.loads(_heard(worker))
        self._workers_stood_s = max(self._workers_stood_s, answer["stood_s"] - stopped_s)
        return answer

    @contextmanager
    def _holding(self, key: str, *, stopped: bool = False) -> Iterator[tuple[int, subprocess.Popen[str]]]:
        """Yield another process that holds the key: its token, and the process. ``stopped``: the block stops it."""
        with _worker("hold", self._verdict.url, key, str(self._lease_s)) as worker:
            token = int(_heard(worker))
            _go_on(worker)
            try:
                yield token, worker
            except AssertionError:
                if not stopped:
                    self._answer(worker)  # whether it stood still
                raise


@contextmanager
def _worker(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", __name__, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def _heard(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline().strip()
    if not line:
        raise LockError(f"A process of the check failed: {worker.communicate()[1].strip()[-500:]}")
    return line


def _go_on(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


class _Stands:
    """Counts for how long this process stood still: it was stopped, or its machine had no time for it."""

    def __init__(self, env: Environment) -> None:
        self._env, self._looked, self._sum_s, self._mutex = env, env.monotonic(), 0.0, Lock()
        self._timer = env.every(_TICK_S, self._look, name="lakelatch check")

    def _look(self) -> None:
        with self._mutex:
            now = self._env.monotonic()
            late_s, self._looked = now - self._looked - _TICK_S, now
            self._sum_s += late_s if late_s > _LATE_S else 0.0

    def stood_s(self) -> float:
        """Return the sum until now, in seconds."""
        self._look()
        return self._sum_s

    def close(self) -> None:
        """End the looks."""
        self._timer.cancel()


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


# --- the other processes ---


def contend(url: str, key: str, folder: str, seconds: str) -> None:
    """Take and release as often as possible. A file that only a holder creates shows when two hold at once."""
    inside = Path(folder, "inside")
    grants: list[tuple[float, int]] = []
    waits: list[float] = []
    overlaps, stands = 0, _Stands(SYSTEM)
    with open_provider(url) as locks:
        locks.inspect(key)  # connected before the others are kept waiting
        _say("ready")
        sys.stdin.readline()
        until = time.monotonic() + float(seconds)
        while not grants or time.monotonic() < until:  # one at least, however slow the server is
            asked = time.monotonic()
            with locks.acquire(key, wait_s=PATIENCE_S, reason="lakelatch locks check") as lease:
                now = time.monotonic()
                try:
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    overlaps += 1
                os.sched_yield()  # on a busy machine others would hardly ever run while we hold it
                grants.append((now, lease.token))
                waits.append(now - asked)
                with suppress(FileNotFoundError):
                    inside.unlink()
    _say({"grants": grants, "waits": waits, "overlaps": overlaps, "stood_s": stands.stood_s()})


def hold(url: str, key: str, lease_s: str) -> None:
    """Hold until the lease is lost, and report how and when that was noticed."""
    lost, stands = Event(), _Stands(SYSTEM)
    with open_provider(url) as locks:
        lease = locks.acquire(key, wait_s=PATIENCE_S, lease_s=float(lease_s), reason="lakelatch locks check")
        lease.on_lost(lambda _: lost.set())
        _say(lease.token)
        sys.stdin.readline()
        began = time.monotonic()
        told = lost.wait(3 * float(lease_s))
        after_s = time.monotonic() - began
        answer = {"told": told, "after_s": after_s, "lost": lease.lost, "release": lease.release().value}
    _say(answer | {"stood_s": stands.stood_s()})


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    (contend if sys.argv[1] == "contend" else hold)(*sys.argv[2:])
