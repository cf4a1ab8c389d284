"""Changing the table's lock while writers run, as `occ/session/table_lock.py` does: generations, tokens, two leases at once.

Two lock servers, X and Y. The log is one list, an entry is decided at its slot; of it matter the lock in force, its
generation and the last commit's token. A lease may end (its holder knows by its own clock) and a server may forget its
grant (the holder does not know, and tokens repeat or begin again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .explore import Bounded

NOBODY = -1
FOREIGN = -2
X, Y = 0, 1
Token = tuple[int, int]
"""A server that begins again gives tokens of a lower first number."""
ZERO = (-9, 0)


class Server(NamedTuple):
    """A lock server."""

    holder: int = NOBODY
    last: Token = (0, 0)


class Lease(NamedTuple):
    """A lease as its holder knows it."""

    lock: int
    token: Token
    held: bool = True


class Force(NamedTuple):
    """What the log says of the lock."""

    lock: int = X
    generation: int = 0
    token: Token = ZERO


class Process(NamedTuple):
    """A committer, or somebody who changes the lock."""

    at: str = "idle"
    seen: Force = Force()
    lease: Lease | None = None
    second: Lease | None = None


class State(NamedTuple):
    """Everything at one moment."""

    servers: tuple[Server, Server]
    log: Force
    processes: tuple[Process, ...]
    endings: int = 0
    forgets: int = 0
    repeats: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """What keeps two from landing at once, and the table from being blocked."""

    old_taken: bool = True
    """The change is made under the lock in force."""
    new_taken: bool = True
    """And under the new one. [12]"""
    generation_compared: bool = True
    """A lease of an earlier generation counts for nothing."""
    tokens_compared: bool = True
    """A commit's token is larger than the last commit's."""
    new_generation: bool = True
    """Tokens that went back begin a new generation. [12]"""
    certain_before_second: bool = True
    """The second lock is waited for only when the first is certainly the one in force."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    committers: int = 2
    changers: tuple[int, ...] = (Y,)
    """The locks that somebody puts in force."""
    endings: int = 0
    """Leases that end while their holder is suspended."""
    forgets: int = 0
    """Times that a server begins again."""
    repeats: int = 0
    """Times that a server loses its last grant."""
    stuck: bool = False
    """Somebody else holds Y for ever. Anyone who changes the lock gives up then; else nobody does."""


