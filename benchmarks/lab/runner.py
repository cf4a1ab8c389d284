"""The lab's runner: plans the runs of some scenarios, makes them one after another, and stores the results.

Systems take turns within a round, and each round begins with another one, so that none always gets the better conditions.
Each run has a table of its own, in a folder of the lab's own, which is removed afterwards.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from ..arguments import number
from ..errors import ConfigError, LakeLatchError
from ..locks import check_url, shown
from ..occ.entries import Settings
from ..storage import open_store
from . import oracle, rows, servers
from .operations import Operation, read_operations
from .pool import WorkerPool, refuse_too_many
from .results import RESULTS, figures
from .scenario import Restarts, Scenario
from .systems import OURS, System, load
from .worker import CELLS, OVERLAPS
from .works import WRITERS_MAX

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "lakelatch-bench"


@dataclass(frozen=True, slots=True)
class Contender:
    """A system with its settings."""

    system: str
    configuration: str
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 1

    @property
    def label(self) -> str:
        """The name for reports."""
        return self.system if self.configuration == "best" else f"{self.system} {self.configuration}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs to make, and how.

    Attributes:
        writers: numbers of writers, one after another; empty: as each scenario says.
        seconds: for each contender, scenario and number of writers, divided into ``rounds`` parts.
        operations: number for each writer in each part, instead of seconds.
        place: URL of a folder or bucket in which to make tables; None: a temporary folder.
        keep: do not remove the tables.
    """

    scenarios: tuple[Scenario, ...]
    contenders: tuple[Contender, ...]
    out: Path
    writers: tuple[int, ...] = ()
    seconds: float = 20.0
    rounds: int = 3
    operations: int = 0
    place: str | None = None
    keep: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        number(self.seconds, "seconds", least=0.1, most=86400, error=ConfigError)
        number(self.rounds, "rounds", least=1, most=1000, whole=True, error=ConfigError)
        number(self.operations, "operations", least=0, whole=True, error=ConfigError)
        for each in self.writers:
            number(each, "writers", least=1, most=WRITERS_MAX, whole=True, error=ConfigError)
        for scenario, writers in self.cells():
            scenario.cast(writers)
            refuse_too_many(-(-writers // scenario.per_process))
            if scenario.server is not None and any("lock" in each.settings for each in self.contenders):
                raise ConfigError(
                    f"scenario {scenario.name!r} takes its locks from a server that the lab starts; leave --lock out"
                )

    def cells(self) -> Iterator[tuple[Scenario, int]]:
        """Yield each scenario with each number of writers."""
        for scenario in {each.name: each for each in self.scenarios}.values():
            asked = self.writers or (scenario.writers,)
            # With several numbers requested, one that is too small for a scenario's roles is raised instead of refused.
            fitting = [max(each, scenario.smallest()) for each in asked] if len(asked) > 1 else asked
            for writers in dict.fromkeys(fitting):
                yield scenario, writers

    def turns(self) -> Iterator[tuple[Scenario, int, int, Contender]]:
        """Yield every run in its order: scenario, writers, round, contender."""
        for scenario, writers in self.cells():
            for turn in range(self.rounds):
                first = turn % len(self.contenders)
                for contender in self.contenders[first:] + self.contenders[:first]:
                    yield scenario, writers, turn, contender


@dataclass(slots=True)
class Progress:
    """The state of a run, for a display."""

    scenario: str = ""
    writers: int = 0
    contender: str = ""
    round: int = 0
    run: int = 0
    runs: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0
    done: int = 0
    aborted: int = 0
    lost: int = 0
    finished: list[dict[str, Any]] = field(default_factory=list)


ProgressCallback = Callable[[Progress], None]


def contenders(
    *,
    locks: Sequence[str] = (),
    strategies: Sequence[str] = (),
    isolations: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    peers: Sequence[str] = (),
    ours: bool = True,
) -> tuple[list[Contender], list[str]]:
    """Return everything to compare, and a sentence about each peer that is not available.

    Args:
        locks: URLs, ``table`` or ``none://``; each is combined with each of ``strategies`` and ``isolations``.
        settings: further settings of our tables.
        peers: adapters by name, in all their configurations; ``name/configuration`` is one of them.
    """
    found, skipped = [], []
    if ours:
        for lock, strategy, isolation in product(locks or (None,), strategies or (None,), isolations or (None,)):
            if lock is not None and lock not in ("table", "none://"):
                check_url(lock)
            own = {"lock": lock, "strategy": strategy, "isolation": isolation}
            chosen = {name: value for name, value in own.items() if value is not None} | dict(settings or {})
            Settings().changed(**chosen)  # refused here, before anything is made
            words = ", ".join(f"{n}={shown(v) if n == 'lock' else v}" for n, v in chosen.items())
            found.append(Contender(OURS, words or "default", words or "all settings of the table as they come", chosen))
    for name in peers:
        adapter, _, wanted = name.partition("/") if ":" not in name else (name, "", "")
        try:
            system = load(adapter)
        except ConfigError as e:
            # A peer that is not installed is skipped; an unknown name is the caller's mistake.
            if "missing" not in e.details:
                raise
            skipped.append(f"skipped {adapter}: {e}")
            continue
        if words := servers.missing(getattr(system, "server", "")):
            skipped.append(f"skipped {adapter}: {words}")
            continue
        chosen_ones = [each for each in system.configurations if wanted in ("", each.name)]
        if not chosen_ones:
            known = ", ".join(each.name for each in system.configurations)
            raise ConfigError(f"{adapter} has no configuration {wanted!r}; it has {known}")
        for each in chosen_ones:
            lock_urls = {"locks": list(locks)} if locks else {}
            found.append(Contender(adapter, each.name, each.words, {**each.settings, **lock_urls}, each.tries))
    if not found:
        raise ConfigError(f"nothing is left to measure: {'; '.join(skipped) or 'no peer was named'}")
    return found, skipped


def measure(plan: Plan, on_progress: ProgressCallback = lambda _: None) -> list[dict[str, Any]]:
    """Make all runs. Each is written to ``results.jsonl`` when it ends; return them all.

    Ctrl-C ends the processes that were started, removes the tables, and marks the current run as partial.

    Raises:
        ConfigError: the folder for results exists already, or a contender cannot work here.
        KeyboardInterrupt: raised again after the results so far have been stored.
    """
    _make(plan.out)
    with _place(plan) as base, (plan.out / RESULTS).open("a", encoding="utf-8") as out:

        def keep(line: dict[str, Any]) -> None:
            out.write(json.dumps(line, default=str) + "\n")
            # Flushed line by line, so that an interrupted lab keeps its results.
            out.flush()

        systems = [load(each.system) for each in plan.contenders]
        keep({"what": "machine", **_machine(systems), "plan": _facts(plan)})
        turns = list(plan.turns())
        progress = Progress(runs=len(turns))
        skipped: set[str] = set()
        for count, (scenario, writers, turn, contender) in enumerate(turns, 1):
            progress.scenario, progress.writers, progress.contender = scenario.name, writers, contender.label
            progress.round, progress.run = turn, count
            if words := _cannot(scenario, contender.system):
                if words not in skipped:
                    skipped.add(words)
                    keep({"what": "skipped", "scenario": scenario.name, "system": contender.label, "why": words})
                continue
            run = _Run(plan, scenario, writers, turn, contender, below(base, f"{count:04d}"), progress, on_progress)
            try:
                found = run.perform(plan.out / "runs" / f"{count:04d}")
            except KeyboardInterrupt:
                keep(run.facts | {"partial": True, "folder": f"runs/{count:04d}"} | run.found_so_far())
                raise
            progress.finished.append(found)
            keep(found | {"folder": f"runs/{count:04d}"})
            on_progress(progress)
        return progress.finished


def _cannot(scenario: Scenario, name: str) -> str:
    """Return why a system is left out of a scenario, in a sentence; "" if it is not."""
    system = load(name)
    if missing := scenario.works - system.works:
        return f"{name} cannot {', '.join(sorted(missing))}"
    if scenario.server is None:
        return ""
    if absent := servers.missing(scenario.server.kind):
        return f"{scenario.name}: {absent}"
    scheme = servers.KINDS[scenario.server.kind].scheme
    if name != OURS and scheme not in getattr(system, "schemes", ()):
        return f"{name} takes no lock from a server, so {scenario.name} would not befall it"
    return ""


class _Run:
    """One run: one contender in one scenario."""

    def __init__(
        self, plan: Plan, scenario: Scenario, writers: int, turn: int, contender: Contender, place: str,
        progress: Progress, on_progress: ProgressCallback,
    ) -> None:  # fmt: skip
        self._plan, self._scenario, self._contender, self._place = plan, scenario, contender, place
        self._progress, self._on_progress = progress, on_progress
        self._cast = scenario.cast(writers)
        self._partitions = scenario.partitions or writers
        self._operations = plan.operations or scenario.operations
        self._seconds = 0.0 if self._operations else plan.seconds / plan.rounds
        settings = dict(contender.settings)
        if contender.system == OURS:
            settings = {**scenario.settings, **settings}
        self._settings = settings
        self._system: System = load(contender.system)(settings)
        self._outages: servers.Outages | None = None
        self._seed = f"{plan.seed}/{scenario.name}/{writers}/{turn}"
        self._folder = Path()
        self._pool: WorkerPool | None = None
        self.facts: dict[str, Any] = {
            "what": "run",
            "scenario": scenario.name,
            "about": scenario.about,
            "writers": writers,
            "round": turn,
            "system": contender.label,
            "ours": contender.system == OURS,
            "configuration": contender.words,
            "settings": {n: shown(v) if n == "lock" else v for n, v in settings.items() if n != "locks"},
            "tries": contender.tries,
            "seed": self._seed,
            "operations": self._operations,
        }

    def perform(self, folder: Path) -> dict[str, Any]:
        """Return figures, or ``failed`` with the reason and no rate."""
        folder.mkdir(parents=True)
        self._folder = folder
        (folder / "cells").write_bytes(bytes(8 * CELLS))
        self.facts["load"] = _load()
        restarts = self._scenario.server
        kind = restarts.kind if restarts else getattr(load(self._contender.system), "server", "")
        try:
            with servers.started(kind) if kind else nullcontext() as server:
                if server is not None:
                    self._use(server, restarts)
                return self._performed(folder)
        except LakeLatchError as e:  # of the server
            return self.facts | {"failed": str(e)}

    def _use(self, server: servers.Server, restarts: Restarts | None) -> None:
        """Take this run's locks from a server that fails as the scenario says, or put a peer's catalog on it."""
        if restarts is None:
            own: dict[str, Any] = {"server": server.url}
        else:
            own = {"lock": server.url} if self._contender.system == OURS else {"locks": [server.url]}
            self._outages = servers.Outages(
                server, every_s=restarts.every_s, down_s=restarts.down_s, times=restarts.times, until_s=self._seconds
            )
        self._settings = {**self._settings, **own}
        self._system = load(self._contender.system)(self._settings)

    def _performed(self, folder: Path) -> dict[str, Any]:
        first = rows.first_rows(self._scenario.keys, self._partitions, self._scenario.balance)
        self._pool = WorkerPool(self._jobs(), folder, self._show)
        try:
            self._system.create(self._place, rows.widened(first) if self._scenario.wide else first)
            self._pool.perform(self._seconds)
            operations = self.operations()
            final = self._final()
            known = {"start": self._pool.start, "strikes": self._pool.strikes, "final": rows.last_writers(final)}
            (folder / "run.json").write_text(json.dumps(self.facts | known, default=str))
            faults = oracle.judge(first, operations, final) + self._overlaps()
        except LakeLatchError as e:
            return self.facts | {"failed": str(e)}
        except Exception as e:
            return self.facts | {"failed": f"{type(e).__name__}: {e}"}
        if faults:
            return self.facts | {
                "failed": f"the oracle found wrong rows: {oracle.summary(faults)}",
                "wrong": len(faults),
            }
        if self._outages is not None and not self._outages.begun:
            return self.facts | {"failed": "the run was over before its lock server had failed; measure for longer"}
        found = self._figures(operations)
        # A rate of mostly failing operations would compare systems by how fast they fail.
        if found["failed_operations"] > found["done"]:
            return self.facts | {
                "failed": f"{found['failed_operations']} operations failed and {found['done']} landed: {found['errors']}"
            }
        return self.facts | found

    def found_so_far(self) -> dict[str, Any]:
        """Return figures of the operations so far, without judging the table."""
        if self._pool is None or not self._pool.start:
            return {}
        # The rate of an interrupted run is over the time that it had.
        self._seconds = min(self._seconds, max(time.monotonic() - self._pool.start, 0.001)) if self._seconds else 0.0
        (self._folder / "run.json").write_text(
            json.dumps(self.facts | {"start": self._pool.start, "partial": True}, default=str)
        )
        return self._figures(self.operations())

    def operations(self) -> list[Operation]:
        """Return the writers' operations, in seconds since the start."""
        assert self._pool is not None
        return read_operations(self._folder.glob("writer-*.jsonl"), start=self._pool.start)

    def _figures(self, operations: list[Operation]) -> dict[str, Any]:
        assert self._pool is not None
        found = figures(operations, self._seconds)
        found["cpu_s"] = round(sum(each["cpu_s"] for each in self._pool.done), 3)
        found["never_begun"] = sum(each["overdue"] for each in self._pool.done)
        found["strikes"] = len(self._pool.strikes)
        return found

    def _final(self) -> pa.Table:
        """Return the final rows; a bare lock has no table."""
        if self._scenario.works <= {"hold"}:
            return rows.first_rows(self._scenario.keys, self._partitions, self._scenario.balance)
        final = self._system.rows(self._place)
        return rows.narrowed(final) if self._scenario.wide else final

    def _overlaps(self) -> list[oracle.Fault]:
        cells = memoryview((self._folder / "cells").read_bytes()).cast("q")
        met = cells[OVERLAPS]
        return [oracle.Fault("doubled", f"two held the lock at the same time, {met} times")] if met else []

    def _jobs(self) -> list[dict[str, Any]]:
        size = self._scenario.per_process
        cast = list(enumerate(self._cast))
        common = {
            "system": self._contender.system,
            "settings": self._settings,
            "tries": self._contender.tries,
            "place": self._place,
            "folder": str(self._folder.resolve()),
            "scenario": asdict(self._scenario),
            "partitions": self._partitions,
            "seconds": self._seconds,
            "operations": self._operations,
            "seed": self._seed,
            "generation": 0,
            "first": 1,
        }
        groups = [cast[at : at + size] for at in range(0, len(cast), size)]
        return [common | {"writers": [(number, role.name) for number, role in group]} for group in groups]

    def _show(self, pool: WorkerPool) -> None:
        progress = self._progress
        progress.seconds = self._seconds
        progress.elapsed = max(time.monotonic() - pool.start, 0.0) if pool.start else 0.0
        if self._outages is not None:
            before = len(self._outages.begun)
            self._outages.look(progress.elapsed)
            begun = self._outages.begun[before:]
            pool.strikes += [{"writer": None, "kind": "the lock server ends", "at": at} for at in begun]
        for what, value in pool.progress.items():
            setattr(progress, what, value)
        self._on_progress(progress)


def _make(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already; name another folder with --out, nothing is overwritten")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"the folder {out} for results cannot be made: {e}") from e


@contextmanager
def _place(plan: Plan) -> Iterator[str]:
    """Yield the place for this lab's tables: a folder of its own, removed at the end."""
    if plan.place is None:
        with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
            yield folder
        return
    base = below(plan.place, f"{FOLDER}-{uuid4().hex[:12]}")
    try:
        yield base
    finally:
        if not plan.keep:
            remove(base)


def remove(place: str) -> None:
    """Delete everything in a folder or below a prefix."""
    store = open_store(place)
    if store.url.startswith("file:"):
        shutil.rmtree(unquote(urlsplit(store.url).path), ignore_errors=True)
        return
    for entry in store.list("", recursive=True):
        store.delete(entry.path)


def below(place: str, name: str) -> str:
    """Return a folder in a place, with the options of its URL at the end; a plain path has none."""
    address, mark, options = place.partition("?") if "://" in place else (place, "", "")
    return f"{address.rstrip('/')}/{name}{mark}{options}"


def _facts(plan: Plan) -> dict[str, Any]:
    place = plan.place or "a temporary folder"
    return {
        "scenarios": [each.name for each in plan.scenarios],
        "contenders": [each.label for each in plan.contenders],
        "writers": list(plan.writers),
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "operations": plan.operations,
        "place": place.partition("?")[0] if "://" in place else place,  # its options may be secrets
        "seed": plan.seed,
    }


def _machine(systems: Iterable[type[System]]) -> dict[str, Any]:
    """Return CPU, memory, kernel, Python, load, and versions: figures are comparable on the same ones only."""
    artifacts = {name: version for each in systems for name, version in getattr(each, "artifacts", {}).items()}
    names = sorted({"lakelatch", "pyarrow", *(each.package for each in systems), *artifacts})
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        # A Python that was built with profile-guided optimization is a third faster.
        "optimized_python": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "load": _load(),
        "versions": {name: artifacts.get(name) or _version(name) for name in names},
    }


def _load() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
