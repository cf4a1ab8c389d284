"""``lakelatch locks wait``, and ``show`` and ``break`` of any lock by its URL and key.

JSON of ``locks show LOCK_URL KEY``: ``lock`` (URL), ``key``, ``holder`` and ``breaks`` as of a table's lock. Of ``locks wait``:
``lock``, ``key``, ``free``, ``holder`` (at the end), ``waited_s``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...environment import SYSTEM
from ...errors import InputError
from ..options import Json, LockKey, LockUrl
from ..outcome import BUSY, by_cause
from ..output import print_json, say
from .holder import ended, holder_json, holder_text, print_breaks, records

if TYPE_CHECKING:
    from ...locks import Holder, LockProvider


@contextmanager
def _lock(url: str, key: str) -> Iterator[LockProvider]:
    from ...locks import open_provider

    if not key.strip():
        raise InputError("name the key of the lock")
    with open_provider(url) as locks:
        yield locks


def show(url: str, key: str, *, json: bool) -> None:
    """Print who holds the lock."""
    with _lock(url, key) as locks:
        holder, breaks = locks.inspect(key), locks.breaks(key)
        if json:
            print_json({"lock": locks.url, "key": key, "holder": holder_json(holder), "breaks": records(breaks)})
            return
        say(holder_text(holder, SYSTEM.now()))
        print_breaks(holder, records(breaks))


def break_(url: str, key: str, token: int | None, reason: str, *, yes: bool, json: bool) -> None:
    """End the lease that holds the lock."""
    with _lock(url, key) as locks:
        found = ended(locks, key, f"lock {key!r} at {locks.url}", token if yes else None, reason, yes=yes)
        if json:
            print_json({"lock": locks.url, "key": key, "token": found.token, "holder": holder_json(found)})
        else:
            say(f"ended the lease of {key}: it was {holder_text(found, SYSTEM.now())}")


@by_cause
def wait(
    lock: LockUrl,
    key: LockKey,
    *,
    wait_s: Annotated[float | None, typer.Option(min=0, help="At most so long; else until it is free.")] = None,
    every_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    json: Json = False,
) -> None:
    """Wait until nobody holds a lock. It is not taken: another may take it at once.

    Exit code 0: it is free; 75: it is still held; 69: its service does not answer; 64: no such lock.
    """
    with _lock(lock, key) as locks:
        began, told = SYSTEM.monotonic(), ""
        while True:
            holder, waited_s = locks.inspect(key), SYSTEM.monotonic() - began
            left_s = every_s if wait_s is None else min(every_s, wait_s - waited_s)
            if holder is None or left_s <= 0:
                break
            if not json and holder.owner != told:
                say(holder_text(holder, SYSTEM.now()), err=True)
                told = holder.owner
            SYSTEM.sleep(left_s)
        _print_end(locks.url, key, holder, waited_s, json=json)
    if holder is not None:
        raise typer.Exit(BUSY)


def _print_end(url: str, key: str, holder: Holder | None, waited_s: float, *, json: bool) -> None:
    facts: dict[str, Any] = {"lock": url, "key": key, "free": holder is None, "holder": holder_json(holder)}
    if json:
        print_json(facts | {"waited_s": round(waited_s, 3)})
    else:
        say(f"{key} is {holder_text(holder, SYSTEM.now())}")
