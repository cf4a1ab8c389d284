"""The nodes of zk:// locks: their names, and how to create, read and remove them."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from ...errors import LockError
from ..core import facts_in, fields_of
from ..interface import BREAKS_KEPT
from .session import Session

_NAME_MAX = 200
_TAIL = re.compile(r"-?[0-9]{10}$")  # of Curator's names, of ours, and of those of kazoo's own Lock


def node_name(key: str) -> str:
    """Return the name of a key's node: readable, allowed in ZooKeeper, and different for every key."""
    name = quote(key, safe="").replace("~", "%7E").replace(".", "%2E")
    if len(name) > _NAME_MAX:
        name = f"{name[: _NAME_MAX // 2]}~{hashlib.sha256(key.encode()).hexdigest()}"
    return name


def breaks_folder(folder: str) -> str:
    """Return the folder of break records. It is beside the lock, because Curator takes every child for a contender."""
    return f"{folder}~breaks"


def records(session: Session, folder: str) -> list[dict[str, Any]]:
    """Return the records of `end`, oldest first. Removes those beyond the number that is kept."""
    place = breaks_folder(folder)
    try:
        names = sorted(session.ask(lambda client: client.get_children_async(place)))
    except NoNodeError:
        return []
    for name in names[:-BREAKS_KEPT]:
        remove(session, f"{place}/{name}")
    found = [_get(session, f"{place}/{name}") for name in names[-BREAKS_KEPT:]]
    return [fields_of(each[0]) for each in found if each is not None]


def line(session: Session, folder: str, *, fresh: bool = False) -> list[str]:
    """Return the contenders' names, the holder's first; ``fresh`` makes this server catch up with the leader first."""

    def send(client: KazooClient) -> Any:
        if fresh:
            client.sync_async(folder)
        return client.get_children_async(folder)

    try:
        names = session.ask(send)
    except NoNodeError:
        return []
    return sorted((name for name in names if _TAIL.search(name)), key=lambda name: name[-10:])


def read(session: Session, path: str) -> tuple[dict[str, Any], Any] | None:
    """Return what a node tells of its maker, whatever that is, and its stat; None when it is gone."""
    found = _get(session, path)
    if found is None:
        return None
    body, stat = found
    value = fields_of(body)
    if not all(isinstance(value.get(name), str) for name in ("owner", "host")):
        text = body.decode("utf-8", "replace")  # Curator writes its host's address
        value = {"owner": text or path.rpartition("/")[2], "host": text}
    return facts_in(value, since=stat.ctime / 1000) | {"owner": value["owner"]}, stat


def _get(session: Session, path: str) -> tuple[bytes, Any] | None:
    try:
        found: tuple[bytes, Any] = session.ask(lambda client: client.get_async(path))
    except NoNodeError:
        return None
    return found


def create(client: KazooClient, *, path: str, value: bytes) -> Any:
    """Ask for a contender's node; the answer is its path and stat."""
    return client.create_async(path, value, ephemeral=True, sequence=True, include_data=True)


def make(session: Session, path: str) -> None:
    """Create a lasting node at ``path``, and those above it, unless they exist."""
    parts = path.split("/")[1:]
    for i in range(len(parts), 0, -1):
        try:
            session.ask(partial(KazooClient.create_async, path="/" + "/".join(parts[:i])))
        except NoNodeError:
            continue
        except NodeExistsError:
            pass
        for j in range(i + 1, len(parts) + 1):
            _make_one(session, "/" + "/".join(parts[:j]))
        return


def _make_one(session: Session, path: str) -> None:
    with suppress(NodeExistsError):
        session.ask(partial(KazooClient.create_async, path=path))


def remove(session: Session, path: str) -> bool | None:
    """Remove a node. Return True: removed. False: it was not there. None: no answer."""
    try:
        session.ask(lambda client: client.delete_async(path), proves=True)
    except NoNodeError:
        return False
    except LockError:
        return None
    return True
