"""The commands and their options. Each command imports its own module when it runs.

Exit codes: 0 done or sound; 1 `check` found damage, `doctor` something unsafe; 2 it could not be done, and stderr says why;
3 a bug in this program; 74 its output could not be written; 130 interrupted; 141 nobody reads its output.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .bench.app import bench
from .locks.app import locks
from .mergers.app import mergers
from .options import (
    BucketCount,
    HeartbeatIntervalS,
    HeartbeatTimeoutS,
    HudiOption,
    HudiOptions,
    Isolation,
    Json,
    LeaseS,
    LockWaitS,
    Statistics,
    Strategy,
    UniqueKeys,
    Url,
)
from .outcome import Commands, plainly, set_up
from .rows.app import COMMANDS as ROWS
from .services.app import restore, savepoint, services
from .streams.app import streams

# Plain help: no frames, and nothing heavy is imported for it.
app = typer.Typer(
    name="lakelatch",
    cls=Commands,
    help="Many independent writers change one Hudi table safely.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(locks, name="locks")
app.add_typer(bench, name="bench")
app.add_typer(mergers, name="mergers")
app.add_typer(services, name="services")
app.add_typer(savepoint, name="savepoint")
app.add_typer(streams, name="streams")
app.command()(restore)
for command in ROWS:
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelatch {__version__}")
        raise typer.Exit


@app.callback()
def general(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks instead of sentences.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Report progress on stderr.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Many independent writers change one Hudi table safely."""
    set_up(debug=debug, verbose=verbose)


@app.command()
@plainly
def create(
    url: Url,
    *,
    record_key: Annotated[str, typer.Option(help="Column or columns that identify a row, separated by commas.")] = "",
    partition_by: Annotated[str, typer.Option(help="Columns whose values name the partitions.")] = "",
    ordering_field: Annotated[str, typer.Option(help="Column or columns (a,b) that say which row is newer.")] = "",
    schema: Annotated[str, typer.Option(metavar="FILE", help="Columns: of a Parquet file, or Avro as JSON.")] = "",
    name: Annotated[str, typer.Option(help="The table's name; the last part of URL otherwise.")] = "",
    database: Annotated[str | None, typer.Option(help="The database it belongs to, else 'default'.")] = None,
    table_version: Annotated[int | None, typer.Option(help="Hudi table version, 8 or 9; 8 if left out.")] = None,
    hive_style: Annotated[
        bool | None, typer.Option(help="Name partition folders column=value, as when left out.")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="No error when the table exists already.")] = False,
    lock: Annotated[str | None, typer.Option(help="Lock provider: a URL, 'table' or 'none://'.")] = None,
    option: HudiOption = None,
    options_file: HudiOptions = "",
    unique_constraint: Annotated[
        list[str] | None, typer.Option(metavar="COLUMNS", help="No two rows have the same values in these; repeatable.")
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=MERGER", help="How a column is merged; *= for all; repeatable.")
    ] = None,
    ties: Annotated[str | None, typer.Option(help="Of equal ordering values 'last' or 'first' stands.")] = None,
    bucket_count: BucketCount = None,
    strategy: Strategy = None,
    isolation: Isolation = None,
    unique_keys: UniqueKeys = None,
    statistics: Statistics = None,
    lease_s: LeaseS = None,
    lock_wait_s: LockWaitS = None,
    heartbeat_interval_s: HeartbeatIntervalS = None,
    heartbeat_timeout_s: HeartbeatTimeoutS = None,
    json: Json = False,
) -> None:
    """Create an empty table."""
    from .table.create import create as command

    settings = {
        "lock": lock,
        "unique_constraints": [columns.split(",") for columns in unique_constraint or []] or None,
        "merge": dict(each.partition("=")[::2] for each in merge or []) or None,
        "ties": ties,
        "bucket_count": bucket_count,
        "strategy": strategy,
        "isolation": isolation,
        "unique_keys": unique_keys,
        "statistics": statistics,
        "lease_s": lease_s,
        "lock_wait_s": lock_wait_s,
        "heartbeat_interval_s": heartbeat_interval_s,
        "heartbeat_timeout_s": heartbeat_timeout_s,
    }
    command(
        url,
        record_key=record_key,
        partition_by=partition_by,
        ordering_field=ordering_field,
        schema=schema,
        name=name,
        database=database,
        table_version=table_version,
        hive_style=hive_style,
        exist_ok=exist_ok,
        options=option or [],
        options_file=options_file,
        settings=settings,
        json=json,
    )


@app.command()
@plainly
def adopt(
    url: Url,
    lock: Annotated[str | None, typer.Argument(metavar="[LOCK]", help="A lock URL, 'table' or 'none://'.")] = None,
    *,
    option: HudiOption = None,
    options_file: HudiOptions = "",
    bucket_count: BucketCount = None,
    strategy: Strategy = None,
    isolation: Isolation = None,
    unique_keys: UniqueKeys = None,
    statistics: Statistics = None,
    lease_s: LeaseS = None,
    lock_wait_s: LockWaitS = None,
    heartbeat_interval_s: HeartbeatIntervalS = None,
    heartbeat_timeout_s: HeartbeatTimeoutS = None,
    json: Json = False,
) -> None:
    """Give an existing Hudi table a commit log, or rebuild a damaged one.

    Without LOCK the table keeps the lock of its old log, or gets the one in its own folder.
    """
    from .table.create import adopt as command

    settings = {
        "lock": lock,
        "bucket_count": bucket_count,
        "strategy": strategy,
        "isolation": isolation,
        "unique_keys": unique_keys,
        "statistics": statistics,
        "lease_s": lease_s,
        "lock_wait_s": lock_wait_s,
        "heartbeat_interval_s": heartbeat_interval_s,
        "heartbeat_timeout_s": heartbeat_timeout_s,
    }
    command(url, options=option or [], options_file=options_file, settings=settings, json=json)


