"""The check of the commit log, and its comparison with the timeline. Read-only: it appends nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import CorruptTableError, LakeLatchError, UnsupportedTableError
from ...hudi.timeline import CommitMetadata
from ...storage import open_beside
from ..entries import SIDES, Begin, Close, Commit, End, LogEntry, Open, Prepare, Settings, Single, decode, singly
from ..log import LOG, LogState, is_epoch, is_slot, metadata_of, read_all
from .findings import RESTORE, ROLL_BACK, Findings
from .timeline import History

if TYPE_CHECKING:
    from ...storage import Entry, Store


REBUILD = "restore it from a copy, or rebuild the log with `lakelatch adopt`"


@dataclass(slots=True)
class LogReport:
    """The log's record of transactions.

    Attributes:
        outcome: T -> open, commit, rollback, abort, undone, or ``lost`` for one that was open in a replaced log.
        commits: commit entries of the present log, in slot order.
        contents: T -> the commit's content, if its side object is sound.
        known_from: transactions with T up to this are older than the log, which does not know them.
        pruned: True if epochs of this log have been removed.
        settled_to: commits up to this time are not foreign, or have been taken over.
        newest_from: first slot of the newest epoch; the next writer republishes missing commits from there on.
        whole: False if the log could not be read to its end.
        prepared: the entries of commits over several tables, each with its path.
    """

    outcome: dict[str, str] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    contents: dict[str, CommitMetadata] = field(default_factory=dict)
    known_from: str = ""
    pruned: bool = False
    settled_to: str = ""
    newest_from: int = 0
    whole: bool = True
    settings: Settings | None = None
    entries: int = 0
    prepared: list[tuple[str, Prepare]] = field(default_factory=list)

    def ended(self, instant: str) -> bool:
        """Return whether the transaction ended without a commit, or was undone."""
        return self.outcome.get(instant) in ("rollback", "abort", "lost", "undone")


class _Reader:
    """Reads the log, epoch by epoch and slot by slot, into a `LogReport`."""

    def __init__(self, store: Store, out: Findings) -> None:
        self._store, self._out = store, out
        self.report = LogReport()
        self._state = LogState()
        self._next = -1  # the next slot expected; -1: any, since a log begins
        self._newest = ""
        self._problems: list[tuple[str, str, str, str]] = []

    def read(self) -> LogReport:
        epochs = [name for name in self._store.folders(LOG) if is_epoch(name)]
        self._newest, before = epochs[-1] if epochs else "", -1
        for name in epochs:
            if int(name) != before + 1:
                self._problems.clear()  # they are of a replaced log, which is never read again
                self._start_anew()
            elif not self._state.closed:
                self._start_anew()
            before = int(name)
            self.report.whole = self._epoch(name)
        for problem in self._problems:
            self._out.add(*problem)
        for instant in self._state.open:
            self.report.outcome[instant] = "open"
        self.report.settings = self._state.settings
        return self.report

    def _start_anew(self) -> None:
        """Reset: this epoch does not continue the one before, so the log was replaced and no old transaction can commit.

        The timeline decides which of the old log's commits count: one may be a zombie's.
        """
        for commit in self.report.commits:
            self.report.outcome.pop(commit.instant, None)
        for instant in self._state.open:
            self.report.outcome[instant] = "lost"
        self._state, self._next = LogState(), -1
        self.report.commits.clear()
        self.report.known_from = self.report.settled_to = ""

    def _epoch(self, epoch: str) -> bool:
        """Read one epoch; return False if later entries cannot be judged."""
        found_in = [e for e in self._store.list(f"{LOG}/{epoch}") if is_slot(e.name)]
        bodies = {e.path: stored.body for e in found_in if (stored := self._store.get(e.path)) is not None}
        if epoch != self._newest and self._goes(found_in, bodies):
            return True
        for number, found in enumerate(found_in):
            slot = int(found.name)
            if self._next not in (-1, slot):
                self._add(
                    "log-gap",
                    found.path,
                    f"slot {self._next} of the log is missing before {found.path}: writers stop there",
                )
                return False
            entry = self._decode(bodies[found.path], found.path)
            if entry is None:
                return False
            if entry.slot != slot or isinstance(entry, Open) != (number == 0):
                what = (
                    f"says that it is slot {entry.slot}" if entry.slot != slot else "does not open its epoch as it must"
                )
                self._add("log-gap", found.path, f"log entry {found.path} is in the wrong place: it {what}")
                return False
            self.report.entries += 1
            for each in singly(entry):
                self._apply(each, found.path)
            self._next = slot + 1
            if isinstance(entry, Close):
                return True  # later entries of a closed epoch do not count
        return True

    def _goes(self, found: list[Entry], bodies: dict[str, bytes]) -> bool:
        """Return whether an old epoch is being removed (prune.py), so that nobody reads it any more."""
        if len(bodies) < len(found):
            return True
        try:
            return not isinstance(decode(bodies[found[0].path], found[0].path), Open)
        except LakeLatchError:
            return False  # a finding

    def _decode(self, body: bytes, path: str) -> LogEntry | None:
        try:
            return decode(body, path)
        except UnsupportedTableError as e:
            self._problems.append(("log-newer", path, str(e), "run the check with the newest lakelatch"))
        except CorruptTableError as e:
            self._add("log-entry-torn", path, str(e).partition("; ")[0].partition(". ")[0])
        return None

    def _apply(self, entry: Single, path: str) -> None:
        state, report = self._state, self.report
        match entry:
            case Open():
                if not report.known_from:
                    report.known_from, report.pruned = entry.top, entry.slot > 1
                # Else it was carried on; here, what strangers had committed was taken over.
                if entry.top != state.top:
                    report.settled_to = entry.top
                report.outcome.update(dict.fromkeys(state.open.keys() - {b.instant for b in entry.open}, "lost"))
                # Left out: strangers had committed to the same.
                if state.last is not None and entry.last is None:
                    report.commits = [each for each in report.commits if each not in state.newest]
                    report.outcome.update(dict.fromkeys((each.instant for each in state.newest), "lost"))
                report.newest_from = entry.slot
            case Begin() if entry.instant <= state.top and not entry.foreign:
                self._add(
                    "log-order", path, f"{path} begins {entry.instant}, which is not later than {state.top} before it"
                )
            case Prepare():
                report.prepared.append((path, entry))
            case Commit() if entry.instant not in state.open and not entry.imported:
                self._add("log-order", path, f"{path} commits {entry.instant}, which was not open there")
            # A time of another engine need not exceed one of ours that was taken between its begin and its end.
            case Commit() if entry.completion <= state.top and not entry.imported:
                self._add(
                    "log-order",
                    path,
                    f"{path} completes at {entry.completion}, which is not later than {state.top} before it",
                )
        counts = isinstance(entry, Commit) and (entry.instant in state.open or entry.imported)
        state.apply(entry)
        report.outcome.update(state.ended)
        state.ended.clear()
        if counts and isinstance(entry, Commit):
            report.commits.append(entry)
            if entry.restores:
                report.commits = [c for c in report.commits if report.outcome[c.instant] != "undone"]

    def _add(self, kind: str, path: str, message: str) -> None:
        self._problems.append((kind, path, message, REBUILD))


def check_log(store: Store, out: Findings) -> LogReport | None:
    """Read the log; None when the table has none, as every table that this library did not write."""
    if not store.folders(LOG):
        return None
    report = _Reader(store, out).read()
    if report.pruned:
        out.unchecked.append(
            f"what the log said of transactions that began up to {report.known_from}: its oldest epochs were removed"
        )
    if not report.whole:
        out.unchecked.append("the commit log behind the entry that cannot be read")
    for commit in report.commits:
        try:
            report.contents[commit.instant] = metadata_of(store, commit)
        except (CorruptTableError, ValueError, TypeError) as e:
            path = commit.side["path"] if commit.side else f"{LOG} slot {commit.slot}"
            message = str(e).removeprefix(f"{store.url}: ").partition("; ")[0]
            out.add("side-object", path, message, REBUILD)
        else:
            _check_side(store, commit, out)
    for entry in store.list(SIDES):
        if report.ended(entry.name.partition("-")[0]):
            out.suspect(
                "side-of-ended", entry.path, f"{entry.path} belongs to a transaction that never landed", ROLL_BACK
            )
    return report


def _check_side(store: Store, commit: Commit, out: Findings) -> None:
    """Report a missing or altered side object, even if the commit's content was found on the timeline."""
    if commit.side is None:
        return
    path = commit.side["path"]
    stored = store.get(path)
    if stored is None or hashlib.sha256(stored.body).hexdigest() != commit.side["sha256"]:
        what = "missing" if stored is None else "altered"
        out.add(
            "side-lost",
            path,
            f"the side object {path} of commit {commit.instant} is {what}; its instant on the timeline says the same",
            "nothing, unless that instant is lost as well",
        )


