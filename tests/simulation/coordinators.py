"""Coordinators in a schedule: processes that begin and commit for others, and the messages between them and the writers.

A message may be lost, late, doubled or slow, and so may its answer; a coordinator is killed and stopped like any process.
Of two, each question goes to any of them. Some writers ask nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelatch.occ.coordination import Answer, Question
from lakelatch.occ.entries import BeginRequest
from lakelatch.occ.landing import Coordinator

from .faults import Network
from .scheduler import SimProcess

if TYPE_CHECKING:
    from .world import World

_ALONE = 0.25  # of the writers
_BUNCH_S = 0.7
_IMPATIENT_S = 0.1  # how long some wait for an answer


class Coordinators:
    """The coordinators of one table. In every other schedule messages arrive in bunches, so that many wait for one round."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at_work: dict[SimProcess, Coordinator] = {}
        self._bunches: dict[SimProcess, list[tuple[Question, Any]]] = {}

    def lead(self, process: SimProcess) -> None:
        """The work of a coordinator's process; it ends with the schedule."""
        table = self._world.open_table(process)
        if table is not None:
            self._at_work[process] = Coordinator(table.session)
            process.mourners.append(lambda: self._at_work.pop(process))

    def asked_by(self, network: Network) -> Asking | None:
        """What a writer asks; None for one that does all by itself."""
        if not self._world.shape.coordinators or self._world.scheduler.random.random() < _ALONE:
            return None
        return Asking(self._world, network, self)

    @property
    def any(self) -> bool:
        """True if one is at work."""
        return bool(self._at_work)

    def send(self, message: bytes, answer: object) -> None:
        """The message arrives at one of them, if there is any."""
        scheduler = self._world.scheduler
        if not self._at_work:
            return
        process, coordinator = scheduler.random.choice(list(self._at_work.items()))
        question = Question.from_bytes(message)
        assert question is not None, "nobody understands the question"
        bunch = self._bunches.setdefault(process, [])
        bunch.append((question, answer))
        if len(bunch) > 1:
            return
        after_s = scheduler.random.random() * 0.02
        if self._world.shape.seed % 2:
            after_s += _BUNCH_S - scheduler.now % _BUNCH_S

        def take() -> None:
            for each, told in self._bunches.pop(process):
                coordinator.ask(each, told)

        scheduler.at(after_s, lambda: scheduler.spawn(process, take, name="questions", daemon=True))


class Asking:
    """What one writer asks."""

    def __init__(self, world: World, network: Network, coordinators: Coordinators) -> None:
        self._world, self._network, self._coordinators = world, network, coordinators

    def ask(self, question: Question, patience_s: float) -> Answer | None:
        """See `Coordinating`."""
        world, begins = self._world, isinstance(question.wanted, BeginRequest)
        step = "ask begin" if begins else "ask commit"
        heard, found = world.environment(self._network.process).event(), list[Answer | None]()
        if isinstance(question.wanted, BeginRequest):
            world.asked_to_begin(question.wanted)
        fault = self._network.before(step)
        if fault == "refuse" or not self._coordinators.any:
            return None
        message = question.to_bytes()

        def answer(told: Answer | None) -> None:
            body = None if told is None else told.to_bytes()

            def arrive() -> None:
                found.append(None if body is None else Answer.from_bytes(body))
                heard.set()

            world.scheduler.at(world.scheduler.random.random() * 0.02, arrive)

        if fault not in ("lose request", "late"):
            self._coordinators.send(message, answer if fault != "lose reply" else lambda _: None)
        if fault in ("late", "twice"):
            after_s = world.scheduler.random.random() * 2 * world.faults.long_s
            world.scheduler.at(after_s, lambda: self._coordinators.send(message, lambda _: None))
        heard.wait(patience_s if world.scheduler.random.random() < 0.7 else _IMPATIENT_S)
        if self._network.after(fault) or not found or found[0] is None:
            return None
        world.also[f"answers to {step}"] += 1
        return found[0]

    def close(self) -> None:
        """See `Coordinating`."""
