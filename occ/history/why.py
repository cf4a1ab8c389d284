"""The cause of a transaction's outcome, rebuilt from the log, long after its writer has gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...conflict import Party, ReadSet, Region, Term, WriteSet
from ...errors import InputError, LakeLatchError
from ...hudi.files import FileGroupId
from ...hudi.timeline import to_epoch_ms
from ...notebook import view
from ..entries import Begin, Changed, Commit, End, Loss, Open, Settings, Single, groups_of, held, note_in, write_set_of
from ..log import LogState, plain_metadata_of
from ..session import Session
from .ways import Case, Way, explained, ways


@dataclass(slots=True)
class Story:
    """The log entries that concern one transaction.

    Attributes:
        begin: its begin; None if the epoch that it began in was removed.
        ending: its commit or end; None while it is open.
        settings: the settings at its end.
        landed: the commits that it was compared with at its end, in slot order.
        pending: the other open transactions at its end.
        attempts: earlier attempts of the same work, oldest first.
        whole: False if some of these commits may be missing, because old epochs were removed.
    """

    instant: str
    begin: Begin | None = None
    ending: Commit | End | None = None
    settings: Settings = field(default_factory=Settings)
    landed: list[Commit] = field(default_factory=list)
    pending: list[Begin] = field(default_factory=list)
    attempts: list[tuple[Begin, End]] = field(default_factory=list)
    whole: bool = True


def tell(entries: Iterable[Single], instant: str) -> Story | None:
    """Build the story of one transaction; return None if the log does not know it."""
    story, state = Story(instant), LogState()
    commits: dict[str, Commit] = {}
    ends: list[tuple[Begin, End]] = []
    first: int | None = None
    for entry in entries:
        first = entry.slot if first is None else first
        ours = state.open.get(instant)
        match entry:
            case Commit() | End() if entry.instant == instant and ours is not None and story.ending is None:
                story.begin, story.ending, story.settings = ours, entry, state.settings
                story.pending = [each for each in state.open.values() if each.instant != instant]
            case Commit() if entry.instant in state.open and story.ending is None:
                commits[entry.instant] = entry
            case End() if entry.instant in state.open:
                ends.append((state.open[entry.instant], entry))
            case Open() if entry.last is not None and story.ending is None:
                # The newest commit of a removed epoch: its slot is unknown, and so is whether the transaction had seen it.
                commits.setdefault(entry.last.instant, entry.last)
        state.apply(entry)
    if story.ending is None:
        story.begin, story.settings = state.open.get(instant), state.settings
        if story.begin is None:
            return None
    begin = story.begin
    assert begin is not None
    since = begin.planned_at if begin.plan is not None else begin.slot
    story.landed = sorted(
        (each for each in commits.values() if each.slot > since), key=lambda each: (each.slot, each.place)
    )
    # The age alone is not unique: several transactions may have begun at one slot.
    work = begin.age, begin.writer
    story.attempts = [(each, end) for each, end in ends if (each.age, each.writer) == work and each.slot < begin.slot]
    story.whole = first is not None and (first <= since or first <= 1)
    return story


@dataclass(frozen=True, slots=True)
class Overlap:
    """A file group that both changed; ``rows_min`` and ``rows_max`` bound the rows that both changed, None if unknown."""

    group: str
    ours: Changed | None
    theirs: Changed | None
    rows_min: int | None
    rows_max: int | None


@dataclass(frozen=True, slots=True)
class Other:
    """Another transaction in the story. ``completion`` is "" if it was pending."""

    instant: str
    operation: str
    writer: str
    completion: str


@dataclass(frozen=True, slots=True)
class Account:
    """The outcome of one transaction, and its cause.

    Attributes:
        outcome: ``landed``, ``lost`` (another writer won), ``aborted``, ``rolled back``, ``open`` or ``planned``.
        took_s: seconds from its begin to its end, if known.
        files, rows, bytes: the amount it wrote; wasted unless it landed.
        wrote, read: its writes and reads, in words.
        winner: the transaction that won; None if none did.
        rule: the rule that decided; for other ends the reason.
        overlap: the file groups that both changed, with their rows.
        rounds: the number of its rebase rounds.
        merged_over: for a commit after a rebase, the transactions whose changes it merged onto.
        ways: the remedies.
        attempts: earlier attempts of the same work, oldest first; they have no attempts of their own.
        note: of a commit, by its writer.
        notes: the facts that are no longer known.
    """

    instant: str
    operation: str
    writer: str
    outcome: str
    completion: str = ""
    took_s: float | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    wrote: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    isolation: str = ""
    winner: Other | None = None
    rule: str = ""
    ended_by: str = ""
    overlap: tuple[Overlap, ...] = ()
    rounds: int = 0
    merged_over: tuple[Other, ...] = ()
    ways: tuple[Way, ...] = ()
    attempts: tuple[Account, ...] = ()
    notes: tuple[str, ...] = ()
    note: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all facts by name."""
        return asdict(self)

    def _repr_html_(self) -> str:
        winner = self.winner and f"{self.winner.instant} {self.winner.operation} by {self.winner.writer}"
        told = [
            ("completion", self.completion),
            ("seconds", self.took_s),
            ("winner", winner),
            ("because", self.rule),
            ("wrote", ", ".join(self.wrote)),
            ("read", ", ".join(self.read)),
            ("both land", "; ".join(f"if you {each.how}" for each in self.ways if each.lands == "both")),
            ("it lands", "; ".join(f"if you {each.how}" for each in self.ways if each.lands == "ours")),
            *self.note.items(),
        ]
        rows = [(each.group, each.rows_min, each.rows_max) for each in self.overlap]
        return view(
            f"{self.instant} {self.operation.lower()} by {self.writer}: {self.outcome}",
            told,
            headers=("file group", "rows of both, at least", "at most") if rows else (),
            rows=rows,
            below="; ".join(self.notes),
        )


