"""``lakelatch locks``: showing a table's lock, ending a lease, setting another lock.

JSON of ``locks show``, and of each line of ``locks watch --json``: ``lock`` (URL), ``generation``, ``key``, ``holder``
(null, or ``owner``, ``token``, ``since``, ``until``, ``reason``, ``host``, ``pid``, ``queue``; times are seconds since
the epoch), ``last_token`` (of the last commit in this generation), ``breaks`` (``token``, ``who``, ``reason``, ``at``).
JSON of ``locks set``: ``url``, ``settings``; of ``locks break``: ``url`` (or ``lock`` and ``key``), ``token``, ``holder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, InputError
from ...storage import read_input
from ..options import HudiOption, HudiOptions, Json, Url
from ..outcome import by_cause
from ..output import print_json, say
from . import by_key
from .holder import ended, holder_json, holder_text, moment, print_breaks, records

if TYPE_CHECKING:
    from ...locks import Holder
    from ...occ.table import Table

TableOrLock = Annotated[str, typer.Argument(metavar="URL", help="The table; before a KEY the URL of any lock.")]
Key = Annotated[str | None, typer.Argument(metavar="[KEY]", help="The lock's name, if URL is that of a lock.")]


@by_cause
def show(url: TableOrLock, key: Key = None, *, json: Json = False) -> None:
    """Print who holds a table's lock, or any lock by its URL and key."""
    import lakelatch

    if key is not None:
        by_key.show(url, key, json=json)
        return
    with lakelatch.open(url) as table:
        facts, holder = facts_of(table)
        if json:
            print_json(facts)
            return
        if facts["key"] is None:
            say("this table has no lock (none://)")
            return
        say(holder_text(holder, table.env.now()))
        print_breaks(holder, facts["breaks"])


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
        "breaks": records(breaks),
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
                    say(f"{moment(table.env.now())} {lock}{holder_text(holder, table.env.now())}")
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


@by_cause
def break_(
    url: TableOrLock,
    key: Key = None,
    *,
    token: Annotated[int | None, typer.Option(help="Token of the lease to end, as `locks show` prints it.")] = None,
    reason: Annotated[str, typer.Option(help="Why; stored with the lock.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="End the present holder's lease, whoever it is.")] = False,
    json: Json = False,
) -> None:
    """End one lease of a table's lock, or of any lock by its URL and key, and say who held it.

    A table's holder notices, and loses time, never data; what another holder does, its own code decides. Takes --yes;
    of a table's lock the token is enough.
    """
    import lakelatch

    if key is not None:
        by_key.break_(url, key, token, reason, yes=yes, json=json)
        return
    with lakelatch.open(url) as table:
        found = table.lock.provider()
        if found is None:
            raise ConfigError(f"{table.url} has no lock (none://); there is nothing to break", table=table.url)
        holder = ended(*found, f"the lock of {table.url}", token, reason, yes=yes)
        if json:
            print_json({"url": table.url, "token": holder.token, "holder": holder_json(holder)})
        else:
            say(
                f"ended the lease with token {holder.token}: it was {holder_text(holder, table.env.now())}. Its holder takes "
                "the lock again and validates again"
            )
