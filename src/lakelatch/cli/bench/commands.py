"""``lakelatch bench``: its commands. Each imports the lab when it runs, so that it is completed without.

JSON of ``run``: each run as one line, as ``results.jsonl`` has it (docs/bench.md). Of ``list``: ``scenarios`` (``name``,
``about``, ``writers``), ``peers`` (``name``, ``configurations``, ``missing``). Of ``compare``: ``differences`` (``scenario``,
``writers``, ``system``, ``first``, ``second``, ``ratio``, ``certain``, ``note``) and ``doubts``. Of ``report`` and ``export``:
``written`` (paths), and of ``export`` ``left_out`` (why).
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import ConfigError
from ..options import Json
from ..output import print_json, print_table, say

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that was --out of a run.")]


def run(
    scenario: Annotated[
        list[str], typer.Argument(metavar="SCENARIO...", help="Names as of `bench list`, or .toml files of your own.")
    ],
    *,
    lock: Annotated[list[str] | None, typer.Option(help="A lock URL, 'table' or 'none://'; repeatable.")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="A conflict resolution strategy; repeatable.")] = None,
    isolation: Annotated[list[str] | None, typer.Option(help="An isolation level; repeatable.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other setting of our tables; repeatable.")
    ] = None,
    writers: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of writers; as the scenario says by itself.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="For each system, scenario and number of writers.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="In so many parts, systems in turns.")] = 3,
    operations: Annotated[int, typer.Option(help="So many by each writer in each part, instead of seconds.")] = 0,
    table: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A folder or bucket to make tables in; a temporary folder otherwise."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the tables there.")] = False,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another system, or module:class; repeatable.")
    ] = None,
    only_peers: Annotated[bool, typer.Option("--only-peers", help="Leave our own tables out.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="A new folder for results and report.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn by lot.")] = 0,
    json: Json = False,
) -> None:
    """Run scenarios and write a report. Exit code 1: a table was wrong afterwards, or a writer crashed.

    Ctrl-C ends it, removes the tables, and keeps what was found so far.
    """
    from ...bench import Plan, contenders, load
    from .run import measured, numbers, parsed_settings

    found, skipped = contenders(
        locks=lock or (),
        strategies=strategy or (),
        isolations=isolation or (),
        settings=parsed_settings(setting or ()),
        peers=peer or (),
        ours=not only_peers,
    )
    plan = Plan(
        tuple(map(load, scenario)),
        tuple(found),
        out or Path(f"bench-{time.strftime('%Y%m%d-%H%M%S')}"),
        writers=numbers(writers),
        seconds=seconds,
        rounds=rounds,
        operations=operations,
        place=table,
        keep=keep,
        seed=seed,
    )
    for words in skipped:
        say(words, err=True)
    raise typer.Exit(measured(plan, json=json))


def list_(*, json: Json = False) -> None:
    """List scenarios and peers."""
    from ...bench import load, names
    from ...bench.systems import known

    scenarios = [load(name) for name in names()]
    peers = [_peer(name) for name in known()]
    if json:
        facts = [{"name": each.name, "about": each.about, "writers": each.writers} for each in scenarios]
        print_json({"scenarios": facts, "peers": peers})
        return
    print_table(("scenario", "writers", "what"), [(s.name, str(s.writers), s.about) for s in scenarios], fold=("what",))
    say()
    shown = [(p["name"], c["name"], c["words"]) for p in peers for c in p["configurations"]]
    shown += [(p["name"], "", f"not here: {p['missing']}") for p in peers if p["missing"]]
    print_table(("peer", "configuration", "what"), shown, fold=("what",))


def _peer(name: str) -> dict[str, Any]:
    from ...bench.systems import load

    try:
        found = load(name).configurations
    except ConfigError as e:
        return {"name": name, "configurations": [], "missing": str(e)}
    return {"name": name, "configurations": [{"name": c.name, "words": c.words} for c in found], "missing": ""}


def compare_(first: Folder, second: Folder, *, json: Json = False) -> None:
    """Compare two folders of results, cell by cell."""
    from ...bench import compare, read

    differences, doubts = compare(read(first), read(second))
    if json:
        print_json({"differences": [asdict(each) for each in differences], "doubts": doubts})
        return
    rows = [
        (
            each.scenario, str(each.writers), each.system, each.first.text(), each.second.text(),
            f"{each.ratio:.2f}" if each.ratio else "", each.note or ("" if each.certain else "rounds overlap"),
        )
        for each in differences
    ]  # fmt: skip
    headers = ("scenario", "writers", "system", "first /s", "second /s", "ratio", "")
    print_table(headers, rows, right=headers[3:6], fold=("",))
    if not differences:
        say("they have nothing in common")
    for doubt in doubts:
        say(f"mind that {doubt}")


def report(folder: Folder, *, json: Json = False) -> None:
    """Write the report of a folder of results again."""
    from ...bench import read
    from ...bench.report import write

    made = list(map(str, write(read(folder))))
    if json:
        print_json({"written": made})
    else:
        say(f"report: {', '.join(made)}")


def export_(
    folder: Folder,
    *,
    format: Annotated[  # noqa: A002 - the option's name
        list[str] | None, typer.Option(help="perfetto, hdr or elle; repeatable. All by itself.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the histories of a folder of results for Perfetto, HdrHistogram and Elle."""
    from ...bench import read
    from ...bench.export import export

    made, left_out = export(read(folder), format or ())
    if json:
        print_json({"written": list(map(str, made)), "left_out": list(left_out)})
        return
    for words in left_out:
        say(f"left out: {words}")
    say(f"{len(made)} files in {folder / 'exports'}" if made else "nothing was written")
