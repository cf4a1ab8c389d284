"""Errors that say why a lock was not granted. In each case nothing is held."""

from __future__ import annotations

from datetime import UTC, datetime

from ...errors import LockError, LockTimeoutError, TokenRegressedError
from ..interface import Holder
from .backend import LockRequest


def time_text(at: float) -> str:
    """Return a time for people. A record's time may be any number."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "a time that is none"


def too_many(ask: LockRequest, place: str, most: int) -> LockError:
    """The error when the process already holds as many leases as it can renew."""
    return LockError(
        f"This process holds {most} leases at {place}, which is as many as it can keep alive there. Lock {ask.key!r} was "
        "not taken; release others first, or spread the work over more processes",
        key=ask.key, max_leases=most,
    )  # fmt: skip


def token_behind(ask: LockRequest, place: str, token: int) -> TokenRegressedError:
    """The error when the backend's token counter has gone back below a token that was seen."""
    return TokenRegressedError(
        f"Lock {ask.key!r} would be granted with token {token}, but token {ask.token_above} was seen before: the counter at "
        f"{place} went back (it was rebuilt or emptied) and could not be lifted. Nothing is held; begin a new generation "
        "of tokens",
        key=ask.key, token=token, token_above=ask.token_above,
    )  # fmt: skip


def busy(
    ask: LockRequest, wait_s: float, holder: Holder | None, ahead: int | None, *, ours: bool = False
) -> LockTimeoutError:
    """The error when the wait for the key timed out.

    ``ahead`` counts the holder and the waiters before us, where known. ``ours``: a lease of this
    process holds the key. It may not be the caller's own: pool threads and tasks
    change places, and a lease may be handed on.
    """
    line = "" if ahead is None else f" (number {ahead} in line)"
    hint = (
        ". It is held by a lease of this process. If that is the caller's own, it has waited for itself: locks are not "
        "re-entrant, so hand the lease on to the code that needs it, or release it first"
        if ours
        else ""
    )
    if holder is None:
        return LockTimeoutError(
            f"Lock {ask.key!r} was busy for {wait_s:g} s{line}; who holds it now is not known. Nothing is held; try again "
            f"or wait longer{hint}",
            key=ask.key, wait_s=wait_s, holder=None, position=ahead,
        )  # fmt: skip
    since = time_text(holder.since)
    who = f"process {holder.pid}" if holder.pid else repr(holder.owner)  # a JVM names itself otherwise
    purpose = f" for {holder.reason!r}" if holder.reason else ""
    return LockTimeoutError(
        f"Lock {ask.key!r} was busy for {wait_s:g} s{line}: held by {who} on {holder.host or 'some host'}"
        f"{purpose} since {since} by its clock (token {holder.token}). Nothing is held; wait longer, ask for it back "
        f"(`lakelatch locks revoke`), or end that holder with break_lease(key, token={holder.token}, ...), a table's with "
        f"`lakelatch locks break`, if it is known to be stuck{hint}",
        key=ask.key, wait_s=wait_s, holder=holder, position=ahead,
    )  # fmt: skip
