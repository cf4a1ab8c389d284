"""The commands: the function that does the work of each, and the sentence that help and completion show.

A function's signature declares the arguments and options, and its docstring is the help. `LazyCommand` imports it.

Exit codes: 0 done or sound; 1 `check` found damage, `doctor` something unsafe; 2 it could not be done, and stderr says why;
3 a bug in this program; 74 its output could not be written; 130 interrupted; 141 nobody reads its output. Of a lock by
its key, as sysexits.h has them: 64 wrong use, 69 its service does not answer, 70 the lock was lost, 75 it is busy.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from .lazy import LazyCommand, group, lazy
from .outcome import Commands, set_up

_HELP = ("-h", "--help")
_MAIN = {
    "restore": (
        ".services.commands:restore",
        "Go back to the state of a commit; every later commit is taken back for good.",
    ),
    "read": (".rows.read:read", "Print the rows of a table, or write them to a file."),
    "sql": (".rows.read:sql", "Query tables with DuckDB, which reads of them what the query needs."),
    "upsert": (
        ".rows.write:upsert",
        "Write the rows of a file: they replace those with the same key, and new keys are inserted.",
    ),
    "insert": (
        ".rows.write:insert",
        "Add the rows of a file; keys that the table has already are not looked up, but in a table with buckets.",
    ),
    "delete": (
        ".rows.write:delete",
        "Delete the rows whose keys are in a file; its other columns are not looked at.",
    ),
    "diff": (
        ".rows.diff:diff",
        "Print which rows were added (+), changed (~) and removed (-) between two states, by partition and record key.",
    ),
    "create": (".table.create:create", "Create an empty table."),
    "adopt": (".table.create:adopt", "Give an existing Hudi table a commit log, or rebuild a damaged one."),
    "describe": (".table.describe:describe", "Print what a table is, who holds its lock and who writes."),
    "timeline": (".history.timeline:timeline", "List what happened to a table, newest first."),
    "why": (
        ".history.why:why",
        "Tell why a transaction lost: to whom, where, at what cost, and what would have let both land.",
    ),
    "watch": (
        ".history.watch:watch",
        "Print each begin, commit, abort, rollback and plan as it happens, until Ctrl-C.",
    ),
    "settings": (
        ".table.settings:settings",
        "Print the settings that all writers of a table share, or change some for all of them.",
    ),
    "files": (".table.files:files", "List the file slices that readers see."),
    "check": (".table.check:check", "Verify any Hudi table."),
    "doctor": (
        ".table.doctor:doctor",
        "Print what is configured, what is unsafe, what is slow, and the line that mends it.",
    ),
    "rollback": (".table.rollback:rollback", "End dead writers' transactions and remove what they left."),
    "rescue": (
        ".rows.rescue:rescue",
        "Write the rows again that a commit wrote and another, which had not seen it, hides.",
    ),
    "server": (
        ".server:server",
        "Serve a dashboard, an API and Prometheus metrics of some tables, and take writers' markers, until Ctrl-C.",
    ),
    "worker-zip": (
        ".worker_zip:worker_zip",
        "Write an archive with which Spark workers run that have pyarrow and numpy, and not this package.",
    ),
}
_LOCKS = {
    "show": (".locks.table_lock:show", "Print who holds a table's lock, or any lock by its URL and key."),
    "watch": (
        ".locks.table_lock:watch",
        "Print each change of the lock's holder, its line and the lock itself, until Ctrl-C.",
    ),
    "set": (
        ".locks.table_lock:set_",
        "Give the table another lock, while writers run: each goes over to it at its next commit.",
    ),
    "hold": (
        ".locks.hold:hold",
        "Run a command while a lock is held, such as a cron job that must not run twice.",
    ),
    "revoke": (".locks.hold:revoke", "Ask the holder of a lock to give it back."),
    "check": (".locks.check:check", "Check that a lock service keeps its promises, and measure it."),
    "break": (
        ".locks.table_lock:break_",
        "End one lease of a table's lock, or of any lock by its URL and key, and say who held it.",
    ),
    "wait": (".locks.by_key:wait", "Wait until nobody holds a lock. It is not taken: another may take it at once."),
}
_BENCH = {
    "run": (".bench.commands:run", "Run scenarios and write a report."),
    "list": (".bench.commands:list_", "List scenarios and peers."),
    "compare": (".bench.commands:compare_", "Compare two folders of results, cell by cell."),
    "report": (".bench.commands:report", "Write the report of a folder of results again."),
    "export": (
        ".bench.commands:export_",
        "Write the histories of a folder of results for Perfetto, HdrHistogram and Elle.",
    ),
}
_MERGERS = {
    "list": (".mergers.laws:list_", "Print the mergers that need no module of their own, with their laws."),
    "check": (
        ".mergers.laws:check",
        "Try whether a merger keeps the laws that it declares, and print the fewest records that break one.",
    ),
}
_SERVICES = {
    "list": (".services.commands:list_", "List pending plans and readers' leases."),
    "clean": (
        ".services.commands:clean",
        "Delete superseded file slices that no kept state, transaction, reader or savepoint needs.",
    ),
    "cluster": (".services.commands:cluster", "Join the small files of each partition, in this process."),
    "buckets": (
        ".services.commands:buckets",
        "Lay the rows out in another number of buckets: print what is rewritten, and with --yes do it.",
    ),
    "archive": (".services.commands:archive", "Move old instants from the active timeline into the history."),
    "compact": (
        ".services.commands:compact",
        "Merge the log files of a merge-on-read table into base files, in this process.",
    ),
    "compact-logs": (
        ".services.commands:compact_logs",
        "Merge the log files of each file slice into one log file, in this process; base files stay.",
    ),
    "run": (
        ".services.loop:run",
        "Run what is due: compaction and log compaction, clean, archival, and clustering if asked for.",
    ),
    "execute": (".services.commands:execute", "Execute pending plans, from any writer."),
    "cancel": (".services.commands:cancel", "Cancel a pending plan; writers that wait for it go on."),
}
_SAVEPOINT = {
    "create": (".services.commands:save", "Keep the state of a commit."),
    "list": (".services.commands:saved", "List savepoints."),
    "delete": (".services.commands:forget", "Delete a savepoint, so that cleans may remove its state."),
}
_STREAMS = {
    "list": (".streams.commands:list_", "List the streams of a table."),
    "add": (".streams.commands:add", "Declare a stream, or give one more columns."),
    "adopt": (
        ".streams.commands:adopt",
        "Give a filled table streams: print what has to change, and with --yes change it.",
    ),
    "follow": (
        ".streams.follow:follow",
        "Write the lines of a growing file as events of a stream, each once, until Ctrl-C.",
    ),
    "alter": (".streams.commands:alter", "Change a stream: its defaults, null rule or mergers."),
    "drop": (".streams.commands:drop", "Drop a stream; what it has written stays."),
    "undrop": (".streams.commands:undrop", "Let a dropped stream take events again."),
    "retract": (".rows.write:retract", "Take events of a stream back, by their ids in a file."),
    "overwrite": (
        ".rows.write:overwrite",
        "Put the events of a file in place of all that a stream has said in their partitions.",
    ),
    "explain": (
        ".streams.commands:explain",
        "Tell of each column of a row which event set it, and what that replaced.",
    ),
}

_SYNC = {
    "glue": (
        ".table.sync:glue",
        "Register a table in a database of AWS Glue's Data Catalog, or bring it up to date there.",
    ),
}


class _Bench(TyperGroup):
    """The group in which ``bench appends`` means ``bench run appends``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command ``run`` where none is named."""
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = ["run", *args]
        return super().parse_args(ctx, args)


class _Program(Commands):
    """The program's own group."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands.update(lazy(_MAIN))
        self.add_command(
            # Its own parser reads the arguments, and prints the help.
            LazyCommand(
                "demo",
                ".demo:demo",
                "Let writers change one table at once, and check it.",
                context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
                add_help_option=False,
            )
        )
        for each in (
            group(
                "locks",
                "A table's lock: show or change it, end a stuck lease. Any lock: the same by its URL and key, hold it for a "
                "command, wait or ask for it, check its service.",
                _LOCKS,
            ),
            group(
                "bench",
                "Measure contention: your locks, strategies and store, and other systems. `lakelatch bench appends` runs a "
                "scenario.",
                _BENCH,
                _Bench,
            ),
            group(
                "mergers",
                "How the values of a column are merged: the mergers that there are, and the laws that each keeps.",
                _MERGERS,
            ),
            group(
                "services",
                "Clean, cluster, compact, archive, or run what is due; list, execute and cancel plans.",
                _SERVICES,
            ),
            group("savepoint", "Keep a state of a table until its savepoint is deleted.", _SAVEPOINT),
            group("sync", "Register a table, its columns and partitions in a catalog.", _SYNC),
            group("streams", "Jobs that fill columns of their own: list and declare them, explain a row.", _STREAMS),
        ):
            self.add_command(each)


# Plain help: no frames, and nothing heavy is imported for it.
app = typer.Typer(
    name="lakelatch",
    cls=_Program,
    help="Many independent writers change one Hudi table safely.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": [*_HELP], "max_content_width": 100},
)


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
