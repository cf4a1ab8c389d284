"""Finds ``hoodie.properties``, says what is there instead of a table, and changes them for streams."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...environment import Environment
from ...errors import CorruptTableError, StorageError, TableNotFoundError
from ...hudi.files import not_hudi
from ...hudi.table import STREAMS_KEY, TableConfig
from ...storage import Outcome, Store
from ...streams import IGNORE_DEFAULTS

PROPERTIES = ".hoodie/hoodie.properties"
_TRIES = 5
_log = logging.getLogger("lakelatch.properties")


def read_config(store: Store) -> bytes:
    """The bytes of ``hoodie.properties``.

    Raises:
        TableNotFoundError: there is no table.
        CorruptTableError: there is a ``.hoodie`` folder without properties.
    """
    # A JVM writer replaces the file by delete and create, and leaves a copy meanwhile.
    stored = store.get(PROPERTIES) or store.get(PROPERTIES + ".backup")
    if stored is not None:
        return stored.body
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


def secure_streams(store: Store, env: Environment) -> None:
    """The properties say that the table has streams, and that a null keeps what was there. See `Session.secure_streams`."""
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
