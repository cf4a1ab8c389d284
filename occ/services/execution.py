"""The transactions of table services: one that begins and commits at once, and the execution of a plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from ...conflict import Claim
from ...errors import ConfigError, ConflictError
from ...hudi.timeline import COMPLETED_AS, WriteStat
from ...progress import Reporter
from ...storage import Store
from ..entries import Begin, Commit, Content, Landed, groups_of, held, hold, paths_of
from ..landing import CommitValidator, Landing, staged_entry
from ..liveness import delete_data_file
from ..session import winner_facts
from ..staging import FileSpec, Staged
from ..workspace import Attempt, Workspace
from .planned_service import PlannedService

if TYPE_CHECKING:
    from ..entries import Operation, Settings
    from ..session import CommitResult, Session


class Executing(Protocol):
    """The runner's view of an execution: the plan's T, the service's name, the table."""

    @property
    def instant(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def session(self) -> Session: ...


class Part(Protocol):
    """One piece of a plan's work. Pickles."""

    @property
    def bytes(self) -> int | None:
        """The bytes that it reads, as a measure of its work; None if the plan does not say."""

    def run(self) -> list[WriteStat]:
        """Do the work and return the files that were written."""


# Runs all parts, in any order; yields the result of each when it is done.
Runner = Callable[[Executing, Sequence[Part]], Iterable[list[WriteStat]]]


def one_by_one(_execution: Executing, parts: Sequence[Part]) -> Iterator[list[WriteStat]]:
    """Run the parts one after another in this process."""
    for part in parts:
        yield part.run()


def refuse_no_runner(runner: object) -> None:
    """Raise `ConfigError` if the runner cannot be called."""
    if not callable(runner):
        raise ConfigError(
            f"runner={runner!r} cannot be called; leave it out, or use the methods of SparkTable; nothing was planned"
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of a data file; idempotent."""

    store: Store
    path: str
    bytes: ClassVar[int] = 64 << 10  # a request takes about as long as reading these

    def run(self) -> list[WriteStat]:
        """See `Part`."""
        delete_data_file(self.store, self.path)
        return []


_log = logging.getLogger("lakelatch.execution")


class Service:
    """A savepoint or a restore, as a context manager: `settle` it; leaving the block commits, an exception aborts."""

    def __init__(self, session: Session, name: str, operation: Operation) -> None:
        changes = Staged(name, operation)
        self.session, self._changes = session, changes

        def under(settings: Settings) -> None:
            self._validator = CommitValidator.of(session, changes, settings)

        claim = Claim("", None, session.priority, None)
        self.attempt = Attempt.begin(session, name, changes.operation, claim, under=under)
        self._landing = Landing(self.attempt, Workspace(self.attempt, changes), self._validator, entry=self._entry)

    @property
    def result(self) -> CommitResult | None:
        """The committed result; None before."""
        return self._landing.result

    def settle(
        self, content: Content, *, undone: Iterable[str] = (), standing: Iterable[Landed] = (), named: str = ""
    ) -> None:
        """Set the content of the commit, the instants that it undoes, and the T that its instant is named by.

        ``standing``: the newest remaining batches of the sources whose newest batch is undone.
        """
        self.attempt.require_open()
        self._changes.empty_too = True
        self._changes.named = groups_of(content)
        self._content, self._undone, self._named, self._standing = content, tuple(undone), named, tuple(standing)

    def refuse_beside_archival(self) -> None:
        """Raise `ConflictError` while an archival is pending; our begin entry keeps others from being decided."""
        attempt = self.attempt
        plans = [each for each in self.session.log.catch_up().open.values() if each.action == "archive"]
        if plans:
            raise ConflictError(
                f"{attempt.url}: {attempt.operation} stands back for archive {plans[0].instant}, which takes instants from "
                "the timeline; nothing of it landed. Try again",
                table=attempt.url,
                instant=attempt.instant,
                **winner_facts(plans[0], "an archival that is decided is carried out first"),
            )

    def abort(self, reason: str) -> None:
        """End the transaction without a commit."""
        self._landing.abort(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._landing.leave(exc)

    def _entry(self) -> Commit:
        kept = hold(self.session.store, self.attempt.instant, self._content, inline_bytes=self.session.inline_bytes)
        return replace(_content_entry(self.attempt, kept, self._undone, self._named), standing=self._standing)


def _content_entry(attempt: Attempt, kept: Content, undone: tuple[str, ...] = (), named: str = "") -> Commit:
    kind = attempt.kind
    metadata = {"operation": kind.hudi_name, "held": kept}
    return Commit(
        attempt.instant,
        "",
        kind.action,
        kind.hudi_name,
        attempt.session.writer,
        0,
        metadata=metadata,
        undone=undone,
        named=named,
    )


class Execution:
    """One execution of a plan, under the plan's T; others may run at the same time. Leaving the block commits.

    Attributes:
        attempt: this execution's attempt at the plan.
        content: the plan's content.
        workspace: collects the files that it writes.
        report: counts the parts that are done.

    ``runner`` does the parts of the work.
    """

    def __init__(
        self,
        session: Session,
        plan: Begin,
        service: PlannedService,
        report: Reporter | None = None,
        runner: Runner = one_by_one,
    ) -> None:
        self.report, self._runner = report or Reporter(), runner
        assert plan.plan is not None
        self.session, self._plan, self.content = session, plan.plan, held(session.store, plan.plan)
        changes = Staged(service.name, service.operation)
        validator = CommitValidator.of(session, changes, session.settings)
        claim = Claim("", None, session.priority, None)
        self.attempt = Attempt.join(session, service.name, changes.operation, claim, plan)
        changes.empty_too = True
        self.workspace = Workspace(self.attempt, changes)
        self._landing = Landing(
            self.attempt,
            self.workspace,
            validator,
            entry=self._decided_entry if service.decided else self._written_entry,
            decided=service.decided,
            looks_now=plan.action in COMPLETED_AS and session.config.merge_on_read,
        )

    @property
    def instant(self) -> str:
        """T of the plan."""
        return self.attempt.instant

    @property
    def operation(self) -> str:
        """The service's name."""
        return self.attempt.operation

    @property
    def result(self) -> CommitResult | None:
        """The committed result, of whichever execution committed; None before."""
        return self._landing.result

    @property
    def mine(self) -> bool:
        """True, after the commit, if this execution appended it."""
        return self._landing.appended

    def check(self) -> None:
        """Raise `RolledBackError` if the plan has been executed or cancelled elsewhere."""
        self.attempt.check()

    def file_spec(self) -> FileSpec:
        """Return the facts that its files share; they have the table's columns as of the plan."""
        schema = self.workspace.schema
        assert schema is not None, "nothing is planned for a table without one"
        return self.workspace.file_spec(schema)

    def carry_out(self, parts: Sequence[Part]) -> None:
        """Run all parts with the caller's runner, and stage their files."""

        def done() -> list[WriteStat]:
            stats: list[WriteStat] = []
            for each in self._runner(self, parts):
                stats += each
                self.report.add()
            return stats

        self.report.of(len(parts))
        with self.workspace.staging():
            self.workspace.add(self.attempt.seen(done))

    def delete_files(self, known: Callable[[str], bool]) -> None:
        """Delete the files of a clean that are ``known`` to be superseded; idempotent. Others are logged and left."""
        self.workspace.changes.named = groups_of(self.content)
        parts = []
        for path in paths_of(self.content):
            if known(path):
                parts.append(Deletion(self.session.store, path))
            else:
                _log.warning(
                    "%s: clean %s names %r, which no commit has superseded, and leaves it alone",
                    self.session.url,
                    self.attempt.instant,
                    path,
                )
        self.carry_out(parts)

    def __enter__(self) -> Self:
        self._block = self.attempt.trace.within()
        self._block.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            self._landing.leave(exc)
        finally:
            self._block.__exit__(None, None, None)

    def _decided_entry(self) -> Commit:
        return _content_entry(self.attempt, self._plan, tuple(self.content.get("archived", ())))

    def _written_entry(self) -> Commit:
        made = staged_entry(self.attempt, self.workspace.changes)
        buckets = self.content.get("bucket_count", {}).get("to", 0)
        return replace(made, action=COMPLETED_AS.get(made.action, made.action), buckets=buckets)


def end_plan(session: Session, plan: Begin, reason: str) -> bool:
    """End a pending plan and delete the files of its executions. Returns False if it has committed or ended already."""
    return session.cleaner.roll_back(plan, reason=reason, kind="abort")
