"""Transactions of table services: one that begins and commits at once, and one of the executions of a plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ConflictError, RolledBackError
from ...hudi.timeline import COMPLETED_AS, Instant, file_name, next_label
from ..liveness import delete_data_file
from ..log import Begin, Commit, Content, End, LogEntry, LogState, groups_of, held, hold, paths_of
from ..session import winner_facts
from ..transaction import Transaction

if TYPE_CHECKING:
    from ..session import Session, TableLease


class Service(Transaction):
    """A savepoint or a restore: says what it does by `settle`, then commits as any other."""

    def settle(self, content: Content, *, undone: Iterable[str] = (), named: str = "") -> None:
        """What is to land: the content of its instant, the instants that leave with it, T that it is shown under."""
        self.require_open()
        self.changes.empty_too = True
        self.changes.named = groups_of(content)
        self._content, self._undone, self._named = content, tuple(undone), named

    def refuse_beside_archival(self) -> None:
        """Raise `ConflictError` while an archival is decided and pending; from our begin entry on none is decided."""
        plans = [each for each in self.session.log.catch_up().open.values() if each.action == "archive"]
        if plans:
            raise ConflictError(
                f"{self.url}: {self.operation} stands back for archive {plans[0].instant}, which takes instants from the "
                "timeline; nothing of it landed. Try again",
                table=self.url,
                instant=self.instant,
                **winner_facts(plans[0], "an archival that is decided is carried out first"),
            )

    def _template(self) -> Commit:
        return _commit(self, hold(self.session.store, self.instant, self._content), self._undone, self._named)


def _commit(txn: Transaction, kept: Content, undone: tuple[str, ...] = (), named: str = "") -> Commit:
    operation = txn.changes.operation
    metadata = {"operation": operation.hudi_name, "held": kept}
    return Commit(
        txn.instant,
        "",
        operation.action,
        operation.hudi_name,
        txn.session.writer,
        0,
        metadata=metadata,
        undone=undone,
        named=named,
    )


_log = logging.getLogger("lakelatch.execution")
_NAMES = {"clean": "clean", "clustering": "cluster", "compaction": "compact", "archive": "archive"}
# When they are planned: others go by it, so they can neither lose nor be cancelled.
DECIDED = frozenset({"clean", "archive"})


class Execution(Transaction):
    """One of perhaps several that execute the same plan, under its T.

    Attributes:
        content: of the plan.
        mine: after the commit, whether it was this execution that landed.
    """

    def __init__(self, session: Session, plan: Begin) -> None:
        assert plan.plan is not None
        self._plan, self.content, self.mine = plan, held(session.store, plan.plan), False
        super().__init__(session, _NAMES[plan.action])
        self._looks_now = plan.action == "compaction"

    def _begin(self) -> None:
        session, plan = self.session, self._plan
        self.instant, self.begin_slot = plan.instant, plan.slot
        # What landed while the plan was computed is a candidate too (trap 16).
        self._follower = session.log.follow_since(plan.planned_at)
        self.changes.empty_too = True
        session.heart.start(self.instant, shared=True)
        try:
            self.check()  # after the first beat, which somebody who has ended the plan since would not find
            if plan.action != "archive":  # Hudi has no instant of it
                self._announce(
                    f"{session.config.timeline_folder}/{file_name(Instant(plan.instant, plan.action, 'inflight'))}"
                )
        except BaseException:
            self.abort("it could not begin")
            session.cleaner.sweep(self.instant, plan.action)
            raise

    def delete_files(self, known: Callable[[str], bool]) -> None:
        """The files of a clean are gone, those that are ``known`` to be superseded. They may have been deleted before."""
        self.changes.named = groups_of(self.content)
        for path in paths_of(self.content):
            if known(path):
                delete_data_file(self.session.store, path)
            else:
                _log.warning(
                    "%s: clean %s names %r, which no commit has superseded, and leaves it alone",
                    self.url,
                    self.instant,
                    path,
                )

    def abort(self, reason: str = "asked to") -> None:  # noqa: ARG002 - the plan stays, whatever the reason
        """This execution is over. The plan stays, and so do its files: others may be at work on them."""
        if self._state == "open":
            self._over("left")
            for file in self._open_files:
                file.abandon()

    def _require_in(self, state: LogState) -> None:
        if self.instant not in state.open:
            raise RolledBackError(
                f"{self.url}: {self._plan.action} {self.instant} is over, because somebody else has executed or cancelled it; "
                "nothing of this execution landed",
                table=self.url,
                instant=self.instant,
            )

    def _decide(self, state: LogState, lease: TableLease, template: Commit) -> LogEntry:
        if self._plan.action not in DECIDED:
            return super()._decide(state, lease, template)
        # It was decided when it was planned: its files or instants may be gone, whatever has landed since. They are in
        # no state that anybody may go back to.
        self._require_in(state)
        completion = next_label(self.session.env.now(), state.top)
        return template.placed(completion=completion, token=lease.token_at(state), schema=None)

    def _template(self) -> Commit:
        if self._plan.action in DECIDED:
            assert self._plan.plan is not None
            return _commit(self, self._plan.plan, tuple(self.content.get("archived", ())))
        made = super()._template()
        return replace(made, action=COMPLETED_AS.get(made.action, made.action))

    def _publish(self, entry: Commit) -> bool:
        self.mine = True
        return super()._publish(entry)


def end_plan(session: Session, plan: Begin, reason: str) -> bool:
    """A pending plan is over and what its executions left is deleted. False when it has landed or ended meanwhile."""
    me = session.env.process()

    def build(state: LogState) -> LogEntry | None:
        return End("abort", plan.instant, f"{me.host}:{me.pid}", reason) if plan.instant in state.open else None

    if session.log.append(build) is None:
        return False
    session.cleaner.sweep(plan.instant, plan.action)
    return True
