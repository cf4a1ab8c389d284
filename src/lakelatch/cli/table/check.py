"""``lakelatch check``: exit code 0 sound, 1 damaged.

The remains of a dead transaction (orphan files, markers, heartbeats) are invisible to readers, so they are leftovers
and no damage; with ``--strict`` leftovers count as damage.

JSON: ``table``, ``sound``, ``damage``, ``leftovers``, ``notes`` (how many of each), ``findings`` (each ``kind``,
``severity``, ``path``, ``message``, ``next_step``), ``facts``, ``unchecked``. Kinds are those of
`lakelatch.occ.check.findings.KINDS`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json
from ..output import Waiting, bytes_text, count_text, print_json, say, wrapped

if TYPE_CHECKING:
    from ...occ.check import Report, Severity

_THREADS = 8
_SHOWN_PER_KIND = 10
_TITLES: dict[Severity, str] = {"damage": "DAMAGE", "leftover": "leftover", "note": "note"}


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
    from concurrent.futures import ThreadPoolExecutor

    from ...occ.check import check as verify
    from ...storage import open_store

    pool = ThreadPoolExecutor(_THREADS)
    try:
        with Waiting("listing files") as tell:
            report = verify(
                open_store(path),
                deep=deep,
                run_all=pool.map,
                progress=lambda what, done, total: tell(f"reading {what}: {done:,} of {total:,}"),
            )
    finally:
        # An interrupt may come with a thousand files to go: none of them is begun then.
        pool.shutdown(wait=False, cancel_futures=True)
    if json:
        print_json(report.to_json() | {"sound": report.sound(strict=strict)})
    else:
        _print(report, strict=strict)
    if not report.sound(strict=strict):
        raise typer.Exit(1)


def _print(report: Report, *, strict: bool) -> None:
    counts = [
        count_text(report.count("damage"), "problem") if report.count("damage") else "",
        count_text(report.count("leftover"), "leftover") if report.count("leftover") else "",
        count_text(report.count("note"), "note") if report.count("note") else "",
    ]
    found = ", ".join(each for each in counts if each)
    verdict = "sound" if report.sound(strict=strict) else "DAMAGED" if report.count("damage") else "not clean"
    typer.echo(wrapped(f"{report.table}: {verdict}" + (f" ({found})" if found else "")))
    if facts := _facts(report):
        typer.echo(wrapped(facts, indent=2))
    if report.unchecked:
        typer.echo(wrapped(f"not checked: {'; '.join(report.unchecked)}", indent=2))
    shown: Counter[str] = Counter()
    totals = Counter(each.kind for each in report.findings)
    for each in report.findings:
        shown[each.kind] += 1
        if shown[each.kind] <= _SHOWN_PER_KIND:
            say()
            say(f"{_TITLES[each.severity]} {each.kind}")
            typer.echo(wrapped(_capital(each.message) + ".", indent=2))
            typer.echo(wrapped(f"Next: {each.next_step}.", indent=2))
        elif shown[each.kind] == totals[each.kind]:
            say()
            say(f"  and {totals[each.kind] - _SHOWN_PER_KIND:,} more of {each.kind}; --json lists all")


def _facts(report: Report) -> str:
    facts = report.facts
    if not facts:
        return ""
    parts = [
        f"version {facts['table_version']} {facts['table_type'].lower().replace('_', '-')}",
        count_text(facts["commits"], "commit"),
        count_text(facts["partitions"], "partition"),
        count_text(facts["file_slices"], "file group"),
        f"{count_text(facts['data_files'], 'data file')} of {bytes_text(facts['bytes'])}",
    ]
    if facts["rows"] is not None:
        parts.append(count_text(facts["rows"], "row"))
    if facts["open_transactions"]:
        parts.append(f"{count_text(len(facts['open_transactions']), 'transaction')} open")
    return ", ".join(parts)


def _capital(text: str) -> str:
    # A message that begins with a path keeps its spelling.
    first = text.split(" ", 1)[0]
    return text if "/" in first or "." in first or "_" in first or first[:1].isdigit() else text[:1].upper() + text[1:]
