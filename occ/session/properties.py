"""Read ``hoodie.properties``, report what is there instead of a table, and change the properties for streams."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...environment import Environment
from ...errors import CorruptTableError, StorageError, TableNotFoundError
from ...hudi.files import not_hudi
from ...hudi.table import STREAMS_KEY, TableConfig
from ...storage import Outcome, Store
from ...streams import IGNORE_DEFAULTS
from ..log import CREATION, LOG

PROPERTIES = ".hoodie/hoodie.properties"
_TRIES = 5
_log = logging.getLogger("lakelatch.properties")


def read_config(store: Store) -> bytes:
    """Return the bytes of ``hoodie.properties``.

    Raises:
        TableNotFoundError: there is no table, or not yet.
        CorruptTableError: there is a ``.hoodie`` folder without properties.
    """
    # A JVM writer replaces the file by delete and create, and leaves a copy meanwhile.
    stored = store.get(PROPERTIES) or store.get(PROPERTIES + ".backup")
    if stored is not None:
        return stored.body
    if store.head(CREATION) is not None and not _has_begun(store):
        raise TableNotFoundError(
            f"{store.url} is not a table yet: its creation has begun, and its creator is still at it or has died. "
            "lakelatch.create with the same arguments, or `lakelatch create`, finishes it",
            table=store.url,
        )
    try:
        with store.open(PROPERTIES):
            pass
    except StorageError as e:
        if "kind" in e.details:  # a folder of that name
            raise
    if store.folders(".hoodie") or store.list(".hoodie"):
        raise CorruptTableError(
            f"{store.url} has a .hoodie folder but no {PROPERTIES}: it was created half, or damaged. If it holds no "
            "data, delete the .hoodie folder and create the table again",
            table=store.url,
        )
    next_step = "Create one with lakelatch.create or `lakelatch create`"
    raise TableNotFoundError(not_hudi(store, f"there is no {PROPERTIES}", next_step), table=store.url)


def _has_begun(store: Store) -> bool:
    """Return whether a table existed: its log begins after its properties."""
    return bool(store.folders(LOG))


def secure_streams(store: Store, env: Environment) -> None:
    """Set the properties for streams: the table has streams, and a null keeps the old value. See `Session.secure_streams`."""
    for _ in range(_TRIES):
        stored = store.get(PROPERTIES)
        if stored is None:  # a JVM writer replaces the file by delete and create
            env.sleep(0.1)
            continue
        config = TableConfig.from_bytes(stored.body, table=store.url)
        if config.for_streams:
            return
        wanted = replace(config, partial_update_mode=IGNORE_DEFAULTS, raw={**config.raw, STREAMS_KEY: "true"})
        put = store.replace_if_match(PROPERTIES, wanted.to_bytes(), stored.tag)
        if put.outcome is Outcome.UNKNOWN:
            _log.warning(
                "%s: no answer when its properties were changed (%s); they are looked at again", store.url, put.cause
            )
    raise StorageError(
        f"{PROPERTIES} of {store.url} could not be changed for streams; nothing was written, try again", path=PROPERTIES
    )