class LockChange(Bounded):
    """All behaviours within the bounds."""

    processes = "processes"

    def start(self) -> State:
        b = self.bounds
        servers = (Server(), Server(FOREIGN if b.stuck else NOBODY))
        processes = (Process(),) * (b.committers + len(b.changers))
        return State(servers, Force(), processes, b.endings, b.forgets, b.repeats)

    def goals(self) -> dict[str, Callable[[State, State], bool]]:
        """What must stay possible: everybody gets done."""

        def done(i: int) -> Callable[[State, State], bool]:
            return lambda _s, t: t.processes[i].at == "end"

        return {f"process {i} gets done": done(i) for i in range(self.bounds.committers + len(self.bounds.changers))}

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for i, p in enumerate(s.processes):
            name = "committer" if i < self.bounds.committers else "changer"
            for what, after in self._process(s, i, p):
                yield f"{name} {i} {what}", _tidy(after)
        yield from self._weather(s)

    def _process(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        changes = i >= self.bounds.committers
        match p.at:
            case "idle":
                at = "want second" if changes and not self.rules.old_taken else "want"
                yield "reads the log", self.moved(s, i, Process(at, s.log))
            case "want":
                if s.servers[p.seen.lock].holder == NOBODY:
                    after, lease = self._granted(s, i, p.seen.lock)
                    behind = lease.token <= p.seen.token
                    yield (
                        f"takes {'XY'[p.seen.lock]}",
                        self.moved(
                            after, i, p._replace(at="behind" if behind else "check" if changes else "hold", lease=lease)
                        ),
                    )
            case "behind":
                assert p.lease is not None
                if self.rules.new_generation and s.log.generation == p.seen.generation and p.lease.held:
                    log = Force(s.log.lock, s.log.generation + 1)
                    appended = self._appended(s, i, log)
                    yield "begins a new generation", self._given_back(appended, i, "idle")
                else:
                    yield "gives its lease back", self._given_back(s, i, "idle")
            case "hold":
                yield from self._commit(s, i, p)
            case "check":
                target = self.bounds.changers[i - self.bounds.committers]
                if not self._may(s, p.lease, p.seen) and self.rules.certain_before_second:
                    yield "finds that its lock does not count", self._given_back(s, i, "idle")
                elif (s.log if self.rules.certain_before_second else p.seen).lock == target or not self.rules.new_taken:
                    yield "goes on", self.moved(s, i, p._replace(at="change"))
                else:
                    yield "goes on", self.moved(s, i, p._replace(at="want second"))
            case "want second":
                target = self.bounds.changers[i - self.bounds.committers]
                if s.servers[target].holder == NOBODY:
                    after, lease = self._granted(s, i, target)
                    yield f"takes {'XY'[target]}, too", self.moved(after, i, p._replace(at="change", second=lease))
                elif p.lease is not None and p.lease.lock == target:
                    yield "has that already", self.moved(s, i, p._replace(at="change"))
                if self.bounds.stuck:
                    yield "gives up", self._given_back(s, i, "end")
            case "change":
                yield from self._change(s, i, p)

    def _commit(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        assert p.lease is not None
        if not self._may(s, p.lease, p.seen):
            yield "finds that its lease does not count", self._given_back(s, i, "idle")
            return
        fault = ""
        if p.lease.lock != s.log.lock:
            fault = "a commit under a lock that is not in force"
        elif p.lease.token <= s.log.token:
            fault = "a commit under a token that does not grow"
        landed = self._appended(s, i, s.log._replace(token=p.lease.token))
        yield "commits", self._given_back(landed, i, "end")._replace(fault=fault or landed.fault)

    def _change(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        target = self.bounds.changers[i - self.bounds.committers]
        held = p.second is None or p.second.held
        if (p.lease is not None and not self._may(s, p.lease, p.seen)) or not held:
            yield "finds that a lease does not count", self._given_back(s, i, "idle")
        elif s.log.lock == target:
            yield "has nothing to change", self._given_back(s, i, "end")
        else:
            changed = self._appended(s, i, Force(target, s.log.generation + 1))
            yield f"puts {'XY'[target]} in force", self._given_back(changed, i, "end")

    def _may(self, s: State, lease: Lease | None, seen: Force) -> bool:
        """`TableLease.token_at`."""
        assert lease is not None
        current = not self.rules.generation_compared or seen.generation == s.log.generation
        return current and lease.held and (not self.rules.tokens_compared or lease.token > s.log.token)

    def _appended(self, s: State, i: int, log: Force) -> State:
        """The log after an entry that matters, which nobody may append while another holds the lock in force."""
        holder = s.servers[s.log.lock].holder
        others = holder >= 0 and holder != i and self._valid(s, holder)
        if self.bounds.forgets or self.bounds.repeats:
            others = False  # then two may hold it, and the log alone decides
        return s._replace(log=log, fault="an entry while another one holds the lock in force" if others else "")

    def _valid(self, s: State, i: int) -> bool:
        p = s.processes[i]
        return p.at == "hold" and p.seen.generation == s.log.generation and p.lease is not None and p.lease.held

    def _granted(self, s: State, i: int, lock: int) -> tuple[State, Lease]:
        era, number = s.servers[lock].last
        token = (era, number + 1)
        servers = [*s.servers]
        servers[lock] = Server(i, token)
        return s._replace(servers=(servers[X], servers[Y])), Lease(lock, token)

    def _given_back(self, s: State, i: int, at: str) -> State:
        servers = [*s.servers]
        for lease in (s.processes[i].lease, s.processes[i].second):
            if lease is not None and servers[lease.lock] == Server(i, lease.token):
                servers[lease.lock] = Server(NOBODY, servers[lease.lock].last)
        return self.moved(s._replace(servers=(servers[X], servers[Y])), i, Process(at))

    def _weather(self, s: State) -> Iterator[tuple[str, State]]:
        for lock, server in enumerate(s.servers):
            if server.holder < 0:
                continue
            name, freed = "XY"[lock], [*s.servers]
            if s.endings:
                freed[lock] = Server(NOBODY, server.last)
                p = s.processes[server.holder]
                lost = p._replace(lease=_ended(p.lease, lock, server.last), second=_ended(p.second, lock, server.last))
                after = self.moved(s._replace(servers=(freed[X], freed[Y]), endings=s.endings - 1), server.holder, lost)
                yield f"the lease on {name} ends", _tidy(after)
            if s.repeats:
                freed[lock] = Server(NOBODY, (server.last[0], server.last[1] - 1))
                yield (
                    f"{name} loses its last grant",
                    _tidy(s._replace(servers=(freed[X], freed[Y]), repeats=s.repeats - 1)),
                )
            if s.forgets:
                freed[lock] = Server(NOBODY, (server.last[0] - 1, 0))
                yield f"{name} begins again", _tidy(s._replace(servers=(freed[X], freed[Y]), forgets=s.forgets - 1))
        if s.forgets and s.servers[X].holder == NOBODY:
            restarted = Server(NOBODY, (s.servers[X].last[0] - 1, 0))
            yield "X begins again", _tidy(s._replace(servers=(restarted, s.servers[Y]), forgets=s.forgets - 1))

    def judge(self, s: State) -> str:
        """The first promise that is broken."""
        return s.fault


def _ended(lease: Lease | None, lock: int, token: Token) -> Lease | None:
    return lease._replace(held=False) if lease is not None and (lease.lock, lease.token) == (lock, token) else lease


def _tidy(s: State) -> State:
    """Tokens as ranks within their era, and generations likewise: only their order matters."""
    leases = [each for p in s.processes for each in (p.lease, p.second) if each is not None]
    forces = [s.log, *(p.seen for p in s.processes)]
    tokens = {server.last for server in s.servers} | {each.token for each in leases} | {f.token for f in forces}
    rank = {t: (t[0], sum(1 for other in tokens if other[0] == t[0] and other < t)) for t in tokens}
    generations = sorted({f.generation for f in forces})

    def force(f: Force) -> Force:
        return f._replace(token=rank[f.token], generation=generations.index(f.generation))

    def lease(each: Lease | None) -> Lease | None:
        return each and each._replace(token=rank[each.token])

    processes = tuple(p._replace(seen=force(p.seen), lease=lease(p.lease), second=lease(p.second)) for p in s.processes)
    servers = (s.servers[X]._replace(last=rank[s.servers[X].last]), s.servers[Y]._replace(last=rank[s.servers[Y].last]))
    return s._replace(log=force(s.log), processes=processes, servers=servers)
