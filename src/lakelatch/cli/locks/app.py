"""``lakelatch locks``: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import HudiOption, HudiOptions, Json, LockKey, LockUrl, Url
from ..outcome import plainly

locks = typer.Typer(
    help="A table's lock: show or change it, end a stuck lease. Any lock: hold it for a command, ask for it back, "
    "check its service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@locks.command("show")
@plainly
def show_(url: Url, *, json: Json = False) -> None:
    """Print who holds the table's lock."""
    from .table_lock import show as command

    command(url, json=json)


@locks.command("watch")
@plainly
def watch_(
    url: Url,
    *,
    every_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 0.5,
    json: Json = False,
) -> None:
    """Print each change of the lock's holder, its line and the lock itself, until Ctrl-C."""
    from .table_lock import watch as command

    command(url, every_s=every_s, json=json)


@locks.command("set")
@plainly
def set_(
    url: Url,
    lock: Annotated[str | None, typer.Argument(metavar="[LOCK]", help="A lock URL, 'table' or 'none://'.")] = None,
    *,
    option: HudiOption = None,
    options_file: HudiOptions = "",
    jvm_writers_stopped: Annotated[
        bool, typer.Option("--jvm-writers-stopped", help="Leave a lock that is shared with JVM writers.")
    ] = False,
    json: Json = False,
) -> None:
    """Give the table another lock, while writers run: each goes over to it at its next commit."""
    from .table_lock import set_ as command

    command(
        url, lock, options=option or [], options_file=options_file, jvm_writers_stopped=jvm_writers_stopped, json=json
    )  # fmt: skip


@locks.command("hold")
@plainly
def hold_(
    lock: LockUrl,
    key: LockKey,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, behind two dashes.")],
    *,
    wait_s: Annotated[float, typer.Option(min=0, help="How long to wait for the lock.")] = 0.0,
    lease_s: Annotated[float | None, typer.Option(help="The lease's seconds, instead of the URL's.")] = None,
    reason: Annotated[str, typer.Option(help="Shown to others; the command otherwise.")] = "",
    give_way: Annotated[
        bool, typer.Option("--give-way", help="Also end the command when `locks revoke` asks for the lock.")
    ] = False,
) -> None:
    """Run a command while a lock is held, such as a cron job that must not run twice.

    Exits as the command does, and with 75 if the lock was busy or was lost. When the lock is lost the
    command gets SIGTERM. It finds the token in LAKELATCH_LOCK_TOKEN.
    """
    from .hold import hold as work

    work(lock, key, command, wait_s=wait_s, lease_s=lease_s, reason=reason, give_way=give_way)


@locks.command("revoke")
@plainly
def revoke_(
    lock: LockUrl,
    key: LockKey,
    *,
    wait_s: Annotated[float, typer.Option(min=0, help="How long to ask and wait.")] = 60.0,
    reason: Annotated[str, typer.Option(help="Why; the holder sees it.")] = "",
    json: Json = False,
) -> None:
    """Ask the holder of a lock to give it back. Nothing is taken away. Exit code 75: it is still held.

    Only holders that listen (`on_revoke`, `locks hold --give-way`) hear of it, within a third of
    their lease.
    """
    from .hold import revoke as command

    command(lock, key, wait_s=wait_s, reason=reason, json=json)


@locks.command("check")
@plainly
def check_(
    lock: LockUrl,
    *,
    processes: Annotated[int, typer.Option(min=2, max=64, help="How many processes contend.")] = 4,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long they do.")] = 2.0,
    json: Json = False,
) -> None:
    """Check that a lock service keeps its promises, and measure it.

    Takes ten to thirty seconds and uses keys that begin with lakelatch-check-. Exit code 0: every
    promise was kept; 1: one was broken; 2: one could not be tried, with the reason.
    """
    from .check import check as command

    command(lock, processes=processes, seconds=seconds, json=json)


@locks.command("break")
@plainly
def break_(
    url: Url,
    *,
    token: Annotated[int, typer.Option(help="Token of the lease to end, as `locks show` prints it.")],
    reason: Annotated[str, typer.Option(help="Why; stored with the lock.")],
    json: Json = False,
) -> None:
    """End one lease of the table's lock. Its holder notices, and loses time, never data."""
    from .table_lock import break_lease as command

    command(url, token=token, reason=reason, json=json)
