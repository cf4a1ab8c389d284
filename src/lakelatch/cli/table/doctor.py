"""``lakelatch doctor``.

JSON: ``facts`` (what was checked, by name), ``settings_changed`` (names of settings that are not the default),
``findings`` (``severity``: unsafe, slow, note; ``kind``, ``message``, ``mend``), ``check`` (as `lakelatch check` prints it,
null unless asked for) and ``safe``, which decides the exit code.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..options import Json, Url
from ..output import bytes_text, count_text, print_json, print_pairs, say, wrapped

if TYPE_CHECKING:
    from ...occ.check import Report
    from ...occ.doctor import Advice, Facts

_TITLES = {"unsafe": "UNSAFE", "slow": "slow", "note": "note"}


def doctor(
    url: Url,
    *,
    verify: Annotated[
        bool, typer.Option("--check", help="Also verify the table's files, as `lakelatch check`.")
    ] = False,
    jvm_options: Annotated[
        str, typer.Option(metavar="STYLE", help="Print the options of Hudi's writers: properties, spark or flink.")
    ] = "",
    jvm: Annotated[
        str,
        typer.Option(metavar="FILE", help="Also judge the options of a Hudi writer, in a file of any of the three."),
    ] = "",
    json: Json = False,
) -> None:
    """Print what is configured, what is unsafe, what is slow, and the line that mends it.

    Exit code 0: nothing is unsafe; 1: something is. `lakelatch locks check LOCK_URL` tries the lock service itself.
    """
    import lakelatch

    from ...occ.doctor import advise, gather, judge_writer, options_in, rendered, writer_options

    if jvm_options:
        with lakelatch.open(url) as table:
            for line in rendered(writer_options(table.config, table.settings), jvm_options).splitlines():
                say(line)
        return
    with lakelatch.open(url) as table:
        facts = gather(table.session)
        found = advise(facts)
        if jvm:
            told = options_in(_text_of(jvm))
            found = judge_writer(told, table.config, table.settings, table=table.url) + found
        report = _verified(table.store) if verify else None
    safe = not any(each.severity == "unsafe" for each in found) and (report is None or report.sound(strict=False))
    changed = _changed(facts)
    if json:
        plain = asdict(facts) | {"settings": facts.settings.to_json() if facts.settings else None}
        print_json(
            {
                "safe": safe,
                "facts": plain,
                "settings_changed": changed,
                "findings": [asdict(each) for each in found],
                "check": report.to_json() if report else None,
            }
        )
    else:
        _print(facts, changed, found, report)
    if not safe:
        raise typer.Exit(1)


def _text_of(file: str) -> str:
    from ...storage import read_input

    try:
        return read_input(file).decode(errors="replace")
    except OSError as e:
        raise InputError(f"{file} cannot be read: {e.strerror}", path=file) from e


def _verified(store: Any) -> Report:
    from ...occ.check import check

    return check(store)


def _changed(facts: Facts) -> list[str]:
    from .settings import not_default

    return not_default(facts.settings) if facts.settings else []


def _print(facts: Facts, changed: list[str], found: list[Advice], report: Report | None) -> None:
    settings = facts.settings.to_json() if facts.settings else {}
    processes = "1 process" if facts.processes == 1 else f"{facts.processes} processes"
    size = (
        f"{count_text(facts.file_groups, 'file group')}, {bytes_text(facts.current_bytes)} now, "
        f"{bytes_text(facts.bytes)} with older versions; {count_text(facts.commits, 'commit')}"
    )
    print_pairs(
        [
            ("table", facts.url),
            ("lock", facts.lock or "none: no commit log"),
            ("settings", ", ".join(f"{name}={settings[name]}" for name in changed if name != "lock") or "all default"),
            ("writers", f"{processes} on {count_text(facts.hosts, 'host')} in the log, {len(facts.open_work)} open"),
            ("ended", f"{count_text(facts.ended, 'transaction')}, of which {facts.lost} lost"),
            ("size", size),
        ]
    )
    for each in found:
        say()
        typer.echo(wrapped(f"{_TITLES[each.severity]} {each.kind}: {each.message}"))
        if each.mend:
            typer.echo(wrapped(each.mend, indent=4))
    if report is not None and report.findings:
        say()
        verdict = "sound" if report.sound(strict=False) else "UNSAFE damaged"
        say(f"{verdict}: `lakelatch check` has {count_text(len(report.findings), 'finding')}")
        say(f"    lakelatch check {facts.url}")
    if not found and (report is None or report.sound(strict=False)):
        say()
        say("nothing is unsafe, nothing is slow")
