"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[str, typer.Argument(metavar="URL", help="The table: a folder, file://, s3://, gs:// or az://.")]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON with stable keys.")]
