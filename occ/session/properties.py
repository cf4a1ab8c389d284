"""Read ``hoodie.properties``, report what is there instead of a table, and change the properties for streams."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...environment import Environment
from ...errors import CorruptTableError, StorageError, TableNotFoundError
from ...hudi.files import not_hudi
from ...hudi.table import TableConfig
from ...storage import Outcome, Store
from ...streams import with_streams
from ..entries import Settings
from ..log import CREATION, LOG, LogState

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


def for_streams(config: TableConfig, settings: Settings, top: str) -> TableConfig:
    """Return the properties that a table with these settings has to have; ``top`` is its newest time."""
    assert settings.bucket_count is not None, "streams have a bucket index"
    return with_streams(config, settings.streams, settings.bucket_count, since=top)


def secure_streams(store: Store, env: Environment, log: Callable[[], LogState]) -> Settings:
    """Bring the properties for streams up to the log, and return the settings that they tell of. See `Session.secure_streams`.

    Args:
        log: reads the log to its head. Called after the properties are read, so that what replaces them is never older.
    """
    for _ in range(_TRIES):
        stored = store.get(PROPERTIES)
        if stored is None:  # a JVM writer replaces the file by delete and create
            env.sleep(0.1)
            continue
        config, state = TableConfig.from_bytes(stored.body, table=store.url), log()
        wanted = for_streams(config, state.settings, state.top)
        if wanted.to_bytes() == config.to_bytes():
            return state.settings
        put = store.replace_if_match(PROPERTIES, wanted.to_bytes(), stored.tag)
        if put.outcome is Outcome.UNKNOWN:
            _log.warning(
                "%s: no answer when its properties were changed (%s); they are looked at again", store.url, put.cause
            )
    raise StorageError(
        f"{PROPERTIES} of {store.url} could not be changed for streams; nothing was written, try again", path=PROPERTIES
    )
