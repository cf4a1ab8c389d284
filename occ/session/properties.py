"""Finds ``hoodie.properties``, and says what is there instead of a table."""

from __future__ import annotations

from ...errors import CorruptTableError, TableNotFoundError
from ...hudi.files import not_hudi
from ...storage import Store

PROPERTIES = ".hoodie/hoodie.properties"


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
    if store.folders(".hoodie") or store.list(".hoodie"):
        raise CorruptTableError(
            f"{store.url} has a .hoodie folder but no {PROPERTIES}: it was created half, or damaged. If it holds no "
            "data, delete the .hoodie folder and create the table again",
            table=store.url,
        )
    next_step = "Create one with lakelatch.create or `lakelatch create`"
    raise TableNotFoundError(not_hudi(store, f"there is no {PROPERTIES}", next_step), table=store.url)
