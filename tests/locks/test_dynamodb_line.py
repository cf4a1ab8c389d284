"""Hand-offs of a DynamoDB lock in a model: the real backend in many processes on two cores, in virtual time.

How soon a lock changes hands, for how many requests, and how evenly comes out of when each process looks again; a busy
machine could not tell that from chance. A table of one item stands for the server; expressions mean what they do there.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import greenlet
import pytest

from lakelatch.environment import Process
from lakelatch.locks.backend import Ask
from lakelatch.locks.dynamodb import DynamoBackend
from lakelatch.locks.dynamodb_table import Answer, Table, _typed

CLIENT_S, SERVER_S = 0.0004, 0.0008  # of a core: before and after a request, and for it
STALL = 0.002  # of the requests take much longer
PAUSE_S = 0.005  # of the plain loop in benchmarks/floors
Item = dict[str, Any]


class Model:
    """Tasks that sleep, or work on one of two cores."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.items: dict[str, Item] = {}
        self.requests = 0
        self._events: list[tuple[float, int, bool, greenlet.greenlet]] = []
        self._order = count()
        self._idle_cores = 2
        self._ready: list[tuple[float, greenlet.greenlet]] = []
        self._hub = greenlet.getcurrent()

    def start(self, task: Callable[[], None]) -> None:
        self._at(self.chance.random() * 0.05, greenlet.greenlet(task), core=False)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events[0][0] < end:
            self.now, _, core, task = heapq.heappop(self._events)
            self._idle_cores += core
            task.switch()
            while self._ready and self._idle_cores:
                took_s, task = self._ready.pop(0)
                self._idle_cores -= 1
                self._at(took_s, task, core=True)

    def sleep(self, seconds: float) -> None:
        self._at(seconds, greenlet.getcurrent(), core=False)
        self._hub.switch()

    def work(self, seconds: float) -> None:
        took_s = seconds * self.chance.lognormvariate(-0.125, 0.5)
        self._ready.append((took_s, greenlet.getcurrent()))
        self._hub.switch()

    def _at(self, later_s: float, task: greenlet.greenlet, *, core: bool) -> None:
        heapq.heappush(self._events, (self.now + later_s, next(self._order), core, task))


class Clock:
    """What the backend needs of an environment."""

    def __init__(self, model: Model, pid: int) -> None:
        self._model = model
        self._process = Process("host", "boot", pid, "0")
        self.sleep = model.sleep
        self.random = model.chance.random

    def now(self) -> float:
        return self._model.now

    monotonic = now

    def uuid(self) -> str:
        return f"{self._model.chance.getrandbits(128):032x}"

    def process(self) -> Process:
        return self._process