@app.command()
@plainly
def describe(url: Url, *, json: Json = False) -> None:
    """Print what a table is, who holds its lock and who writes."""
    from .table.describe import describe as command

    command(url, json=json)


@app.command()
@plainly
def timeline(
    url: Url,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="So many of the newest instants.")] = 20,
    json: Json = False,
) -> None:
    """List what happened to a table, newest first.

    Transactions that were aborted or rolled back are listed as well. Rows: +inserted ~updated -deleted, =written.
    """
    from .history.timeline import timeline as command

    command(url, limit=limit, json=json)


@app.command()
@plainly
def why(
    url: Url,
    instant: Annotated[str, typer.Argument(metavar="T", help="Requested time, as `lakelatch timeline` prints it.")],
    *,
    json: Json = False,
) -> None:
    """Tell why a transaction lost: to whom, where, at what cost, and what would have let both land."""
    from .history.why import why as command

    command(url, instant, json=json)


@app.command()
@plainly
def watch(
    url: Url,
    *,
    after: Annotated[
        str | None, typer.Option(metavar="T", help="Begin with what happened after this time; from now on otherwise.")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="Stop after so many lines.")] = None,
    every_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    json: Json = False,
) -> None:
    """Print each begin, commit, abort, rollback and plan as it happens, until Ctrl-C."""
    from .history.watch import watch as command

    command(url, after=after, limit=limit, every_s=every_s, json=json)


@app.command()
@plainly
def settings(
    url: Url,
    change: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to change; nothing: only print them.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Print the settings that all writers of a table share, or change some for all of them."""
    from .table.settings import settings as command

    command(url, change or [], json=json)


@app.command()
@plainly
def files(
    url: Url,
    *,
    partition: Annotated[str | None, typer.Option(help="Only this partition; '' is the root.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="T", help="As of a past requested time, or a date.")] = None,
    rows: Annotated[bool | None, typer.Option(help="Count rows; by itself up to 200 files.")] = None,
    json: Json = False,
) -> None:
    """List the file slices that readers see."""
    from .table.files import files as command

    command(url, partition=partition, as_of=as_of, rows=rows, json=json)


@app.command()
@plainly
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Any Hudi table, from any writer.")],
    *,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read all rows, look for repeated keys and unique values."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Leftovers of dead writers count as damage.")] = False,
    json: Json = False,
) -> None:
    """Verify any Hudi table.

    Exit code 0 is sound, 1 damaged. What dead writers left behind is a leftover and no damage, unless --strict.
    """
    from .table.check import check as command

    command(path, deep=deep, strict=strict, json=json)


@app.command()
@plainly
def doctor(
    url: Url,
    *,
    verify: Annotated[
        bool, typer.Option("--check", help="Also verify the table's files, as `lakelatch check`.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what is configured, what is unsafe, what is slow, and the line that mends it.

    Exit code 0: nothing is unsafe; 1: something is. `lakelatch locks check LOCK_URL` tries the lock service itself.
    """
    from .table.doctor import doctor as command

    command(url, check=verify, json=json)


@app.command()
@plainly
def rollback(
    url: Url,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="Only this transaction.")] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="End INSTANT even if its writer is alive.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """End dead writers' transactions and remove what they left.

    Waits for the table's time-out where a writer may still be alive.
    """
    from .table.rollback import rollback as command

    command(url, instant, force=force, yes=yes, json=json)


@app.command()
@plainly
def server(
    *,
    table: Annotated[
        list[str],
        typer.Option(metavar="[NAME=]URL", help="A table to watch; its name is the URL's last part. Repeatable."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8047,
    token_file: Annotated[
        str, typer.Option(metavar="FILE", help="Its first line is the token; without it one is made and printed once.")
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="Certificate chain (PEM); needed beyond loopback.")
    ] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="The certificate's key (PEM).")] = "",
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Beyond loopback without TLS: a proxy before the server has it.")
    ] = False,
    every_s: Annotated[
        float, typer.Option(min=0.05, max=60, help="Seconds between two looks at a table that somebody watches.")
    ] = 0.5,
    json: Json = False,
) -> None:
    """Serve a dashboard, an API and Prometheus metrics of some tables, and take writers' markers, until Ctrl-C."""
    from .server import server as command

    command(
        table,
        host=host,
        port=port,
        token_file=token_file,
        tls=(tls_cert, tls_key),
        plain_http=plain_http,
        every_s=every_s,
        json=json,
    )


@app.command("worker-zip")
@plainly
def worker_zip(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The archive to write; it ends with .zip.")],
    *,
    json: Json = False,
) -> None:
    """Write an archive with which Spark workers run that have pyarrow and numpy, and not this package.

    Of this Python and its platform: the workers' have to be the same.
    """
    from .worker_zip import worker_zip as command

    command(file, json=json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
@plainly
def demo(context: typer.Context) -> None:
    """Let writers change one table at once, and check it."""
    from importlib import import_module

    from ..errors import ConfigError

    try:
        run = import_module("lakelatch.demo.commands").flights
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"the demo needs {e.name}, which is not installed; run `make demo` in the source tree, or "
            "pip install 'lakelatch[demo]'"
        ) from e
    raise typer.Exit(run(context.args) or 0)
