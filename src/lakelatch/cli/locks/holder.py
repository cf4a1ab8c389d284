"""The holder of a lock: as a line, as plain values, and ended by hand."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...environment import SYSTEM
from ...errors import InputError
from ...locks.core import time_text
from ..output import duration_text, say

if TYPE_CHECKING:
    from ...locks import BreakRecord, Holder, LockProvider


def holder_json(holder: Holder | None) -> dict[str, Any] | None:
    """Return the holder as plain values."""
    if holder is None:
        return None
    names = ("owner", "token", "since", "until", "reason", "host", "pid")
    return {name: getattr(holder, name) for name in names} | {"queue": list(holder.queue)}


def holder_text(holder: Holder | None, now: float) -> str:
    """Return the holder as one line."""
    if holder is None:
        return "free"
    where = f" on {holder.host}, process {holder.pid}" if holder.host else ""
    until = f", lease ends in {duration_text(holder.until - now)}" if holder.until and holder.until > now else ""
    waiting = f"; {len(holder.queue)} wait" if holder.queue else ""
    held = duration_text(max(now - holder.since, 0))
    return f"held by {holder.reason or holder.owner}{where} for {held}{until} (token {holder.token}){waiting}"


def records(breaks: Iterable[BreakRecord]) -> list[dict[str, Any]]:
    """Return the records of ended leases as plain values."""
    return [{"token": each.token, "who": each.who, "reason": each.reason, "at": each.at} for each in breaks]


def print_breaks(holder: Holder | None, breaks: Iterable[dict[str, Any]]) -> None:
    """Print who waits in line, and the leases that were ended by hand."""
    for place, waiter in enumerate(holder.queue if holder else (), start=1):
        say(f"  {place}. in line: {waiter}")
    for record in breaks:
        say(f"token {record['token']} was ended by {record['who']} at {moment(record['at'])}: {record['reason']}")


def moment(at: float) -> str:
    """Return a time of a record for people."""
    return time_text(at).replace("T", " ").removesuffix("+00:00")


def ended(locks: LockProvider, key: str, where: str, token: int | None, reason: str, *, yes: bool) -> Holder:
    """End the lease that holds the lock, and return who held it.

    Args:
        where: names the lock in errors.
        token: of the lease that is meant; None: that of the present holder, if the user has said ``yes``.

    Raises:
        InputError: nobody holds it, or another lease does, or the user has not said so.
    """
    found = locks.inspect(key)
    now = f"{where} is {holder_text(found, SYSTEM.now())}"
    if found is None or token not in (None, found.token):
        raise InputError(
            f"no lease with token {token} holds it: {now}. `lakelatch locks show` prints the token to name"
            if token is not None
            else f"{now}; there is nothing to end",
            token=token,
        )
    if token is None and not yes:
        raise InputError(f"{now}. Nothing was done; say --yes to end that lease, whose holder then has to stop")
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    if not locks.break_lease(key, token=found.token, reason=reason.strip() or "by hand", who=who):
        raise InputError(f"the lease with token {found.token} has ended by itself meanwhile; nothing was done")
    return found
