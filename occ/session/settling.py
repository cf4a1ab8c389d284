"""Tables that take part in one transaction, and settling: giving a prepared commit its outcome.

    t=0  a coordinator has prepared in A and dies; the log of B, the home, says commit, or nothing yet
    t=1  the next writer of A reads B's log; it ends the transaction there if that says nothing and the
         coordinator is dead
    t=2  it appends the outcome to A's log

The home first: a commit in A that is ended while the home may still commit would land in one table only. Wrong judgments
about who is dead harm nobody, because the home's log has one outcome (docs/protocol.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import CommitStateUnknownError, LakeLatchError, TableNotFoundError
from ..entries import Commit, End, LogEntry, Partner, Prepare
from ..log import LogState

if TYPE_CHECKING:
    from .session import Session

_log = logging.getLogger("lakelatch.several")


def connect(session: Session) -> None:
    """Let a session settle what it meets: when it looks after dead writers, and before it forgets its own outcomes."""
    session.cleaner.settles = lambda prepared: settle(session, prepared, dead=True)
    session.pruner.settled = lambda commit: settled_elsewhere(session, commit)


def settle(session: Session, prepared: Prepare, *, dead: bool) -> bool:
    """Give a prepared commit its outcome; False: its coordinator may still decide.

    Args:
        dead: the coordinator is taken for dead: the transaction is ended in its home, unless that has decided.

    Raises:
        TableNotFoundError: the home is not there.
    """
    home = prepared.home
    landed = _outcome(session, prepared, dead=dead)
    if landed is None:
        return False
    if put_outcome(session, prepared, landed=landed, reason=f"transaction {home.instant} of {home.url} has ended"):
        _log.info("%s: settled %s: %s", session.url, prepared.instant, "landed" if landed else "nothing landed")
        session.publish_last()
        session.cleaner.sweep(prepared.instant)
    return True


def _outcome(session: Session, prepared: Prepare, *, dead: bool) -> bool | None:
    """Return whether the home has committed; None if it may still."""
    url, instant = prepared.home
    try:
        home = session.partners.at(url)
    except TableNotFoundError as e:
        raise TableNotFoundError(
            f"{session.url}: {prepared.instant} waits for the outcome of transaction {instant} of {url}, and there is no table. "
            "Nothing of ours landed. Bring it back; if it is gone for good, `lakelatch rollback "
            f"{session.url} {prepared.instant} --force` ends the transaction without it",
            table=session.url,
            instant=prepared.instant,
            home=url,
        ) from e
    outcome = home.log.outcome(instant)
    if outcome == "open":
        begin = home.log.state.open.get(instant)
        if not dead or begin is None:
            return None
        home.cleaner.roll_back(begin, reason=f"its coordinator stopped while {session.url} waited for it")
        outcome = home.log.outcome(instant)
    # What a restore has taken back in the home has landed before. A home forgets no commit that its partners wait for.
    return outcome in ("commit", "undone")


def put_outcome(session: Session, prepared: Prepare, *, landed: bool, reason: str) -> LogEntry | None:
    """Append the outcome, as its home's log has it, of a commit that is prepared here; None if it is there already."""
    me = session.env.process()

    def build(state: LogState) -> LogEntry | None:
        if prepared.instant not in state.prepared:
            return None
        if not landed:
            return End("rollback", prepared.instant, f"{me.host}:{me.pid}", reason)
        return prepared.decided(token=state.token, now_s=session.env.now(), top=state.top)

    return session.log.append(build, settles=True)


def settled_elsewhere(session: Session, commit: Commit) -> bool:
    """Return whether all partners of a commit of this table, its home, have its outcome; give it to those that lack it."""
    if not commit.several or commit.several[-1] != Partner(session.url, commit.instant):
        return True
    try:
        for url, instant in commit.several[:-1]:
            try:
                other = session.partners.at(url)
            except TableNotFoundError:
                continue
            prepared = other.log.catch_up().prepared.get(instant)
            if prepared is not None:
                put_outcome(other, prepared, landed=True, reason="")
    except LakeLatchError as e:
        _log.warning("%s: whether the partners of %s have its outcome is not known: %s", session.url, commit.instant, e)
        return False
    return True


def await_outcome(session: Session, prepared: Prepare, until: Callable[[Callable[[LogState], bool]], bool]) -> None:
    """Wait for the outcome of a prepared commit, within the bound of ``until``, then take its coordinator for dead."""

    def over(state: LogState) -> bool:
        return prepared.instant not in state.prepared or settle(session, prepared, dead=False)

    if not until(over):
        settle(session, prepared, dead=True)


def outcome_not_everywhere(url: str, instant: str, error: BaseException) -> CommitStateUnknownError:
    """The error of a transaction over several tables whose home has committed, if another table lacks the outcome."""
    return CommitStateUnknownError(
        f"transaction {instant} of {url} has landed, and one of its tables does not show it yet: {error}. Do not run it again: "
        "the next writer of that table settles it, or `lakelatch rollback`",
        table=url,
        instant=instant,
    )
