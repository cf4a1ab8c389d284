"""Scenarios: a small file says which writers write what into which table.

    about = "each commit adds one small file"
    partitions = 0                 # one for each writer

    [[roles]]
    name = "writer"
    work = "append"                # a name of `works.WORKS`
    pick = "own"

Built-in scenarios are in the folder ``scenarios``; a path to your own file can be given wherever a name can.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from ..arguments import flag, number, text
from ..errors import ConfigError
from .servers import LOCKS
from .works import WORKS

_FOLDER = Path(__file__).with_name("scenarios")
PICKS = ("own", "any", "zipf")
ARRIVALS = ("even", "poisson", "bursts")
FAULTS = ("kill", "pause")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that strikes a writer once in every so many operations, while it commits.

    Attributes:
        kind: ``kill`` (SIGKILL; another process takes its place) or ``pause`` (SIGSTOP for ``pause_s``).
        every: operations from one strike to the next.
    """

    kind: str
    every: int
    pause_s: float = 2.0

    def __post_init__(self) -> None:
        _one_of(self.kind, FAULTS, "fault.kind")
        number(self.every, "fault.every", least=1, whole=True, error=ConfigError)
        number(self.pause_s, "fault.pause_s", least=0, error=ConfigError)


@dataclass(frozen=True, slots=True)
class Restarts:
    """A lock server of the lab's own, which is killed again and again; our tables take their lock from it.

    Attributes:
        kind: one of `servers.LOCKS`.
        every_s: seconds that it serves, from the start of the run and after each restart.
        down_s: seconds until it is started again.
        times: how often at most; 0: no limit.
    """

    kind: str
    every_s: float
    down_s: float = 0.2
    times: int = 0

    def __post_init__(self) -> None:
        _one_of(self.kind, LOCKS, "server.kind")
        number(self.every_s, "server.every_s", least=0.01, error=ConfigError)
        number(self.down_s, "server.down_s", least=0, error=ConfigError)
        number(self.times, "server.times", least=0, whole=True, error=ConfigError)