def check_publication(store: Store, history: History, log: LogReport, out: Findings) -> None:
    """Compare each commit of the log with its instant, and find commits that the log does not know."""
    folder = history.timeline.config.timeline_folder
    first = history.first_active
    undone = {name for commit in log.commits for name in commit.undone}
    for name in sorted(undone):
        if name.partition("_")[0] in history.commits and log.ended(name.partition("_")[0]):
            out.suspect(
                "instant-undone",
                f"{folder}/{name}",
                f"{name} is on the timeline, and a restore has taken it back: its publisher was late",
                "the next writer or `lakelatch rollback` takes it away again",
            )
    for commit in log.commits:
        for name in commit.published:
            requested = commit.schema_under if name == commit.echo else commit.instant
            path = f"{folder}/{name}"
            if name in undone:
                continue
            if requested not in history.commits:
                if store.head(path) is None and not (first is not None and requested < first):
                    _unpublished(commit, path, log, out)
                # else published since the timeline was listed, or archived
            elif name == commit.shown:
                _compare(commit, history, log, path, out)
    _find_strangers(history, log, out)


def _unpublished(commit: Commit, path: str, log: LogReport, out: Findings) -> None:
    if commit.slot == log.commits[-1].slot:
        out.add(
            "commit-to-publish",
            path,
            f"commit {commit.instant} of {commit.writer} has landed in the log and is not on the timeline yet",
            "the next writer or `lakelatch rollback` publishes it",
        )
        return
    name = path.rpartition("/")[2]
    out.add(
        "commit-unpublished",
        path,
        f"{commit.operation.lower()} {commit.instant} of {commit.writer} is in the log (slot {commit.slot}), but "
        f"its instant {name} is not on the timeline: readers miss what it did",
        "the next writer or `lakelatch rollback` puts it back from the log"
        if commit.slot >= log.newest_from
        else RESTORE,
    )


