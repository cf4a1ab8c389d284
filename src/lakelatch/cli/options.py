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

Neighbours = Annotated[
    str | None, typer.Option(help="Other engines that write the table beside ours: 'none' or 'hudi'.")
]
BucketCount = Annotated[int | None, typer.Option(help="Buckets of the bucket index; simple index otherwise.")]
Strategy = Annotated[str | None, typer.Option(help="Conflict resolution strategy.")]
Isolation = Annotated[str | None, typer.Option(help="Isolation level.")]
UniqueKeys = Annotated[
    bool | None, typer.Option(help="Two writers that insert the same new key at the same time conflict.")
]
Statistics = Annotated[
    str | None, typer.Option(metavar="COLUMNS", help="Columns whose bounds commits record, or 'all'.")
]
LeaseS = Annotated[float | None, typer.Option(help="Seconds that a lock lease lasts.")]
LockWaitS = Annotated[float | None, typer.Option(help="Seconds that a commit waits for the lock.")]
HeartbeatIntervalS = Annotated[float | None, typer.Option(help="Seconds between heartbeats.")]
HeartbeatTimeoutS = Annotated[float | None, typer.Option(help="Seconds of silence after which a writer is dead.")]
