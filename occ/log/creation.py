"""Making a table, in steps of which each is a put-if-absent of the same bytes, whoever does it.

    1  the claim `.hoodie/.lakelatch/creation` says all that the table is to be: its properties and the first entry of its log
    2  the timeline's folder, which the JVM lists even when nothing was written yet
    3  `hoodie.properties`: from here on there is a table
    4  the first entry of the log

Whose claim stands has made the table. Whoever comes next carries out the rest, as the claim says and not as he would:

    t=0  A's claim stands; A is suspended, or dies
    t=1  B, who wants the same table or another one, finds the claim, does steps 2 to 4, and compares what he asked for
    t=2  A goes on, and finds each object there, with its own bytes

The claim is never deleted: behind a second one somebody would begin a second log.
Another engine may put its own properties first. Then the claim is none of that table, and nobody goes on with it.
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
    """A table that is being made, or was: its properties, and where its log begins with what."""

    properties: bytes
    epoch: int
    opening: bytes

    def to_bytes(self) -> bytes:
        """The claim."""
        plain = {
            "v": 1,
            "properties": self.properties.decode(),
            "epoch": self.epoch,
            "opening": self.opening.decode(),
        }
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, body: bytes, table: str) -> Self:
        """The reverse. `CorruptTableError` for what is no claim."""
        try:
            plain = json.loads(body)
            made = cls(plain["properties"].encode(), int(plain["epoch"]), plain["opening"].encode())
            if plain["v"] == 1 and isinstance(decode(made.opening, CREATION), Open):
                return made
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CorruptTableError):
            pass
        raise CorruptTableError(
            f"{CREATION} of {table}, by which the table is made, is damaged, or of a newer lakelatch. If there is no table, "
            "delete the .hoodie folder and create it again",
            table=table,
            path=CREATION,
        )

    @property
    def timeline_folder(self) -> str:
        """Of the table."""
        return TableConfig.from_bytes(self.properties, table="").timeline_folder


def creation_of(store: Store) -> Creation | None:
    """The claim that stands."""
    body = store.body(CREATION)
    return None if body is None else Creation.from_bytes(body, store.url)


def claim(store: Store, wanted: Creation) -> Creation:
    """The claim that stands after this: ``wanted``, unless another one was first.

    Raises:
        StorageError: the store gave no answer. Whichever claim stands is carried out by whoever comes next.
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
    """There is a table after this. False: another engine has made one, and it is not the one of the claim.

    Raises:
        StorageError: the store gave no answer. What was begun is finished by whoever comes next.
    """
    # Others may go by what one has only seen, and a power cut must not take that away.
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
    """Why it is not; "" when it is."""
    for _ in range(_TRIES):
        put = secured(store, path) if body is None else put_secured(store, path, body)
        if put.done:
            return ""
    return put.cause or "no answer"


def start_log(store: Store, epoch: int, opening: bytes) -> None:
    """Put the first entry of an epoch.

    Raises:
        StorageError: the store gave no answer. What was begun is finished by whoever comes next.
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
    """Begin the log of a table with these properties whose creator did not come so far. False: that is not what it lacks.

    Raises:
        StorageError: as of `start_log`.
    """
    creation = creation_of(store)
    if creation is None or creation.properties != properties or epochs(store):
        return False
    if any(parse(name, layout=2) for name in store.names(creation.timeline_folder)):
        return False  # what has an instant had a log, which somebody has deleted
    start_log(store, creation.epoch, creation.opening)
    return True


def strange_files(store: Store) -> list[str]:
    """What lies in the folder, but for what a creator of a table may have put there before its claim."""
    there = [e.name for e in store.list("")]
    # A creator tries the store first; one that was killed at that leaves its folder, which no reader looks into.
    there += [f"{f}/" for f in store.folders("") if f != ".hoodie" and not f.startswith(PROBES)]
    there += [f".hoodie/{e.name}" for e in store.list(".hoodie") if e.name != "lock"]
    there += [f".hoodie/{f}/" for f in store.folders(".hoodie") if f != ".lakelatch"]
    there += [f"{LOG}/"] if store.folders(LOG) else []
    return sorted(there)
