"""Whether the table is what it must be: rows against a serial replay, another reader, files against commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..occ.entries import Begin, Commit, End, Single
from ..occ.log import metadata_of
from ..occ.table import Table
from .replay import replay
from .story import KEY, Story


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it is as it must be, and what was seen."""

    what: str
    right: bool
    seen: str


def judge(table: Table, story: Story, log: list[Single], folder: Path) -> Iterator[Finding]:
    """Every check in turn; each takes some seconds for a table of hundreds of thousands of rows."""
    commits = [entry for entry in log if isinstance(entry, Commit) and not entry.empty]
    writers = writers_of(log)
    order = [writers[c.instant] for c in commits]
    late = [t.name for t in story.tasks if not t.doomed and t.name not in order]
    yield Finding(
        "every writer but the killed one has landed", not late, ", ".join(late) or f"{len(order) - 1} writers"
    )

    serial = replay(story, order[1:])
    yield _same("rows equal a serial replay in commit order", table.read().to_arrow(), serial)
    yield _same("the same rows from hudi (hudi-rs)", _by_hudi(folder), serial)

    wanted = {stat.path for c in commits for stat in metadata_of(table.store, c).stats}
    yield _files(folder, wanted)
    from ..occ.check import check

    report = check(table.store, deep=True)
    bad = [f for f in report.findings if f.severity != "note"]
    seen = "; ".join(f"{f.path}: {f.message}" for f in bad[:3]) or f"{len(report.findings)} findings"
    yield Finding("`lakelatch check --deep` finds nothing wrong", not bad, seen)


def writers_of(log: list[Single]) -> dict[str, str]:
    """Who began each transaction."""
    return {entry.instant: entry.writer for entry in log if isinstance(entry, Begin)}


def _by_hudi(folder: Path) -> pa.Table:
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
    """Every data file belongs to a commit, and nothing is left of transactions that are over."""
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
    """The entry that ended a transaction, None while it is open."""
    return next((e for e in log if isinstance(e, Commit | End) and e.instant == instant), None)