def why(session: Session, instant: str, known: Sequence[Single] | None = None) -> Account:
    """Return the account of the transaction with requested time ``instant``.

    Args:
        known: the entries of the log, if the caller has read them; None: read them here.

    Raises:
        InputError: the log does not know it; the message says whether that part has been pruned.
    """
    entries = list(session.log.entries()) if known is None else known
    story = tell(entries, instant)
    if story is None:
        raise _unknown(session, instant, entries[0] if entries else None)
    account = _account(session, story)
    before = [tell(entries, begin.instant) for begin, _end in story.attempts]
    return replace(account, attempts=tuple(_account(session, each) for each in before if each is not None))


def _unknown(session: Session, instant: str, first: object) -> InputError:
    pruned = first.top if isinstance(first, Open) and first.slot > 1 else None
    if pruned and instant <= pruned:
        landed = session.log.landed(instant)
        fate = f"it landed at {landed}" if landed else "nothing tells of transactions of then that did not land"
        hint = f"the log of what began up to {pruned} has been removed, and {fate}"
    else:
        hint = "`lakelatch timeline` lists the transactions that it has"
    return InputError(f"{session.url}: the log has no transaction {instant}; {hint}", instant=instant, pruned_to=pruned)


def _account(session: Session, story: Story) -> Account:
    begin, ending = story.begin, story.ending
    assert begin is not None
    told = Account(story.instant, begin.operation, begin.writer, "planned" if begin.plan is not None else "open")
    if ending is None:
        waiting = session.log.state.prepared.get(story.instant)
        if waiting is not None:
            told = replace(told, outcome="prepared", notes=_partners(session.url, waiting.commit))
        now = session.env.now() - to_epoch_ms(story.instant) / 1000
        return replace(told, took_s=round(max(now, 0.0), 3))
    if isinstance(ending, Commit):
        return _landed(session, story, told, ending)
    told = replace(
        told,
        outcome="rolled back" if ending.kind == "rollback" else "aborted",
        rule=ending.reason,
        ended_by=ending.who,
    )
    if ending.lost is not None:
        return _lost(session, story, told, ending.lost)
    if begin.plan is not None:
        return _cancelled(session, story, told)
    if ending.kind == "abort":
        return told
    timeout = story.settings.heartbeat_timeout_s
    note = f"if its process was alive, it was silent for longer than heartbeat_timeout_s ({timeout:g} s) allows"
    return replace(told, notes=(note,))


def _landed(session: Session, story: Story, told: Account, commit: Commit) -> Account:
    notes: tuple[str, ...] = ()
    content: dict[str, Any] = {}
    try:
        content = plain_metadata_of(session.store, commit)
    except LakeLatchError as e:
        notes = (f"what it wrote is not known any more ({e})",)
    stats = content.get("stats", ())
    known = {} if notes else _cost(stats)
    replaced = {FileGroupId(p, f) for p, ids in content.get("replaced", {}).items() for f in ids}
    merged: tuple[Other, ...] = ()
    # A write that ends as a replacecommit has moved rows in its rebase: the groups it replaced name whose changes it met.
    if commit.action == "replacecommit" and (begin := story.begin) and begin.action != "replacecommit":
        parties = _parties(session, story.landed, story.settings)[0]
        merged = tuple(_other(each) for each in parties if not replaced.isdisjoint(each.writes.groups))
    told = replace(told, operation=commit.operation)
    took = (to_epoch_ms(commit.completion) - to_epoch_ms(commit.instant)) / 1000
    groups = {FileGroupId(each["partition"], each["file_id"]) for each in stats} | replaced
    return replace(
        told,
        outcome="landed",
        completion=commit.completion,
        took_s=round(max(took, 0.0), 3),
        wrote=_written(WriteSet(frozenset(groups), commit.region)),
        merged_over=merged,
        notes=(*notes, *_partners(session.url, commit)),
        note=note_in(content.get("extra", {})),
        **known,
    )


