"""Create a table in steps, each a put-if-absent of the same bytes by any process.

    1  the claim `.hoodie/.lakelatch/creation` fixes the whole table: its properties and the first entry of its log
    2  the timeline's folder, which the JVM lists even before anything is written
    3  `hoodie.properties`: from here on there is a table
    4  the first entry of the log

The writer of the claim is the creator. Every later process completes the steps by the claim, not by its own wishes:

    t=0  A's claim stands; A is suspended, or dies
    t=1  B, who wants the same table or another one, finds the claim, does steps 2 to 4, and compares what it asked for
    t=2  A goes on, and finds each object there, with its own bytes

The claim is never deleted: after a second claim a second log could begin. If another engine puts its own properties
first, the claim does not describe that table, and nobody continues it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from ...errors import CorruptTableError, StorageError
from ...hudi.table import TableConfig
from ...hudi.timeline import parse
from ...storage import PROBES, Outcome, Store, put_secured, secured
from ..entries import Open, decode
from .epochs import LOG, epochs, slot_path
from .publisher import FOLDER_KEEPER

CREATION = ".hoodie/.lakelatch/creation"
_PROPERTIES = ".hoodie/hoodie.properties"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Creation:
    """The plan of a table: its properties, and the epoch and first entry of its log."""

    properties: bytes
    epoch: int
    opening: bytes

    def to_bytes(self) -> bytes:
        """The bytes of the claim."""
        plain = {
            "v": 1,
            "properties": self.properties.decode(),
            "epoch": self.epoch,
            "opening": self.opening.decode(),
        }
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, body: bytes, table: str) -> Self:
        """Read a claim. Raise `CorruptTableError` if the bytes are none."""
        try:
            plain = json.loads(body)
            made = cls(plain["properties"].encode(), int(plain["epoch"]), plain["opening"].encode())
            if plain["v"] == 1 and isinstance(decode(made.opening, CREATION), Open):
                return made
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, CorruptTableError):
            pass
        raise CorruptTableError(
            f"{CREATION} of {table}, by which the table is made, is damaged, or of a newer lakelatch. If there is no table, "
            "delete the .hoodie folder and create it again",
            table=table,
            path=CREATION,
        )

    @property
    def timeline_folder(self) -> str:
        """The folder of the timeline, relative to the table."""
        return TableConfig.from_bytes(self.properties, table="").timeline_folder


def creation_of(store: Store) -> Creation | None:
    """The claim on the store; None if there is none."""
    body = store.body(CREATION)
    return None if body is None else Creation.from_bytes(body, store.url)


def claim(store: Store, wanted: Creation) -> Creation:
    """Put the claim ``wanted`` and return the one that stands, which is another's if that was first.

    Raises:
        StorageError: the store gave no answer. Run it again: the next process completes the claim that stands.
    """
    for _ in range(_TRIES):
        put = store.put_if_absent(CREATION, wanted.to_bytes())
        if put.outcome is Outcome.DONE:
            return wanted
        if (found := creation_of(store)) is not None:
            return found
    raise StorageError(
        f"no answer when {store.url} was made ({put.cause}). Run the same again: it finishes what was begun",
        path=CREATION,
    )


def put_properties(store: Store, creation: Creation) -> bool:
    """Create the table of the claim. Return False if another engine has created a different one.

    Raises:
        StorageError: the store gave no answer. Run it again: the next process finishes the creation.
    """
    # First flush the claim and the folder: others may act on what one process has merely seen, so a power cut must not
    # remove it.
    cause = _on_disk(store, CREATION) or _on_disk(store, f"{creation.timeline_folder}/{FOLDER_KEEPER}", b"")
    for _ in range(0 if cause else _TRIES):
        put = put_secured(store, _PROPERTIES, creation.properties)
        if put.done and (there := store.body(_PROPERTIES)) is not None:
            return there == creation.properties
        cause = put.cause or "no answer"
    raise StorageError(
        f"no answer when {store.url} was made ({cause}). Run the same again: it finishes what was begun",
        path=_PROPERTIES,
    )


def _on_disk(store: Store, path: str, body: bytes | None = None) -> str:
    """Make an object durable; return the cause of a failure, "" on success."""
    for _ in range(_TRIES):
        put = secured(store, path) if body is None else put_secured(store, path, body)
        if put.done:
            return ""
    return put.cause or "no answer"


def start_log(store: Store, epoch: int, opening: bytes) -> None:
    """Put the first entry of an epoch.

    Raises:
        StorageError: the store gave no answer. Run it again: the next process finishes the creation.
    """
    for _ in range(_TRIES):
        put = put_secured(store, slot_path(epoch, 1), opening)
        if put.done:
            return
    raise StorageError(
        f"no answer when the commit log of {store.url} was started ({put.cause}). Run the same again: it finishes what was begun",
        table=store.url,
    )


def finish(store: Store, properties: bytes) -> bool:
    """Start the log of a table whose creator stopped before. Return False if the table lacks something else.

    Raises:
        StorageError: the same as in `start_log`.
    """
    creation = creation_of(store)
    if creation is None or creation.properties != properties or epochs(store):
        return False
    if any(parse(name, layout=2) for name in store.names(creation.timeline_folder)):
        return False  # a table with instants had a log, and somebody deleted it
    start_log(store, creation.epoch, creation.opening)
    return True


def strange_files(store: Store) -> list[str]:
    """The files in the folder, except those that a creator may put there before its claim."""
    there = [e.name for e in store.list("")]
    # A creator tries the store first; one that was killed at that leaves its folder, which no reader looks into.
    there += [f"{f}/" for f in store.folders("") if f != ".hoodie" and not f.startswith(PROBES)]
    there += [f".hoodie/{e.name}" for e in store.list(".hoodie") if e.name != "lock"]
    there += [f".hoodie/{f}/" for f in store.folders(".hoodie") if f != ".lakelatch"]
    there += [f"{LOG}/"] if store.folders(LOG) else []
    return sorted(there)
