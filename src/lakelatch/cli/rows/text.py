"""Rows as text: one JSON document a row, or cells that fit the terminal."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...plain_text import visible, visible_json
from ..output import print_table, say, width

if TYPE_CHECKING:
    import pyarrow as pa

_CELL_MAX = 30
_GAP = 2


def json_line(row: Mapping[str, Any]) -> str:
    """Return one row as a line of JSON.

    Times are ISO 8601, or numbers where Python has none (`python_value`); decimals are texts, bytes base64; NaN and the
    infinities, which JSON has not, are texts as in Spark.
    """
    return visible_json(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case None | bool() | int() | float() | str():
            return value
        case decimal.Decimal():
            return str(value)
    return str(value)


def print_rows(rows: pa.Table) -> None:
    """Print rows as a table: as many columns as fit, and the names of the others."""
    from rich.cells import cell_len, set_cell_size

    from ...hudi.table import python_value

    def cell(value: Any) -> str:
        if value is None:
            return "null"
        plain = _plain(value)
        text = visible(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))
        if width() > 1000 or cell_len(text) <= _CELL_MAX:
            return text
        return set_cell_size(text, _CELL_MAX - 1).rstrip() + "…"

    names = list(rows.column_names)
    columns = [[cell(python_value(value)) for value in column] for column in rows.columns]
    used, shown = 0, 0
    for name, cells in zip(names, columns, strict=True):
        used += max(map(cell_len, (visible(name), *cells))) + _GAP
        if shown and used - _GAP > width():
            break
        shown += 1
    heads = [visible(name) if cell_len(visible(name)) <= width() else "…" for name in names[:shown]]
    right = [head for head, field in zip(heads, rows.schema, strict=False) if _is_number(field.type)]
    print_table(heads, list(zip(*columns[:shown], strict=True)), right=right)
    if left := names[shown:]:
        say()
        for line in _named(left):
            say(line)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _named(names: Iterable[str]) -> list[str]:
    from ..output import wrapped

    return wrapped(f"not shown: {', '.join(names)}; --columns chooses, --json and --format csv have all").splitlines()