class ModelTable:
    """A `Table` whose answers take a client and a server their time."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def read(self, key: str) -> Item | None:
        with self._request():
            return self._model.items.get(key)

    def update(self, key: str, expression: str, condition: str, values: Item, *, want: bool = False) -> Answer:
        typed = {name: _typed(value) for name, value in values.items()}
        with self._request():
            item = self._model.items.get(key)
            if not holds(condition, item or {}, typed):
                return Answer(False, item)
            self._model.items[key] = new = changed(expression, item or {}, typed)
            return Answer(True, new if want else None)

    @contextmanager
    def _request(self) -> Iterator[None]:
        model = self._model
        model.requests += 1
        model.work(CLIENT_S)
        model.work(SERVER_S)
        yield
        if model.chance.random() < STALL:
            model.sleep(model.chance.uniform(0.01, 0.1))
        model.work(CLIENT_S)


def value(name: str, item: Item, values: Item) -> Any:
    """Of an attribute, an element of a list, or a value of the request; None where there is none."""
    if name.startswith(":"):
        return values[name]
    attribute, _, index = name.partition("[")
    found = {"#key": "key"}.get(attribute, attribute)
    if not index:
        return item.get(found)
    return dict(enumerate(item.get(found, {"L": []})["L"])).get(int(index[:-1]))


_CALL = re.compile(
    r"(attribute_exists|attribute_not_exists)\(([^()]+)\)|NOT (contains)\((\w+), (:\w+)\)|(size)\((\w+)\) < (:\w+)"
)
_COMPARED = re.compile(r"([\w\[\]]+) (=|<|>=) (:?\w+)")


def holds(condition: str, item: Item, values: Item) -> bool:
    """The part of the language that the locks use; a comparison with an attribute that is not there is false."""

    def called(match: re.Match[str]) -> str:
        exists, of, absent_in, within, name, _, measured, most = match.groups()
        if exists:
            return str((value(of, item, values) is None) == (exists == "attribute_not_exists"))
        many = value(within or measured, item, values)
        if absent_in:
            return str(many is not None and values[name] not in many["L"])
        return str(many is not None and len(many["L"]) < int(values[most]["N"]))

    def compared(match: re.Match[str]) -> str:
        left, right = (value(name, item, values) for name in match.group(1, 3))
        if left is None or right is None:
            return "False"
        if match[2] == "=":
            return str(left == right)
        return str((int(left["N"]) < int(right["N"])) == (match[2] == "<"))

    text = _COMPARED.sub(compared, _CALL.sub(called, condition)).replace("AND", "and").replace("OR", "or")
    return not text or bool(eval(text, {}))


def changed(expression: str, item: Item, values: Item) -> Item:
    """The item after SET, REMOVE and ADD; all see it as it was."""
    new = dict(item)
    for clause in re.split(r" (?=REMOVE |ADD )", expression):
        kind, _, rest = clause.partition(" ")
        for part in re.split(r", (?![^(]*\))", rest):
            if kind == "SET":
                name, _, what = part.partition(" = ")
                if what.startswith("list_append"):
                    more = values[what.rstrip(")").rpartition(", ")[2]]
                    new[name] = {"L": item.get(name, {"L": []})["L"] + more["L"]}
                else:
                    new[name] = values[what]
            elif kind == "ADD":
                name, _, by = part.partition(" ")
                new[name] = {"N": str(int(item.get(name, {"N": "0"})["N"]) + int(values[by]["N"]))}
            elif "[" in part:
                name = part.partition("[")[0]
                if name in new:
                    new[name] = {"L": new[name]["L"][1:]}
            else:
                new.pop(part, None)
    return new


class Contest:
    """Processes that take and give back one lock as often as they can."""

    def __init__(self, processes: int, hold_s: float, *, plain: bool = False) -> None:
        self.model = Model(processes)
        self.served = [0] * processes
        self._hold_s = hold_s
        self._inside = 0
        for me in range(processes):
            self.model.start(lambda me=me: self._plain(me) if plain else self._ours(me))  # type: ignore[misc]

    def run(self, seconds: float) -> None:
        """So long that there is a line, then as long as is counted."""
        self.model.run(2.0)
        self.served, self.model.requests = [0] * len(self.served), 0
        self.model.run(seconds)

    def _ours(self, me: int) -> None:
        env: Any = Clock(self.model, me)
        backend = DynamoBackend(cast(Table, ModelTable(self.model)), env)
        for number in count():
            ask = Ask("flights", f"{me}-{number}", env.process(), 30.0, None, 0, "", waits=True)
            place = backend.line_up(ask.key)
            while (grant := backend.try_grant(ask, place)) is None:
                place.wait(300.0)
            self._hold(me)
            grant.release()

    def _plain(self, me: int) -> None:
        """The loop of benchmarks/floors/dynamodb.py."""
        table = ModelTable(self.model)
        while True:
            mine = {":me": f"{me}"}
            while not table.update(
                "floor", "SET heldBy = :me ADD fence :one", "attribute_not_exists(heldBy)", mine | {":one": 1}
            ).done:
                self.model.sleep(PAUSE_S * self.model.chance.random() * 2)
            self._hold(me)
            table.update("floor", "REMOVE heldBy", "heldBy = :me", mine)

    def _hold(self, me: int) -> None:
        self._inside += 1
        assert self._inside == 1, "two holders"
        self.model.sleep(self._hold_s)
        self._inside -= 1
        self.served[me] += 1


@pytest.mark.parametrize(
    ("processes", "hold_s", "ratio", "requests"),
    [
        (2, 0.0, 0.9, 2.8), (2, 0.005, 0.9, 2.9), (3, 0.0, 0.7, 3.5),
        (8, 0.0, 1.0, 4.2), (8, 0.005, 0.9, 4.8), (32, 0.0, 2.0, 5.0), (32, 0.005, 2.0, 5.6),
    ],
)  # fmt: skip
def test_processes_that_come_back_at_once_share_the_lock_evenly_for_few_requests(
    processes: int, hold_s: float, ratio: float, requests: float
) -> None:
    ours, plain = Contest(processes, hold_s), Contest(processes, hold_s, plain=True)
    ours.run(10.0)
    plain.run(10.0)
    assert sum(ours.served) >= ratio * sum(plain.served)
    assert min(ours.served) >= 0.65 * max(ours.served), sorted(ours.served)
    assert ours.model.requests <= requests * sum(ours.served)
