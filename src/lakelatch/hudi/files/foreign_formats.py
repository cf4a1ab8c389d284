"""Folders of other table formats, recognised by their contents, so that a message can say what the user has opened.

Source: Delta Lake's protocol (``_delta_log``), Apache Iceberg's file-system catalogue (``metadata/*.metadata.json``,
``version-hint.text``), Apache Paimon's file layout (``snapshot/snapshot-N`` beside ``schema/schema-N``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import LakeLatchError

if TYPE_CHECKING:
    from ...storage import Store


def not_hudi(store: Store, why: str, next_step: str) -> str:
    """Return the sentences for a folder that is no Hudi table."""
    if (format_ := _format(store)) is None:
        return f"{store.url} is not a Hudi table: {why}. {next_step}"
    name, sign = format_
    return (
        f"{store.url} is {name} table (it has {sign}), not a Hudi table. Read it with {name.split(' ', 1)[1]}'s own reader; "
        "to have it here, write its rows into a table that lakelatch.create makes in another folder"
    )


def _format(store: Store) -> tuple[str, str] | None:
    """Return the format's name with its article, and the sign by which it was recognised; None for an unknown folder."""
    try:
        folders = {each.rstrip("/") for each in store.folders("")}
        if "_delta_log" in folders:
            return "a Delta", "_delta_log/"
        if "metadata" in folders:
            for name in store.names("metadata"):
                if (
                    name.endswith((".metadata.json", ".metadata.json.gz", ".gz.metadata.json"))
                    or name == "version-hint.text"
                ):
                    return "an Iceberg", f"metadata/{name}"
        if {"schema", "snapshot"} <= folders and any(each.startswith("schema-") for each in store.names("schema")):
            return "a Paimon", "schema/ and snapshot/"
    except LakeLatchError:  # a store that fails is reported by the next call that needs it
        pass
    return None
