"""Commit requests on the store, put by writers that wait for the lock and read by its holder."""

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
_LOOKS_S = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)  # delays between checks for the note of a leader that is still flushing


def put_request(store: Store, path: str, body: bytes) -> bool:
    """Put a request beside the log and return whether it is there. Best effort."""
    return store.put_if_absent(path, body, durable=False).done


def read_requests(
    store: Store, env: Environment, wanted: Iterable[str], newest: Commit | None, here: Sequence[Request] = ()
) -> list[Request]:
    """Read the requests of the ``wanted`` transactions, oldest first, at most as many as fit into one entry.

    Requests already in memory (``here``) come first and are not read. Flush notes (`note_flushed`) are deleted, except
    the one of the entry whose first commit is ``newest``.
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
            # a member that has not checked yet flushes the entry itself
            if newest is None or found.path != _note(newest):
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
    """Note that the entry beginning with this commit is on disk, so that its members need not flush it one by one.

    No note is put on a far store: nobody reads it there (`is_flushed`).
    """
    if is_far(store.url):
        return
    with suppress(LakeLatchError):
        store.put(_note(first), b"", durable=False)


def is_flushed(store: Store, env: Environment, first: Commit | None) -> bool:
    """Return whether the writer of the entry has noted its flush; wait up to 0.2 s for the note.

        t=0  the leader's entry can be seen, and is not flushed yet; or its flush fails
        t=1  a member reads it, and reports its commit
        t=2  the power goes, and the entry with it

    A member that finds no note must flush the entry itself.
    """
    if first is None or is_far(store.url):
        return False  # on an object store a visible object is durable, which `CommitLog.secure` knows
    for pause in _LOOKS_S:
        env.sleep(pause)
        with suppress(LakeLatchError):
            if store.head(_note(first)) is not None:
                return True
    return False
