"""Requests on the store: put by who waits for the lock, and read by who holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from ...ahead import in_order
from ...environment import Environment
from ...errors import LakeLatchError
from ...storage import Store, is_far
from ..entries import REQUEST_BYTES, REQUESTS, Commit, Request

MEMBERS_MAX = 64  # commits of one entry
_AT_ONCE = 16
_FLUSHED = ".flushed"
_NUMBER = re.compile("[0-9]{1,3}")
_LOOKS_S = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)  # for the note of a leader that is still flushing


def put_request(store: Store, path: str, body: bytes) -> bool:
    """Put it beside the log; whether it is there. What goes wrong may go wrong."""
    return store.put_if_absent(path, body, durable=False).done


def read_requests(
    store: Store, env: Environment, wanted: Iterable[str], newest: Commit | None, here: Sequence[Request] = ()
) -> list[Request]:
    """The requests of transactions that are ``wanted``, oldest first, as many as go into one entry.

    Those that are ``here`` in memory go first, and are not read. Notes go (`note_flushed`), but for that of the ``newest``
    entry, which begins with that commit.
    """
    known: list[Request] = []
    chosen: list[str] = []
    size = 0
    for request in here[: MEMBERS_MAX - 1]:
        if size + request.size > REQUEST_BYTES:
            break
        known.append(request)
        size += request.size
    of = set(wanted) - {each.instant for each in here}
    for found in store.list(REQUESTS):
        if found.name.endswith(_FLUSHED):
            if newest is None or found.path != _note(newest):  # who has not looked yet brings its entry to disk itself
                store.delete(found.path)
            continue
        instant, _, number = found.name.partition("-")
        if instant not in of or not _NUMBER.fullmatch(number) or found.size > REQUEST_BYTES:
            continue
        size += found.size
        if len(known) + len(chosen) == MEMBERS_MAX - 1 or size > REQUEST_BYTES:
            break
        chosen.append(found.path)
    looks = [partial(store.body, path) for path in chosen]
    bodies = in_order(env, looks, _AT_ONCE if is_far(store.url) and len(looks) > 1 else 1)
    requests = (Request.from_bytes(body) if body is not None else None for body in bodies)
    read = [each for path, each in zip(chosen, requests, strict=True) if each is not None and each.path == path]
    return sorted((*known, *read), key=lambda each: each.path)


def _note(first: Commit) -> str:
    return f"{REQUESTS}/{first.instant}_{first.completion}{_FLUSHED}"


def note_flushed(store: Store, first: Commit) -> None:
    """The entry that begins with this commit of ours is on disk: its members need not see to that, one by one.

    On a far store nobody asks (`is_flushed`).
    """
    if is_far(store.url):
        return
    with suppress(LakeLatchError):
        store.put(_note(first), b"", durable=False)


def is_flushed(store: Store, env: Environment, first: Commit | None) -> bool:
    """Whether its writer says so, who may be just about to.

        t=0  the leader's entry can be seen, and is not flushed yet; or its flush fails
        t=1  a member reads it, and tells its caller that it has landed
        t=2  the power goes, and the entry with it

    So a member that finds no such note brings the entry to disk itself.
    """
    if first is None or is_far(store.url):
        return False  # what can be seen on an object store is there to stay, which `CommitLog.secure` knows
    for pause in _LOOKS_S:
        env.sleep(pause)
        with suppress(LakeLatchError):
            if store.head(_note(first)) is not None:
                return True
    return False