def _partners(url: str, commit: Commit) -> tuple[str, ...]:
    """Name the other tables of its transaction, if it is one over several."""
    if not commit.several:
        return ()
    told = [f"{each.instant} of {each.url}" for each in commit.several if each.url != url]
    home = commit.several[-1]
    decides = "this table's log decides" if home.url == url else f"the log of {home.url} decides"
    return (f"part of one transaction with {', '.join(told)}; {decides}",)


def _cost(stats: Iterable[dict[str, Any]]) -> dict[str, Any]:
    stats = list(stats)
    return {
        "files": len(stats),
        "rows": sum(each.get("num_writes", 0) for each in stats),
        "bytes": sum(each.get("file_size", 0) for each in stats),
    }


def _lost(session: Session, story: Story, told: Account, loss: Loss) -> Account:
    begin, settings = story.begin, story.settings
    assert begin is not None
    landed, gone = _parties(session, story.landed, settings)
    pending = [_pending(session, each) for each in story.pending]
    writes = replace(loss.writes, streamed=bool(settings.streams))
    ours = Party(
        story.instant, "", begin.operation, begin.writer, writes, begin.priority, reserved=begin.reserved, age=begin.age
    )  # fmt: skip
    candidates = (*landed, *pending)
    rival = next((each for each in candidates if each.instant == loss.winner), None)
    overlap = _overlaps(loss, rival, _stats(session, story.landed, loss.winner))
    case = explained(
        Case(
            ours,
            loss.reads,
            candidates,
            loss.winner,
            by=settings.strategy,
            isolation=loss.isolation,
            floor=settings.isolation,
            bucketed=settings.bucket_count is not None,
            merges=loss.merges and settings.rebase,
            hook=loss.merges,
            rebase=settings.rebase,
            same_rows=loss.same_rows or sum(each.rows_min or 0 for each in overlap),
            ordering=bool(session.config.ordered_by),
            early=loss.early,
        ),
        loss.rule,
    )
    notes = list(gone)
    if loss.cut:
        notes.append(
            "it touched more than an entry of the log keeps, so some of what it wrote or read is left out here"
        )
    if not story.whole:
        notes.append("old epochs of the log have been removed, so some of what landed meanwhile is not known")
    if loss.winner and rival is None:
        notes.append(f"the log has nothing of the winner {loss.winner} any more")
    if not loss.winner:
        notes.append("no other writer won: the table's settings changed; run it again")
    winner = Other(loss.winner, loss.winner_op, loss.winner_writer, "") if loss.winner else None
    return replace(
        told,
        outcome="lost",
        took_s=loss.took_s,
        files=loss.files,
        rows=loss.rows,
        bytes=loss.bytes,
        wrote=_written(loss.writes),
        read=_read(loss.reads),
        isolation=loss.isolation,
        winner=_other(rival) if rival else winner,
        rule=loss.rule,
        overlap=overlap or tuple(Overlap(each, None, None, None, None) for each in loss.overlap),
        rounds=loss.rounds,
        ways=tuple(ways(case)),
        notes=tuple(notes),
    )


def _cancelled(session: Session, story: Story, told: Account) -> Account:
    """Account for a cancelled plan: evaluate the rules to see whether it could still have committed."""
    begin = story.begin
    assert begin is not None
    try:
        writes = WriteSet(groups_of(held(session.store, begin.plan or {})))
    except LakeLatchError as e:
        return replace(told, notes=(f"what it would have done is not known any more ({e})",))
    settings = story.settings
    landed, gone = _parties(session, story.landed, settings)
    ours = Party(story.instant, "", begin.operation, begin.writer, writes, begin.priority, age=begin.age)
    case = Case(
        ours, ReadSet(scans=()), tuple(landed), "", by=settings.strategy, bucketed=settings.bucket_count is not None
    )
    told = replace(told, wrote=_written(writes), notes=gone)
    if (found := case.lost()) is None:
        return told
    return replace(
        told,
        outcome="lost",
        winner=_other(found.winner),
        rule=found.rule,
        overlap=tuple(Overlap(str(each), None, None, None, None) for each in found.overlap),
        ways=tuple(ways(replace(case, winner=found.winner.instant))),
    )


