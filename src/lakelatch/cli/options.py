"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[str, typer.Argument(metavar="URL", help="The table: a folder, file://, s3://, gs:// or az://.")]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON with stable keys.")]
Lines = Annotated[bool, typer.Option("--json", help="Print each row as a line of JSON.")]

LockUrl = Annotated[str, typer.Argument(metavar="LOCK_URL", help="A lock URL; no table is needed.")]
LockKey = Annotated[str, typer.Argument(metavar="KEY", help="The lock's name.")]

HudiOption = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A hoodie.write.lock.* option; repeatable.")
]
HudiOptions = Annotated[str, typer.Option(metavar="FILE", help="A properties file with hoodie.write.lock.* options.")]
