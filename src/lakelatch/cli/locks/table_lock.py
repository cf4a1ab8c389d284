"""``lakelatch locks``: showing a table's lock, ending a lease, setting another lock.

JSON of ``locks show``, and of each line of ``locks watch --json``: ``lock`` (URL), ``generation``, ``key``, ``holder``
(null, or ``owner``, ``token``, ``since``, ``until``, ``reason``, ``host``, ``pid``, ``queue``; times are seconds since
the epoch), ``last_token`` (of the last commit in this generation), ``breaks`` (``token``, ``who``, ``reason``, ``at``).
JSON of ``locks set``: ``url``, ``settings``.
"""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, InputError
from ...locks.core import time_text
from ...storage import read_input
from ..options import HudiOption, HudiOptions, Json, Url
from ..output import duration_text, print_json, say

if TYPE_CHECKING:
    from ...locks import Holder
    from ...occ.table import Table


def holder_json(holder: Holder | None) -> dict[str, Any] | None:
    """Return the holder as plain values."""
    if holder is None:
        return None
    names = ("owner", "token", "since", "until", "reason", "host", "pid")
    return {name: getattr(holder, name) for name in names} | {"queue": list(holder.queue)}


def holder_text(holder: Holder | None, now: float) -> str:
    """Return the holder as one line."""
    if holder is None:
        return "free"
    where = f" on {holder.host}, process {holder.pid}" if holder.host else ""
    until = f", lease ends in {duration_text(holder.until - now)}" if holder.until and holder.until > now else ""
    waiting = f"; {len(holder.queue)} wait" if holder.queue else ""
    held = duration_text(max(now - holder.since, 0))
    return f"held by {holder.reason or holder.owner}{where} for {held}{until} (token {holder.token}){waiting}"


def show(url: Url, *, json: Json = False) -> None:
    """Print who holds the table's lock."""
    import lakelatch

    with lakelatch.open(url) as table:
        facts, holder = facts_of(table)
        if json:
            print_json(facts)
            return
        if facts["key"] is None:
            say("this table has no lock (none://)")
            return
        say(holder_text(holder, table.env.now()))
        for place, waiter in enumerate(holder.queue if holder else (), start=1):
            say(f"  {place}. in line: {waiter}")
        for record in facts["breaks"]:
            say(f"token {record['token']} was ended by {record['who']} at {_time(record['at'])}: {record['reason']}")


def facts_of(table: Table) -> tuple[dict[str, Any], Holder | None]:
    """Return the facts of ``--json``, and the holder."""
    lock = table.lock  # refuses a table without a log
    state = table.session.log.catch_up()
    found = lock.provider()
    holder = found[0].inspect(found[1]) if found else None
    breaks = found[0].breaks(found[1]) if found else ()
    facts = {
        "lock": state.settings.lock,
        "generation": state.settings.generation,
        "key": found[1] if found else None,
        "holder": holder_json(holder),
        "last_token": state.token,
        "breaks": [{"token": each.token, "who": each.who, "reason": each.reason, "at": each.at} for each in breaks],
    }
    return facts, holder


def watch(
    url: Url,
    *,
    every_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 0.5,
    json: Json = False,
) -> None:
    """Print each change of the lock's holder, its line and the lock itself, until Ctrl-C."""
    import lakelatch

    with lakelatch.open(url) as table:
        before: dict[str, Any] = {}
        while True:
            facts, holder = facts_of(table)
            # A renewal only moves the end of the lease, which is not reported.
            news = facts | {"holder": facts["holder"] and facts["holder"] | {"until": None}}
            if news != before:
                if json:
                    print_json(facts, indent=None)
                else:
                    lock = f"{facts['lock']}: " if before.get("lock") != facts["lock"] else ""
                    say(f"{_time(table.env.now())} {lock}{holder_text(holder, table.env.now())}")
                before = news
            table.env.sleep(every_s)


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
    import lakelatch

    from ...locks import shown

    with lakelatch.open(url) as table:
        changes = lock_settings(
            lock, option or [], options_file, table_name=table.config.name, base_path=table.url
        )  # fmt: skip
        if not changes:
            raise InputError("name the lock: a URL, 'table', 'none://', or Hudi's options with --option")
        before = table.settings.lock
        after = table.lock.change(jvm_writers_stopped=jvm_writers_stopped, **changes)
        if json:
            print_json({"url": table.url, "settings": after.to_json()})
        else:
            say(
                f"{table.url}: lock {after.lock} (it was {shown(before)}); running writers go over at their next commit"
            )


def lock_settings(
    lock: str | None, options: list[str], options_file: str, *, table_name: str, base_path: str
) -> dict[str, Any]:
    """Return the settings from a lock URL, or from Hudi's own options; none when neither is given."""
    from ...hudi.table import parse
    from ...locks.hudi import PREFIX, table_settings

    given: dict[str, str] = {}
    if options_file:
        try:
            found = parse(read_input(options_file))
        except OSError as e:
            raise InputError(f"{options_file} cannot be read: {e.strerror}", path=options_file) from e
        # A JVM writer's file holds many other options, which do not concern the lock.
        given |= {
            k: v for k, v in found.items() if k.startswith(PREFIX) or k in ("hoodie.base.path", "hoodie.table.name")
        }
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"--option {option!r} has no '='; write --option hoodie.write.lock.provider=...")
        given[key.strip()] = value.strip()
    if lock is not None and given:
        raise InputError("give the lock as a URL or by Hudi's options, not both")
    if given:
        return table_settings(given, table_name=table_name, base_path=base_path)
    if options_file:
        raise InputError(f"{options_file} has no {PREFIX}* options", path=options_file)
    return {} if lock is None else {"lock": lock}


def _time(at: float) -> str:
    return time_text(at).replace("T", " ").removesuffix("+00:00")


def break_(
    url: Url,
    *,
    token: Annotated[int, typer.Option(help="Token of the lease to end, as `locks show` prints it.")],
    reason: Annotated[str, typer.Option(help="Why; stored with the lock.")],
    json: Json = False,
) -> None:
    """End one lease of the table's lock. Its holder notices, and loses time, never data."""
    import lakelatch

    if not reason.strip():
        raise InputError("say why with --reason; it is kept with the lock")
    with lakelatch.open(url) as table:
        found = table.lock.provider()
        if found is None:
            raise ConfigError(f"{table.url} has no lock (none://); there is nothing to break", table=table.url)
        provider, key = found
        if not provider.break_lease(key, token=token, reason=reason, who=f"{getpass.getuser()}@{socket.gethostname()}"):
            now = holder_text(provider.inspect(key), table.env.now())
            raise InputError(
                f"no lease with token {token} holds the lock of {table.url}: it is {now}. "
                "`lakelatch locks show` prints the token to name",
                token=token,
            )
        if json:
            print_json({"url": table.url, "token": token})
        else:
            say(f"ended the lease with token {token}; its holder takes the lock again and validates again")
