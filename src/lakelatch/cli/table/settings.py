"""``lakelatch settings``.

JSON: ``url``, ``settings`` (name to value) and ``changed`` (names whose value is not the default).
"""

from __future__ import annotations

import json as text
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..options import Json, Url
from ..output import print_json, print_table

if TYPE_CHECKING:
    from ...occ.entries import Settings


def settings(
    url: Url,
    change: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to change; nothing: only print them.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Print the settings that all writers of a table share, or change some for all of them."""
    import lakelatch

    from ...locks import shown

    wanted = dict(_parsed(each) for each in change or [])
    with lakelatch.open(url) as table:
        now = table.change_settings(**wanted) if wanted else table.settings
        own = not_default(now)
        if json:
            print_json({"url": table.url, "settings": now.plain(), "changed": own})
            return
    values = now.plain() | {"lock": shown(now.lock)}
    rows = [[name, _shown(value), "" if name in own else "default"] for name, value in values.items()]
    print_table(["setting", "value", ""], rows, fold=["value"])


def _parsed(change: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``; the value as JSON where it is JSON, otherwise as a text."""
    name, equals, value = change.partition("=")
    if not equals or not name:
        raise InputError(f"{change!r} is no change of a setting; write NAME=VALUE, as isolation=serializable")
    if value in ("", "none", "None", "null"):
        return name.strip(), None
    # Python's spelling, in which people know these settings, is not JSON.
    if value in ("True", "False"):
        value = value.lower()
    try:
        return name.strip(), text.loads(value)
    except (ValueError, RecursionError):
        # As at `lakelatch create`: one constraint over these columns. A lock's URL has commas too.
        columns = {"statistics": value.split(","), "unique_constraints": [value.split(",")]}
        return name.strip(), columns.get(name.strip(), value) if "," in value else value


def not_default(now: Settings) -> list[str]:
    """Return the names of the settings whose value is not the default."""
    return [each.name for each in fields(now) if getattr(now, each.name) != each.default and each.name != "generation"]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else text.dumps(value, ensure_ascii=False)
