"""``lakelatch locks``: who holds a table's lock, and ending a lease.

JSON of ``locks show``: ``lock`` (URL), ``key``, ``holder`` (null, or ``owner``, ``token``, ``since``, ``until``,
``reason``, ``host``, ``pid``, ``queue``; times are seconds since the epoch).
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError, InputError
from .output import duration_text, print_json

if TYPE_CHECKING:
    from ..locks import Holder, LockProvider
    from ..occ.table import Table


@contextmanager
def provider_of(table: Table) -> Iterator[tuple[LockProvider, str] | None]:
    """The table's lock provider and the key of its lock; None for a table without a lock."""
    from ..locks import open_provider
    from ..occ.settings import NO_LOCK, OWN_LOCK
    from ..occ.table import OWN_LOCK_FOLDER

    lock = table.settings.lock
    if lock == NO_LOCK:
        yield None
        return
    own = lock == OWN_LOCK
    with open_provider(table.store.uri(OWN_LOCK_FOLDER) if own else lock, env=table.env) as provider:
        yield provider, "table" if own else table.url


def holder_json(holder: Holder | None) -> dict[str, Any] | None:
    """Plain values."""
    if holder is None:
        return None
    names = ("owner", "token", "since", "until", "reason", "host", "pid")
    return {name: getattr(holder, name) for name in names} | {"queue": list(holder.queue)}


def holder_text(holder: Holder | None, now: float) -> str:
    """One line."""
    if holder is None:
        return "free"
    where = f" on {holder.host}, process {holder.pid}" if holder.host else ""
    until = f", lease ends in {duration_text(holder.until - now)}" if holder.until and holder.until > now else ""
    waiting = f"; {len(holder.queue)} wait" if holder.queue else ""
    held = duration_text(max(now - holder.since, 0))
    return f"held by {holder.reason or holder.owner}{where} for {held}{until} (token {holder.token}){waiting}"


def show(url: str, *, json: bool) -> None:
    """Print the holder."""
    import lakelatch

    with lakelatch.open(url) as table, provider_of(table) as found:
        holder = found[0].inspect(found[1]) if found else None
        if json:
            print_json({"lock": table.settings.lock, "key": found[1] if found else None, "holder": holder_json(holder)})
        else:
            typer.echo(holder_text(holder, table.env.now()) if found else "this table has no lock (none://)")


def break_(url: str, *, token: int, reason: str) -> None:
    """End the lease with that token."""
    import lakelatch

    if not reason.strip():
        raise InputError("say why with --reason; it is kept with the lock")
    with lakelatch.open(url) as table, provider_of(table) as found:
        if found is None:
            raise ConfigError(f"{table.url} has no lock (none://); there is nothing to break", table=table.url)
        provider, key = found
        if not provider.break_(key, token=token, reason=reason, who=f"{getpass.getuser()}@{socket.gethostname()}"):
            now = holder_text(provider.inspect(key), table.env.now())
            raise InputError(
                f"no lease with token {token} holds the lock of {table.url}: it is {now}. "
                "`lakelatch locks show` prints the token to name",
                token=token,
            )
        typer.echo(f"ended the lease with token {token}; its holder takes the lock again and validates again")
