"""The check that compares the listed files with those that commits name.

The files were listed *before* the timeline and the log were read, so the begin of each listed file's transaction is known.
A file that looks missing is requested once more. So a table that is being written to is judged correctly.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import CorruptTableError, LakeLatchError
from ...hudi.files import BaseFile, FileGroupId, Listing, LogFile, bucket_of
from ...hudi.table import TableConfig
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    NOTED,
    CommitMetadata,
    FileSlice,
    Instant,
    WriteStat,
    decode_commit,
    file_name,
    is_time,
    skipped,
)
from ...hudi.timeline import History as Archive
from ..entries import Batch
from ..liveness import HEARTBEATS, MARKERS, instants_with_markers
from .commit_log import LogReport
from .findings import FORGOTTEN, RESTORE, ROLL_BACK, Findings
from .stored_keys import wrong_by_footer, wrong_keys
from .timeline import History

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage import Store


@dataclass(frozen=True, slots=True)
class Named:
    """The files that commits name: path -> (T, statistics), and the fate of their groups."""

    stats: dict[str, tuple[str, WriteStat]]
    log_names: frozenset[str]
    newest: dict[FileGroupId, str]
    replaced: frozenset[FileGroupId]


def data_files(listing: Listing) -> list[BaseFile | LogFile]:
    """Return base files and log files."""
    return [*listing.bases, *listing.logs]


def fate(instant: str, history: History, log: LogReport | None) -> str:
    """The outcome of a transaction: committed, archived, ended, open or unknown."""
    if instant in history.commits or (log is not None and log.outcome.get(instant) == "commit"):
        return "committed"
    if log is not None and log.ended(instant):
        return "ended"
    if instant in history.pending or (log is not None and log.outcome.get(instant) == "open"):
        return "open"
    return "archived" if history.first_active is not None and instant < history.first_active else "unknown"


def named_files(history: History, log: LogReport | None) -> Named:
    """Collect the statistics of all readable commits, published or not."""
    return _named_by({**(log.contents if log else {}), **history.contents})


def _archived_contents(store: Store, history: History, named: Named) -> dict[str, CommitMetadata]:
    """Return the contents of archived commits that are not known yet, by T."""
    known = {instant for instant, _ in named.stats.values()}
    wanted = [i for i in (history.history or {}).values() if i.action in COMMIT_ACTIONS and i.requested not in known]
    found: dict[str, CommitMetadata] = {}
    for each, body in Archive(store, history.timeline.config.timeline_folder).contents(wanted).items():
        with suppress(CorruptTableError):  # an unreadable commit explains no missing file
            found[each.requested] = decode_commit(body, name=file_name(each), layout=2)
    return found


def _named_by(contents: dict[str, CommitMetadata]) -> Named:
    stats: dict[str, tuple[str, WriteStat]] = {}
    names: set[str] = set()
    newest: dict[FileGroupId, str] = {}
    replaced: set[FileGroupId] = set()
    for instant in sorted(contents):
        content = contents[instant]
        replaced.update(FileGroupId(partition, each) for partition, ids in content.replaced.items() for each in ids)
        for stat in content.stats:
            if not stat.path:
                continue
            stats[stat.path] = (instant, stat)
            folder = f"{stat.partition}/" if stat.partition else ""
            names.update({stat.path, *(folder + each.rpartition("/")[2] for each in stat.log_files or ())})
            base = BaseFile.at(stat.path, 0)
            if base is not None:
                newest[base.group] = max(newest.get(base.group, ""), base.instant)
    return Named(stats, frozenset(names), newest, frozenset(replaced))


# --- what should be there ----------------------------------------------------------------------------------------


def check_named(store: Store, listing: Listing, history: History, named: Named, out: Findings) -> None:
    """Report files that readers need and that are missing, or differ in size from their commit."""
    sizes = {file.path: file.size for file in data_files(listing)}
    old: list[str] = []
    missing: list[tuple[str, BaseFile | LogFile, str]] = []
    for path, (instant, stat) in named.stats.items():
        file = BaseFile.at(path, 0) or LogFile.at(path, 0)
        if file is None:
            continue  # change data: no reader here needs it
        size = sizes.get(path)
        if size is None:
            entry = store.head(path)
            if entry is None and file.group not in named.replaced:
                # Only a clean instant shows whether an older version was cleaned or lost.
                if named.newest.get(file.group, "") > file.instant:
                    old.append(path)
                else:
                    missing.append((path, file, instant))
            continue
        # In layout 1 later commits append to a log file, so it may be larger than its commit says.
        grows = isinstance(file, LogFile) and history.timeline.config.layout == 1
        if stat.file_size and stat.file_size != size and not grows:
            out.add("file-size", path, f"{path} has {size} bytes, its commit {instant} says {stat.file_size}", RESTORE)
    if missing:
        # The commit that replaced them may have been archived since, by an engine that the log does not know.
        later = _named_by(_archived_contents(store, history, named))
        for path, file, instant in missing:
            if file.group not in later.replaced and later.newest.get(file.group, "") <= file.instant:
                out.add("file-missing", path, f"commit {instant} wrote {path}, and it is not there", RESTORE)
    cleaned = history.archived or any(each.action in ("clean", "restore") for each in history.timeline.completed)
    if old and not cleaned:
        out.add(
            "old-file-missing",
            old[0],
            f"older versions of files are gone ({len(old)}) and no clean instant says why, the first is {old[0]}",
            "nothing, but time travel to before their successors cannot see these rows",
        )


def check_lineage(history: History, log: LogReport | None, out: Findings) -> None:
    """Report versions of a file group that were not made from the one before."""
    timeline, contents = history.timeline, {**(log.contents if log else {}), **history.contents}
    logged = (Instant(each.instant, each.action, "completed", each.completion) for each in (log.commits if log else ()))
    instants = {each.requested: each for each in (*logged, *timeline.commits)}
    commits = [(instants[t], content) for t, content in contents.items() if t in instants]

    def read(name: str) -> bytes | None:
        return timeline.store.body(f"{timeline.config.timeline_folder}/{name}")

    landed = [Batch.told_in(content.extra) for content in contents.values()]
    for each in skipped(commits, read, merge_on_read=timeline.config.merge_on_read):
        if Batch.rescue(each.lost) in landed:
            continue
        out.add(
            "slice-skipped",
            each.path,
            str(each),
            f"`lakelatch rescue URL {each.lost}` writes them again, before a cleaning takes {each.path}; let only one kind of "
            "writer change this table, or set neighbours=hudi",
        )


# --- what should not ---------------------------------------------------------------------------------------------


def check_listed(listing: Listing, history: History, log: LogReport | None, named: Named, out: Findings) -> None:
    """Report files that belong neither to a commit nor to an open transaction."""
    _check_two_bases(listing, history, log, named, out)
    dead: dict[str, list[str]] = defaultdict(list)
    unsure = 0
    noted, first = history.timeline.archived_files(), history.timeline.first_landed or ""
    for file in data_files(listing):
        verdict = "fine" if file.path in named.log_names else _verdict(file, history, log)
        if verdict in ("fine", "unsure") and noted and file.instant < first and noted.counts(file) is False:
            _came_back(file, out)
            continue
        if verdict == "dead":
            dead[file.instant].append(file.path)
        elif verdict == "unsure":
            unsure += 1
        elif verdict == "unnamed" and not _twin(file, named):
            out.add(
                "file-not-in-commit",
                file.path,
                f"{file.path} is not among the files of its commit {file.instant}, but readers count its rows",
                "delete it if the commit's other files hold its rows",
            )
        elif verdict.startswith("never"):
            _never_committed(file, verdict.removeprefix("never: "), out)
    for instant, paths in dead.items():
        _report_dead(instant, paths, history, log, out)
    if unsure:
        out.unchecked.append(f"whether {unsure} files of commits older than the active timeline were committed")


def _verdict(file: BaseFile | LogFile, history: History, log: LogReport | None) -> str:
    """Judge a file that no commit names: fine, dead, unsure, unnamed (its commit exists), or "never: why"."""
    became = fate(file.instant, history, log)
    half = log is not None and not log.whole
    if became == "committed":
        if file.instant not in history.commits or file.instant not in history.contents:
            return "fine"  # its commit cannot be read, which is another finding
        # The blocks of a log file count only if their own commit did.
        return "dead" if isinstance(file, LogFile) else "unnamed"
    if became == "archived":
        if history.history is not None:
            landed = any(each.requested == file.instant for each in history.history.values())
            return "fine" if landed else "never: and no archived commit has its time"
        known = history.archived or isinstance(file, LogFile) or half
        return "unsure" if known else "never: and there is no archive of older commits"
    if became == "ended" and history.first_active is not None and file.instant < history.first_active:
        return "never: the log says that it never landed"
    if became == "unknown" and half:
        return "unsure"
    return "dead" if became in ("ended", "unknown") else "fine"


def _came_back(file: BaseFile | LogFile, out: Findings) -> None:
    out.suspect(
        "file-came-back",
        file.path,
        f"{file.path} was not there when the commits around it were archived, and is now: this library passes over its rows, "
        "and other readers count them",
        f"delete it; or, if you have restored it from a copy, delete {NOTED} to have it counted again",
    )


def _never_committed(file: BaseFile | LogFile, why: str, out: Findings) -> None:
    out.suspect(
        "file-never-committed",
        file.path,
        f"{file.path} is older than the first instant of the timeline, so readers count its rows, {why}",
        "delete it",
    )


def _report_dead(instant: str, paths: list[str], history: History, log: LogReport | None, out: Findings) -> None:
    ours = log is not None and log.ended(instant)
    for path in sorted(paths):
        out.suspect(
            "orphan-file",
            path,
            f"{path} belongs to {instant}, which "
            + ("did not name it" if instant in history.commits else "never landed" if ours else "no instant knows"),
            ROLL_BACK if ours else "delete it once you are sure that its writer is gone",
        )


def _check_two_bases(listing: Listing, history: History, log: LogReport | None, named: Named, out: Findings) -> None:
    groups: dict[tuple[FileGroupId, str], list[BaseFile]] = defaultdict(list)
    for base in listing.bases:
        groups[base.group, base.instant].append(base)
    for (group, instant), bases in groups.items():
        if len(bases) > 1 and fate(instant, history, log) in ("committed", "archived"):
            counts = [base.path for base in bases if base.path in named.stats]
            keep = f"its commit names {counts[0]}; delete the other" if counts else "keep the one that a copy has"
            paths = " and ".join(base.path for base in bases)
            out.add("two-base-files", bases[0].path, f"commit {instant} left two base files of {group}: {paths}", keep)


def _twin(file: BaseFile | LogFile, named: Named) -> bool:
    """Return whether the commit names another file of the group, which is a finding of its own (two-base-files)."""
    for path, (instant, _) in named.stats.items():
        if instant == file.instant:
            other = BaseFile.at(path, 0)
            if other is not None and other.group == file.group and path != file.path:
                return True
    return False


def check_buckets(
    store: Store,
    config: TableConfig,
    slices: list[FileSlice],
    buckets: int,
    keys: Mapping[str, tuple[str, ...]],
    out: Findings,
    *,
    deep: bool,
) -> None:
    """Report buckets with two file groups, and keys in the wrong bucket.

    ``keys``: the keys in a file's footer, by path. A ``deep`` check reads all keys.
    """
    seen: dict[tuple[str, int], FileSlice] = {}
    for each in slices:
        path = each.base.path if each.base else each.partition
        bucket = bucket_of(each.file_id)
        if bucket is None or bucket >= buckets:
            problem = f"file group {each.group} belongs to none of the table's {buckets} buckets"
        elif (other := seen.setdefault((each.partition, bucket), each)) is not each:
            problem = f"file groups {other.group} and {each.group} both belong to bucket {bucket}"
        else:
            problem = ""
        if problem:
            out.add("bucket-twice", path, problem, "rewrite the partition with insert_overwrite")
            continue
        wrong = wrong_by_footer(config, each, keys.get(path, ()), buckets)
        if wrong is None and deep:
            try:
                wrong = wrong_keys(store, config, each, buckets)
            except (LakeLatchError, pa.ArrowException, OSError):
                continue  # a file that cannot be read is another finding
        if wrong:
            wrong = f"the table is set to bucket_count={buckets}, and {wrong}: upserts do not find such rows"
            out.add(
                "bucket-wrong",
                path,
                wrong,
                "change_settings(bucket_count=...) to the number that it was written with, or None",
            )


# --- what is left over -------------------------------------------------------------------------------------------


def check_remains(store: Store, history: History, log: LogReport | None, out: Findings) -> None:
    """Report pending instants, markers and heartbeats of transactions that are over."""
    for instant in history.timeline.pending:
        path = history.timeline.path(instant)
        if log is not None and log.ended(instant.requested):
            out.suspect("pending-of-ended", path, f"{path} is pending, but its transaction has ended", ROLL_BACK)
        elif log is not None and instant.requested <= log.known_from and instant.requested not in log.outcome:
            out.add(
                "pending-unknown",
                path,
                f"{path} is {instant.state} and older than the commit log, so none of our writers can land it: another "
                "engine's plan, or what an older log left open",
                f"if its writer has certainly ended: delete the data files that {MARKERS}/{instant.requested} names, the "
                "markers, the heartbeat, this file last; a plan is its engine's to undo",
            )
        elif log is None or instant.requested not in log.outcome:
            out.add(
                "pending-unknown",
                path,
                f"{path} is {instant.state}: a plan, a writer at work or one that died; this check cannot tell which",
                "if its writer is dead, roll it back with Hudi's own tools",
            )
    for name in instants_with_markers(store):
        if is_time(name) and _is_over(name, history, log):
            path = f"{MARKERS}/{name}"
            message = f"{path} has markers of {name}, which is over"
            out.suspect("markers-of-ended", path, message, _who_removes(name, history, log))
    for entry in store.list(HEARTBEATS):
        if is_time(entry.name) and _is_over(entry.name, history, log):
            message = f"{entry.path} is the heartbeat of {entry.name}, which is over"
            out.suspect("heartbeat-of-ended", entry.path, message, _who_removes(entry.name, history, log))


def _who_removes(instant: str, history: History, log: LogReport | None) -> str:
    """The advice for a leftover: a rollback removes it only if the log or the timeline knows the outcome."""
    known = log is not None and (instant in log.outcome or instant in history.commits)
    return ROLL_BACK if known else FORGOTTEN


def _is_over(instant: str, history: History, log: LogReport | None) -> bool:
    became = fate(instant, history, log)
    return became in ("committed", "ended", "archived") or (became == "unknown" and (log is None or log.whole))