@dataclass(frozen=True, slots=True)
class Role:
    """The work of one or several writers.

    Attributes:
        work: a name of `works.WORKS`.
        count: number of writers; None: all that other roles leave, in one role only.
        pick: the partition of an operation: the writer's own, any, or by Zipf's law mostly the first.
        spread: number of partitions in one operation.
        rows: number of rows in one operation, in each partition.
        think_s: seconds of work inside of each operation, before its commit.
        rate: operations per second and writer that become due, whether or not earlier ones have ended; 0: one after the other.
        arrivals: the distribution of due times: ``even``, ``poisson``, or five at a time in ``bursts``.
        priority: the priority of its transactions, if the system has priorities.
    """

    name: str
    work: str
    count: int | None = None
    pick: str = "any"
    spread: int = 1
    rows: int = 10
    think_s: float = 0.0
    rate: float = 0.0
    arrivals: str = "even"
    priority: int = 0
    fault: Fault | None = None

    def __post_init__(self) -> None:
        text(self.name, "roles.name", error=ConfigError)
        _one_of(self.work, tuple(WORKS), "roles.work")
        _one_of(self.pick, PICKS, "roles.pick")
        _one_of(self.arrivals, ARRIVALS, "roles.arrivals")
        if self.count is not None:
            number(self.count, "roles.count", least=1, whole=True, error=ConfigError)
        for name in ("spread", "rows"):
            number(getattr(self, name), f"roles.{name}", least=1, whole=True, error=ConfigError)
        for name in ("think_s", "rate"):
            number(getattr(self, name), f"roles.{name}", least=0, most=86400, error=ConfigError)
        number(self.priority, "roles.priority", whole=True, error=ConfigError)
        if self.work == "replace" and self.pick != "own":
            raise ConfigError(
                f"role {self.name!r} replaces partitions that others may replace too, which the oracle cannot judge; "
                'say pick = "own"'
            )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to measure.

    Attributes:
        about: a sentence.
        partitions: number in the table; 0: one for each writer.
        keys: number of initial rows, spread over all partitions; ``balance`` is their value.
        writers: default number.
        per_process: writers that share a process, each with a handle and a thread of its own.
        warm: True if each writer makes one operation before the start.
        operations: number for each writer, instead of seconds; 0: by time.
        settings: default settings of our table.
        server: the lock server, if the lab is to start one and let it fail.
    """

    name: str
    about: str
    roles: tuple[Role, ...]
    partitions: int = 1
    keys: int = 0
    balance: int = 0
    writers: int = 4
    per_process: int = 1
    warm: bool = True
    operations: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    server: Restarts | None = None

    def __post_init__(self) -> None:
        text(self.about, "about", error=ConfigError)
        flag(self.warm, "warm")
        for name, least in (("partitions", 0), ("keys", 0), ("writers", 1), ("per_process", 1), ("operations", 0)):
            number(getattr(self, name), name, least=least, whole=True, error=ConfigError)
        number(self.balance, "balance", whole=True, error=ConfigError)
        if not self.roles:
            raise ConfigError(f"scenario {self.name!r} has no [[roles]]; say who writes what")
        names = [role.name for role in self.roles]
        if len(set(names)) < len(names) or sum(role.count is None for role in self.roles) > 1:
            raise ConfigError(
                f"scenario {self.name!r}: its roles need names that differ, and at most one of them no count; they are "
                f"{', '.join(names)}"
            )
        needed = 2 if "transfer" in self.works else 1 if self.works & {"increment", "event"} else 0
        if self.keys < needed:
            raise ConfigError(f"scenario {self.name!r} changes rows that are there before; say keys = {needed} or more")
        if self.wide and self.works - {"event", "serve"}:
            raise ConfigError(
                f"scenario {self.name!r}: a table with streams is written through them only; beside event there may be serve"
            )
        if any(role.fault for role in self.roles) and self.per_process > 1:
            raise ConfigError(f"scenario {self.name!r} has a fault, which befalls a process: say per_process = 1")
        if self.server is not None and "lock" in self.settings:
            raise ConfigError(f"scenario {self.name!r} has a lock server of its own; leave settings.lock out")

    @property
    def works(self) -> frozenset[str]:
        """The works that a system must support."""
        return frozenset(role.work for role in self.roles)

    @property
    def wide(self) -> bool:
        """True if its table is that of `rows.WIDE`."""
        return "event" in self.works

    def cast(self, writers: int) -> tuple[Role, ...]:
        """Return the role of each writer. Raises `ConfigError` if the number does not fit the roles."""
        fixed = sum(role.count or 0 for role in self.roles)
        rest = writers - fixed
        open_role = any(role.count is None for role in self.roles)
        if rest < (1 if open_role else 0) or (rest and not open_role):
            need = f"at least {fixed + 1}" if open_role else f"exactly {fixed}"
            raise ConfigError(f"scenario {self.name!r} needs {need} writers, and was given {writers}")
        return tuple(role for role in self.roles for _ in range(rest if role.count is None else role.count))

    def smallest(self) -> int:
        """Return the least number of writers that it can have."""
        return sum(role.count or 1 for role in self.roles)


def names() -> tuple[str, ...]:
    """Return the names of the built-in scenarios."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load(name: str) -> Scenario:
    """Return the scenario of a name, or of a path to your own file. Raises `ConfigError` that lists the known ones."""
    own = name.endswith(".toml") or os.sep in name
    if not own and name not in names():
        raise ConfigError(
            f"there is no scenario {name!r}; there are {', '.join(names())}, or give the path of a .toml file",
            known=names(),
        )
    path = Path(name) if own else _FOLDER / f"{name}.toml"
    try:
        return of(path.stem, tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"the scenario {name} cannot be read: {e}") from e


def of(name: str, facts: Mapping[str, Any]) -> Scenario:
    """Return a scenario from plain values, as in its file."""
    roles = facts.get("roles", ())
    if not isinstance(roles, list | tuple) or not all(isinstance(each, Mapping) for each in roles):
        raise ConfigError(f"scenario {name!r}: roles must be tables: write [[roles]] before each")
    if not isinstance(facts.get("settings", {}), Mapping):
        raise ConfigError(f'scenario {name!r}: settings must be a table: settings = {{isolation = "snapshot"}}')
    inner = {
        "name": name,
        "roles": tuple(_made(Role, {**each, "fault": _fault(each.get("fault"))}, "role") for each in roles),
        "server": _table(Restarts, facts.get("server"), "server", '{kind = "redis", every_s = 2.0}'),
    }
    return _made(Scenario, {**facts, **inner}, f"scenario {name!r}")


def _fault(facts: object) -> Fault | None:
    return _table(Fault, facts, "fault", '{kind = "kill", every = 10}')


def _table(kind: type[T], facts: object, what: str, example: str) -> T | None:
    """Return an inner table's value; None if it is missing."""
    if facts is None:
        return None
    if not isinstance(facts, Mapping):
        raise ConfigError(f"a {what} must be a table: {what} = {example}")
    return _made(kind, facts, what)


def _made(kind: type[T], facts: Mapping[str, Any], what: str) -> T:
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(facts) - set(known)):
        raise ConfigError(f"{what} has no {', '.join(unknown)}; there are {', '.join(known)}")
    missing = [
        n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING and n not in facts
    ]  # fmt: skip
    if missing:
        raise ConfigError(f"{what} lacks {', '.join(missing)}")
    return kind(**facts)


def _one_of(value: object, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}, must be one of {', '.join(known)}")