def _compare(commit: Commit, history: History, log: LogReport, path: str, out: Findings) -> None:
    instant = history.commits[commit.instant]
    shown, decided = history.contents.get(commit.instant), log.contents.get(commit.instant)
    what = ""
    if instant.completed != commit.completion or instant.action != commit.action:
        what = f"{instant.action} completed at {instant.completed}, the log {commit.action} at {commit.completion}"
    elif shown is not None and decided is not None:
        if set(shown.stats) != set(decided.stats):
            what = "other files or statistics than the log"
        elif {p: set(ids) for p, ids in shown.replaced.items()} != {p: set(ids) for p, ids in decided.replaced.items()}:
            what = "other replaced file groups than the log"
    if what:
        out.add(
            "publication-differs",
            path,
            f"the timeline says of commit {commit.instant}: {what}",
            "the log decides: delete the instant's file and restore it from a copy",
        )


def _find_strangers(history: History, log: LogReport, out: Findings) -> None:
    if log.settings is not None and log.settings.timeline_first:
        return  # with neighbours the next holder of the lock imports them
    # Commits completed before the log existed are known; later ones are recognised by their C.
    strangers = [
        t for t, i in history.commits.items() if max(t, i.completed or "") > log.settled_to and t not in log.outcome
    ]
    if log.settings is not None and log.settings.streams:
        wrote = [t for t in strangers if (content := history.contents.get(t)) and (content.stats or content.replaced)]
        for t in wrote:
            instant = history.commits[t]
            out.add(
                "stranger-in-streams",
                history.timeline.path(instant),
                f"{instant.action} {t} is of another Hudi writer, which does not know the streams: where it merged events, late "
                "ones count, and a sum is what one event contributed",
                f"stop that writer and take the commit back with Hudi (`set hoodie.write.markers.type=DIRECT; call "
                f"rollback_to_instant(table => ..., instant_time => '{t}')`) before a clean removes the log files: with them "
                "all is as it was. Do not adopt the table",
            )
        strangers = [t for t in strangers if t not in wrote]
    if log.whole and strangers:
        out.add(
            "stranger-commit",
            history.timeline.path(history.commits[strangers[0]]),
            f"commits on the timeline are not in the log ({len(strangers)}, the first is {strangers[0]}): another Hudi writer "
            "wrote here, and our writers did not see it",
            "let only one kind of writer change this table; `lakelatch adopt` after the other has stopped",
        )


def check_several(store: Store, log: LogReport, out: Findings) -> None:
    """Report prepared commits without an outcome, and outcomes that are not those of the home."""
    by_home: dict[str, list[tuple[str, Prepare]]] = {}
    for path, prepared in log.prepared:
        by_home.setdefault(prepared.home.url, []).append((path, prepared))
    for url, found in by_home.items():
        _check_home(store, url, found, log, out)


def _check_home(store: Store, url: str, prepared: Sequence[tuple[str, Prepare]], log: LogReport, out: Findings) -> None:
    outcomes: dict[str, str] = {}
    try:
        for entry in read_all(open_beside(store, url)):
            if isinstance(entry, Commit | End):
                outcomes.setdefault(entry.instant, entry.kind)
    except LakeLatchError as e:
        out.unchecked.append(f"what {url} decided of commits over several tables ({e})")
    for path, each in prepared:
        mine, decided = log.outcome.get(each.instant), outcomes.get(each.home.instant)
        if mine == "open":
            out.add(
                "prepared",
                path,
                f"{each.instant} waits for the outcome of {each.home.instant} of {url}"
                + (f", which is {decided}" if decided else ""),
                "the next writer settles it when its coordinator is dead, or `lakelatch rollback`",
            )
        elif mine and decided and (mine in ("commit", "undone")) != (decided == "commit"):
            out.add(
                "several-differs",
                path,
                f"{each.instant} has ended here as {mine}, and {each.home.instant} of {url}, which decides, as {decided}",
                "write what is missing again, or restore both tables to a state before it",
            )
