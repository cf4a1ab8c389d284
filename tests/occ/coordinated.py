"""A coordinator that tests ask on their own thread, and what they look at behind it."""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.occ.coordination import Answer, Question
from lakelatch.occ.entries.entries import GroupCommit, LogEntry, decode
from lakelatch.occ.landing.coordinator import Coordinator, _Waiting
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.transaction.transaction import Transaction

from .world import World, Writer, insert


class Direct:
    """A coordinator that is asked on the writer's own thread; ``hears`` may keep a question, alter it, or lose its answer."""

    def __init__(self, leader: Writer) -> None:
        leader.env.thread = lambda call, *, name: call()
        self.leader, self.coordinator = leader, Coordinator(leader.table.session)
        self.asked: list[Question] = []
        self.hears: Callable[[Question], Question | None] = lambda question: question
        self.answers = True

    def ask(self, question: Question, patience_s: float) -> Answer | None:
        self.asked.append(question)
        found: list[Answer | None] = []
        sent = Question.from_bytes(question.to_bytes())
        assert sent is not None
        if (heard := self.hears(sent)) is not None:
            self.coordinator.ask(heard, found.append)
        if not found or found[0] is None or not self.answers:
            return None
        return Answer.from_bytes(found[0].to_bytes())

    def close(self) -> None:
        """See `Coordinating`."""

    def commit(self, *questions: Question) -> list[Answer | None]:
        """One round, of writers that ask together."""
        answers: list[Answer | None] = []
        self.coordinator._commit([_Waiting(each, answers.append) for each in questions])
        return answers


def asking(world: World, asked: Direct, name: str) -> Writer:
    writer = world.writer(name)
    writer.table.session.coordinator = asked
    return writer


def question(txn: Transaction) -> Question:
    """What its writer asks for as it commits; it is seen no more for now."""
    txn.workspace.close_files()
    landing = txn._landing
    entry, landing._asked = landing.entry(), True
    landing._prepared.append(entry)
    return Question(txn.session.log.next_slot, landing._request(entry))


def begun(writer: Writer, part: str, *ids: str, **words: object) -> Transaction:
    """A transaction that has written a file of new rows."""
    txn = writer.table.transaction("insert", **words)
    insert(txn, part, *ids)
    return txn


def log_of(world: World) -> list[LogEntry]:
    bodies = [each.read_bytes() for each in sorted((world.folder / LOG).rglob("*")) if each.is_file()]
    return [decode(body, "slot") for body in bodies]


def together_in(world: World) -> list[tuple[str, ...]]:
    """T of the members of each entry that holds several commits."""
    return [tuple(each.instant for each in group.members) for group in log_of(world) if isinstance(group, GroupCommit)]