def _parties(session: Session, commits: Iterable[Commit], settings: Settings) -> tuple[list[Party], tuple[str, ...]]:
    found, gone = [], []
    for commit in commits:
        try:
            writes = write_set_of(session.store, commit, plain_metadata_of(session.store, commit))
        except LakeLatchError:
            writes = WriteSet(region=commit.region)
            gone.append(f"what {commit.instant} wrote is not known any more")
        writes = replace(writes, streamed=bool(settings.streams))
        found.append(
            Party(
                commit.instant, commit.completion, commit.operation, commit.writer, writes, reads_too=not commit.blind
            )
        )
    return found, tuple(gone)


def _pending(session: Session, begin: Begin) -> Party:
    """Return an open transaction as a party: a plan with its file groups; a writer, whose markers are gone, without."""
    writes = WriteSet()
    if begin.plan is not None:
        try:
            writes = WriteSet(groups_of(held(session.store, begin.plan)))
        except LakeLatchError:
            writes = WriteSet()
    return Party(
        begin.instant, "", begin.operation, begin.writer, writes, begin.priority,
        silent=begin.plan is None, reserved=begin.reserved, age=begin.age,
    )  # fmt: skip


def _stats(session: Session, commits: Iterable[Commit], winner: str) -> dict[FileGroupId, Changed]:
    commit = next((each for each in commits if each.instant == winner), None)
    if commit is None:
        return {}
    try:
        stats = plain_metadata_of(session.store, commit).get("stats", ())
    except LakeLatchError:
        return {}
    return {FileGroupId(each["partition"], each["file_id"]): Changed.of(each) for each in stats}


def _overlaps(loss: Loss, rival: Party | None, theirs: dict[FileGroupId, Changed]) -> tuple[Overlap, ...]:
    if rival is None:
        return ()
    found = []
    for group in sorted(loss.writes.groups & rival.writes.groups):
        low, high = _rows_of_both(loss.changed.get(group), theirs.get(group))
        found.append(Overlap(str(group), loss.changed.get(group), theirs.get(group), low, high))
    if loss.same_rows and len(found) == 1 and found[0].rows_min is not None:
        found[0] = replace(found[0], rows_min=max(found[0].rows_min, loss.same_rows))
    return tuple(found)


def _rows_of_both(ours: Changed | None, theirs: Changed | None) -> tuple[int | None, int | None]:
    """Bound the rows that both changed by counting: two changes of six of ten rows have at least two in common."""
    if ours is None or theirs is None:
        return None, None
    mine, other = ours.updates + ours.deletes, theirs.updates + theirs.deletes
    low = max(mine + other - min(ours.before, theirs.before), 0)
    return low, max(min(mine, other) + min(ours.inserts, theirs.inserts), low)


def _other(party: Party) -> Other:
    return Other(party.instant, party.operation, party.writer, party.completion)


# --- words -------------------------------------------------------------------------------------------------------


def _written(writes: WriteSet) -> tuple[str, ...]:
    groups = tuple(sorted(map(str, writes.groups)))
    return (*(f"all of {each}" for each in _places(writes.region)), *groups)


def _places(region: Region) -> list[str]:
    return (
        ["the table"] if region.whole_table else [f"partition {each or '(root)'}" for each in sorted(region.partitions)]
    )


def _read(reads: ReadSet) -> tuple[str, ...]:
    if reads.blind:
        return ("nothing",)
    found = [f"{each}, where its condition was evaluated" for each in _places(reads.region)]
    for scan in reads.condition:
        found += [f"{each}, where {_where(scan.where)}" for each in _places(scan.region)]
    for scan in reads.lookups:
        found += [f"the keys of {each}" for each in _places(scan.region)]
        found += [f"the keys of {each}" for each in sorted(map(str, scan.groups))]
    if reads.scans is None:
        return (*found, "whatever it did not declare")
    for scan in reads.scans:
        found += [each + (f", where {_where(scan.where)}" if scan.where else "") for each in _places(scan.region)]
        found += sorted(map(str, scan.groups)) if not scan.region else []
    return tuple(found)


def _where(where: Iterable[Term]) -> str:
    return " and ".join(
        f"{each.column} {each.op}" + ("" if each.value is None else f" {each.value!r}") for each in where
    )
