"""``lakelatch mergers``: the laws of mergers, declared and checked.

JSON of ``list``: ``merger``, ``type`` and the declared laws, of each. JSON of ``check``: ``merger``, ``sound``, ``types``,
and ``broken`` (``law``, ``type``, ``records``, ``ways``). Exit code 1: a law is broken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import ConfigError, InputError
from ..options import Json
from ..output import print_json, print_table, say

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = (
    "int64", "double", "bool", "string", "binary", "date32", "timestamp[us]", "decimal128(20, 2)", "list<int64>", "list<string>",
    "map<string, int64>", "map<string, struct<ts: int64, x: string>>", "list<struct<ts: int64, x: string>>",
)  # fmt: skip
_EXAMPLE = {
    "last_unless": "last_unless('?')",
    "top_n": "top_n(3)",
    "nested_update": "nested_update('x', by='ts')",
}  # of mergers that need arguments


def list_(*, json: Json = False) -> None:
    """Print the mergers that need no module of their own, with their laws."""
    from ...mergers import BUILT_IN, find

    told = []
    for name in BUILT_IN:
        merger = _EXAMPLE.get(name, name)
        kind = next(_taken(merger))
        told.append({"merger": merger, "type": kind} | asdict(find(merger).laws(_type(kind))))
    if json:
        print_json(told)
        return
    laws = ("commutative", "associative", "idempotent")
    rows = [[str(each["merger"]), str(each["type"]), *("yes" if each[law] else "no" for law in laws)] for each in told]
    print_table(["MERGER", "AS FOR", *(law.upper() for law in laws)], rows)


def check(
    merger: Annotated[str, typer.Argument(metavar="MERGER", help="A name such as sum, or module:Class.")],
    *,
    type: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(metavar="TYPE", help="Of the column, as int64 or list<string>; every one it takes otherwise."),
    ] = None,
    event_time: Annotated[bool, typer.Option("--event-time", help="Rows come late, with ordering values.")] = False,
    examples: Annotated[
        int, typer.Option(min=0, max=100_000, help="Random sets of more than three records, for each law.")
    ] = 50,
    json: Json = False,
) -> None:
    """Try whether a merger keeps the laws that it declares, and print the fewest records that break one."""
    from ...mergers import find

    try:
        from ...testing import broken_laws
    except ModuleNotFoundError as e:
        raise ConfigError("`mergers check` needs hypothesis: pip install 'lakelatch[testing]'") from e

    sys.path.insert(0, "")  # finds modules of the current folder, as `python -m` does
    find(merger)
    kinds = type or list(_taken(merger))
    if not kinds:
        raise InputError(f"merger {merger!r} takes none of {', '.join(_TYPES)}; name a type: --type 'list<int64>'")
    broken = [
        (kind, each)
        for kind in kinds
        for each in broken_laws(merger, _type(kind), event_time=event_time, examples=examples)
    ]
    if json:
        print_json({"merger": merger, "sound": not broken, "types": kinds, "broken": [
            {"law": each.law, "type": kind, "records": repr(each.records), "ways": {how: repr(found) for how, found in each.ways}}
            for kind, each in broken
        ]})  # fmt: skip
    else:
        for _, each in broken:
            for line in str(each).splitlines():
                say(line)
            say()
        say(f"{merger} {'breaks' if broken else 'keeps'} its laws for {', '.join(kinds)}")
    if broken:
        raise typer.Exit(1)


def _taken(merger: str) -> Iterator[str]:
    """Yield the types that the merger takes."""
    from ...mergers import find

    for kind in _TYPES:
        try:
            find(merger).laws(_type(kind))
        except InputError:
            continue
        yield kind


def _type(name: str) -> pa.DataType:
    """Return the Arrow type of that name."""
    from ...hudi.table import type_of

    try:
        return type_of(name)
    except InputError:
        raise InputError(f"there is no type {name!r}; say it as Arrow does: {', '.join(_TYPES)}") from None
