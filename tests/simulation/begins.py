"""What must be true of transactions that begin together: nobody begins twice, or when it did not want to any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelatch.occ.entries import BeginRequest
from lakelatch.occ.entries.entries import Begin, Commit, End, GroupBegin, LogEntry, Open, Setting, decode
from lakelatch.occ.log.epochs import LOG

from .history import Anomaly, Attempt
from .store import Objects


class Asked:
    """What has been asked for, and the entries that begin several, as they appear."""

    def __init__(self) -> None:
        self.requests: set[BeginRequest] = set()
        self.groups: list[tuple[int, GroupBegin]] = []

    def made(self, path: str, objects: Objects) -> None:
        """An object has appeared."""
        if path.startswith(LOG) and b'"kind":"begins"' in objects.stored[path].body:
            entry = decode(objects.stored[path].body, path)
            assert isinstance(entry, GroupBegin)
            self.groups.append((int(path.split("/")[-2]), entry))


def judge_begins(entries: Iterable[LogEntry], asked: Asked, attempts: Sequence[Attempt], *, faults: bool) -> int:
    """How many have begun by the entry of another. Raises `Anomaly`."""
    instants = [each.instant for each in attempts if each.instant]
    if len(set(instants)) < len(instants):
        raise Anomaly("two attempts have worked under one T")
    begun: dict[str, Begin] = {}
    ended: dict[str, str] = {}  # how
    open_now: dict[str, Begin] = {}
    here: set[str] = set()  # ids of this epoch
    settled, others = -1, 0
    settings_at: dict[int, int] = {}
    reserved_at: set[int] = set()
    for entry in entries:
        match entry:
            case Open() | Setting():
                settled = entry.slot
                if isinstance(entry, Open):
                    here = set()
            case Begin():
                if entry.slot not in settings_at and any(each.reserved for each in open_now.values()):
                    reserved_at.add(entry.slot)
                settings_at.setdefault(entry.slot, settled)
                open_now[entry.instant] = entry
                if not entry.asked:
                    continue
                before = begun.get(entry.asked)
                if before and (entry.asked in here or ended.get(before.instant) != "rollback"):
                    raise Anomaly(f"{entry.asked} has begun as {before.instant}, and again as {entry.instant}")
                begun[entry.asked] = entry
                here.add(entry.asked)
            case Commit() | End():
                open_now.pop(entry.instant, None)
                ended.setdefault(entry.instant, entry.kind)
                if entry.kind == "rollback" and not faults and any(b.instant == entry.instant for b in begun.values()):
                    raise Anomaly(f"nothing was wrong, and {entry.instant} has begun for nobody")
    for epoch, group in asked.groups:
        for each in group.members[1:]:
            if begun.get(each.asked) != each:
                continue  # where nobody reads
            others += 1
            known = settings_at[group.slot]
            if not any((r.asked, r.epoch, r.settled) == (each.asked, epoch, known) for r in asked.requests):
                raise Anomaly(f"{each.instant} has begun by {group.instant}, and nobody has asked for that there")
            if group.slot in reserved_at:
                raise Anomaly(f"{each.instant} has begun by {group.instant} while somebody had reserved something")
    return others
