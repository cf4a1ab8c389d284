"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..errors import InputError

Url = Annotated[str, typer.Argument(metavar="URL", help="The table: a folder, file://, s3://, gs:// or az://.")]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON with stable keys.")]
Lines = Annotated[bool, typer.Option("--json", help="Print each row as a line of JSON.")]

LockUrl = Annotated[str, typer.Argument(metavar="LOCK_URL", help="A lock URL; no table is needed.")]
LockKey = Annotated[str, typer.Argument(metavar="KEY", help="The lock's name.")]

HudiOption = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A hoodie.write.lock.* option; repeatable.")
]
HudiOptions = Annotated[str, typer.Option(metavar="FILE", help="A properties file with hoodie.write.lock.* options.")]
StreamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:ORDERING:A,B", help="A stream that writes columns, in the order of another one; repeatable."
    ),
]


def stream_of(said: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a stream that `StreamOption` tells. Raises `InputError` for another text."""
    name, _, rest = said.partition(":")
    ordering, _, columns = rest.partition(":")
    if not (name and ordering and columns):
        raise InputError(
            f"--stream {said!r} is no stream; write its name, ordering column and columns, as orders:paid_at:amount,state"
        )
    return name, {"ordering": ordering.split(",") if "," in ordering else ordering, "columns": columns.split(",")}
