"""Judge the table: rows against a serial replay, another reader, files against commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..occ.check import check
from ..occ.entries import Begin, Commit, End, Single
from ..occ.log import metadata_of
from ..occ.table import Table
from .story import KEY, ORDERING, PARTITION, Story, mark


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it is as it must be, and what was seen."""

    what: str
    right: bool
    seen: str


def judge(table: Table, story: Story, log: list[Single], folder: Path) -> Iterator[Finding]:
    """Yield every check in turn; each takes some seconds for a table of hundreds of thousands of rows."""
    commits = [entry for entry in log if isinstance(entry, Commit) and not entry.empty]
    writers = writers_of(log)
    order = [writers[c.instant] for c in commits]
    late = [t.name for t in story.tasks if not t.doomed and t.name not in order]
    yield Finding(
        "every writer but the killed one has landed", not late, ", ".join(late) or f"{len(order) - 1} writers"
    )

    serial = replay(story, order[1:])
    yield _same("rows equal a serial replay in commit order", table.read().to_arrow(), serial)
    yield _same("the same rows from hudi (hudi-rs)", by_hudi(folder), serial)

    wanted = {stat.path for c in commits for stat in metadata_of(table.store, c).stats}
    yield _files(folder, wanted)
    report = check(table.store, deep=True)
    bad = [f for f in report.findings if f.severity != "note"]
    seen = "; ".join(f"{f.path}: {f.message}" for f in bad[:3]) or f"{len(report.findings)} findings"
    yield Finding("`lakelatch check --deep` finds nothing wrong", not bad, seen)


def replay(story: Story, order: Iterable[str]) -> pa.Table:
    """Return the rows after the writers named in ``order`` have each had the table for themselves, sorted by key.

    On plain dicts: it shares no code with what it checks.
    """
    rows: dict[str, dict[str, Any]] = {row[KEY]: row for row in story.first.to_pylist()}
    tasks = {task.name: task for task in story.tasks}
    for name in order:
        task = tasks[name]
        if task.kind == "upsert":
            for row in story.incoming[name].to_pylist():
                old = rows.get(row[KEY])
                if old is None or row[ORDERING] >= old[ORDERING]:
                    rows[row[KEY]] = row
        elif task.kind == "delete":
            rows = {key: row for key, row in rows.items() if row["carrier"] != task.carrier}
        else:
            wanted, note = mark(task)
            for row in rows.values():
                chosen = row["dep_time"] is None if wanted == "cancelled" else row["origin"] == wanted
                if chosen and row[PARTITION] in task.months:
                    row["note"] = note
    return pa.Table.from_pylist([rows[key] for key in sorted(rows)], schema=story.first.schema)


def writers_of(log: list[Single]) -> dict[str, str]:
    """Return the writer that began each transaction."""
    return {entry.instant: entry.writer for entry in log if isinstance(entry, Begin)}


def by_hudi(folder: Path) -> pa.Table:
    """Return the rows of a table of this machine, as hudi-rs reads them."""
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(str(folder)).build().read(None)
    return pa.concat_tables([pa.table(b) for b in batches])


def _same(what: str, found: pa.Table, wanted: pa.Table) -> Finding:
    found = found.select(wanted.column_names).cast(wanted.schema).sort_by(KEY)
    if found.equals(wanted):
        return Finding(what, True, f"{found.num_rows:,} rows, {len(wanted.column_names)} columns")
    theirs, ours = ({row[KEY]: row for row in t.to_pylist()} for t in (found, wanted))
    wrong = sorted(k for k in theirs.keys() | ours.keys() if theirs.get(k) != ours.get(k))
    example = f"{wrong[0]}: {theirs.get(wrong[0])} instead of {ours.get(wrong[0])}" if wrong else "a key stands twice"
    return Finding(what, False, f"{len(wrong)} rows differ; {example}")


def _files(folder: Path, wanted: set[str]) -> Finding:
    """Check that every data file belongs to a commit, and that nothing is left of transactions that are over."""
    what = "no orphan file, marker, heartbeat or pending instant"
    hudi = folder / ".hoodie"
    data = {str(p.relative_to(folder)) for p in folder.rglob("*.parquet") if hudi not in p.parents}
    left = [str(p.relative_to(folder)) for p in [*hudi.glob(".temp/**/*"), *hudi.glob(".heartbeat/*")] if p.is_file()]
    names = {p.name for p in (hudi / "timeline").iterdir() if p.name[0].isdigit()}
    done = {n.split("_")[0] for n in names if "_" in n}
    pending = sorted(n for n in names if "_" not in n and n.split(".")[0] not in done)
    odd = [*sorted(data ^ wanted), *left, *pending]
    seen = f"{len(odd)} too many or missing: {', '.join(odd[:3])}" if odd else f"{len(data)} data files, all of commits"
    return Finding(what, not odd, seen)


def outcome_of(log: list[Single], instant: str) -> Commit | End | None:
    """Return the entry that ended a transaction, None while it is open."""
    return next((e for e in log if isinstance(e, Commit | End) and e.instant == instant), None)
