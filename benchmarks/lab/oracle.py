"""The oracle checks that a table keeps what its writers were promised: no row lost, doubled or invented. Pure.

An acknowledged operation must be in the table, an aborted one must not, and one with unknown outcome (its writer was killed)
must be there completely or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from . import rows
from .operations import ABORTED, DONE, FAILED, UNKNOWN, Operation

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken promise: ``kind`` is lost, doubled, invented or torn."""

    kind: str
    what: str


def judge(first: pa.Table, operations: list[Operation], final: pa.Table) -> list[Fault]:
    """Return every fault of a final table, given the rows before and the operations of all writers."""
    there: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for key, part, value, by in zip(*(final[name].to_pylist() for name in rows.SCHEMA.names), strict=True):
        there[key].append((part, value, by))
    faults = [Fault("doubled", f"{key} stands {len(found)} times") for key, found in there.items() if len(found) > 1]
    table = {key: found[0] for key, found in there.items()}
    before = {
        key: (part, value)
        for key, part, value in zip(*(first[n].to_pylist() for n in rows.SCHEMA.names[:3]), strict=True)
    }
    replaced = {part for each in operations if each.work == "replace" and each.outcome == DONE for part in each.parts}
    doubtful = {
        part for each in operations if each.work == "replace" and each.outcome == UNKNOWN for part in each.parts
    }
    faults += _kept(before, table, replaced, doubtful - replaced)
    faults += _appended(operations, table)
    faults += _last_wins(operations, table)
    faults += _chains(before, operations, table)
    faults += _newest(operations, table)
    return faults


def _kept(
    before: dict[str, tuple[str, int]], table: dict[str, tuple[str, int, str]], replaced: set[str], doubtful: set[str]
) -> Iterator[Fault]:
    """Check rows that no operation was to touch; rows of replaced partitions must be gone."""
    for key, (part, value) in before.items():
        if key not in table:
            if part not in replaced | doubtful:
                yield Fault("lost", f"{key} was there before, and is gone")
        elif part in replaced:
            yield Fault("doubled", f"{key} is still there, beside the rows that replaced it")
        elif key.startswith(rows.FIRST) and table[key] != (part, value, rows.FIRST):
            yield Fault("invented", f"{key} was changed, which nobody did")
    known = (rows.APPENDED, rows.REPLACED, rows.UPSERTED, rows.EVENT)
    for key in table.keys() - before.keys():
        if not key.startswith(known):
            yield Fault("invented", f"{key} was written by nobody")


# --- rows that are added once, and deleted by value ------------------------------------------------------------------


def _appended(operations: list[Operation], table: dict[str, tuple[str, int, str]]) -> Iterator[Fault]:
    found: dict[str, list[str]] = defaultdict(list)
    for key, (_, value, by) in table.items():
        if key.startswith(rows.APPENDED):
            found[key.removeprefix(rows.APPENDED).rpartition("-")[0]].append(key)
            if by != key.removeprefix(rows.APPENDED).rpartition("-")[0]:
                yield Fault("invented", f"{key} names {by} as its writer (value {value})")
    appends = {each.name: each for each in operations if each.work == "append"}
    deletes: dict[int, list[Operation]] = defaultdict(list)
    for each in operations:
        if each.work == "delete" and each.outcome not in (ABORTED, FAILED):
            deletes[each.value].append(each)
    for name in found.keys() - appends.keys():
        yield Fault("invented", f"{len(found[name])} rows of {name}, which nobody wrote")
    for name, append in appends.items():
        count = len(found.get(name, ()))
        if count not in (0, append.rows):
            yield Fault("torn", f"{count} of the {append.rows} rows of {name}, which is one commit")
        elif count and append.outcome in (ABORTED, FAILED):
            yield Fault("invented", f"the rows of {name}, which aborted ({append.reason})")
        elif count and any(
            d.outcome == DONE and append.outcome == DONE and append.ended < d.began for d in deletes[append.value]
        ):
            yield Fault("invented", f"the rows of {name}, which were deleted after they had been there")
        elif (
            not count
            and append.outcome == DONE
            and all(d.ended and d.ended < append.began for d in deletes[append.value])
        ):
            yield Fault("lost", f"the rows of {name}, which was acknowledged")


# --- rows of one writer, of which the last write counts --------------------------------------------------------------


def _last_wins(operations: list[Operation], table: dict[str, tuple[str, int, str]]) -> Iterator[Fault]:
    """Check rows that one writer each replaced or upserted: they must be those of its last operation."""
    writes: dict[tuple[str, int, str], list[Operation]] = defaultdict(list)
    for each in operations:
        if each.work in ("replace", "upsert"):
            for part in each.parts:
                writes[(each.work, each.writer, part)].append(each)
    found: dict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    for key, (part, _, by) in table.items():
        if key.startswith(rows.REPLACED):
            found[("replace", int(key.removeprefix(rows.REPLACED).partition("-")[0]), part)][by] += 1
        elif key.startswith(rows.UPSERTED):
            found[("upsert", int(key.removeprefix(rows.UPSERTED).partition("-")[0]), part)][by] += 1
    for place in sorted(found.keys() | writes.keys()):
        done = sorted(writes[place], key=lambda each: each.began)
        yield from _last(place, done, found[place])


def _last(place: tuple[str, int, str], done: list[Operation], found: Counter[str]) -> Iterator[Fault]:
    work, writer, part = place
    what = f"the rows that writer {writer} {work}d in {part}"
    last = max((n for n, each in enumerate(done) if each.outcome == DONE), default=-1)
    # An operation with unknown outcome after the last acknowledged one may have replaced its rows.
    allowed = {each.name for each in done[last + 1 :] if each.outcome == UNKNOWN}
    if last >= 0:
        allowed.add(done[last].name)
    size = done[0].rows // len(done[0].parts) if done else 0
    if len(found) > 1:
        yield Fault("torn", f"{what}: of {', '.join(sorted(found)[:_SHOWN])}, and each is one commit")
    elif not found:
        if last >= 0:
            yield Fault("lost", f"{what}: none of {done[last].name}, which was acknowledged")
    else:
        ((by, count),) = found.items()
        if by not in allowed:
            names = [each.name for each in done]
            kind = "lost" if by in names and last >= 0 and names.index(by) < last else "invented"
            wanted = f"{done[last].name} was the last" if last >= 0 else "none was acknowledged"
            yield Fault(kind, f"{what} are of {by}, but {wanted}")
        elif count != size:
            yield Fault("torn", f"{what}: {count} of {size}")


# --- rows that several writers read and change -----------------------------------------------------------------------


def _chains(
    before: dict[str, tuple[str, int]], operations: list[Operation], table: dict[str, tuple[str, int, str]]
) -> Iterator[Fault]:
    """Check that each change follows exactly one other, and that the last one is in the table."""
    changes = [each for each in operations if each.work in ("increment", "transfer")]
    shared = [key for key in before if key.startswith(rows.SHARED) and key in table]
    if changes and all(each.work == "transfer" for each in changes):
        # Transfers move amounts between accounts, so their sum never changes.
        was, now = sum(before[key][1] for key in shared), sum(table[key][1] for key in shared)
        if was != now:
            yield Fault("lost" if now < was else "invented", f"the sum of all accounts was {was}, and is {now}")
    touching: dict[str, list[Operation]] = defaultdict(list)
    for each in changes:
        for key in each.keys:
            touching[key].append(each)
    only_increments = {each.work for each in changes} == {"increment"}
    for key in shared:
        yield from _chain(key, touching[key], table[key], before[key][1] if only_increments else None)


def _chain(key: str, changes: list[Operation], final: tuple[str, int, str], counts_from: int | None) -> Iterator[Fault]:
    _, value, last = final
    done = {each.name: each for each in changes if each.outcome == DONE}
    doubtful = {each.name for each in changes if each.outcome == UNKNOWN}
    after: dict[str, list[str]] = defaultdict(list)
    for name, each in done.items():
        after[each.saw.get(key, "nothing")].append(name)
    for seen, names in after.items():
        if len(names) > 1:
            yield Fault("lost", f"{key}: {' and '.join(sorted(names)[:_SHOWN])} both changed what {seen} had written")
        if seen not in done and seen not in doubtful and seen != rows.FIRST:
            yield Fault("invented", f"{key}: {names[0]} read what {seen} wrote, which did not land")
    landed = doubtful & (after.keys() | {last})
    if last not in done and last not in landed and (last != rows.FIRST or done):
        yield Fault("lost" if last == rows.FIRST else "invented", f"{key}: its last writer is {last}")
    # An operation without a successor is the last one, or an unknown one followed it.
    ends = [name for name in done if not after[name] and name != last]
    if len(ends) > len(landed):
        yield Fault("lost", f"{key}: nobody saw what {', '.join(sorted(ends)[:_SHOWN])} wrote, and it is not there")
    if counts_from is not None and value != counts_from + len(done) + len(landed):
        lost = counts_from + len(done) + len(landed) - value
        yield Fault(
            "lost" if lost > 0 else "invented", f"{key} counts {value - counts_from}, and {len(done)} were acknowledged"
        )


# --- rows that several streams fill ----------------------------------------------------------------------------------


def _newest(operations: list[Operation], table: dict[str, tuple[str, int, str]]) -> Iterator[Fault]:
    """Check that each stream of a row has its newest event, whenever it came, and that an event has all of its rows or none."""
    found = {key: (value, by) for key, (_, value, by) in table.items() if key.startswith(rows.EVENT)}
    seen = {by for _, by in found.values()}
    newest: dict[str, Operation] = {}
    landed = set()
    for each in operations:
        if each.work == "event" and (each.outcome == DONE or (each.outcome == UNKNOWN and each.name in seen)):
            landed.add(each.name)
            for key in each.keys:
                place = rows.event_key(rows.stream_of(each.writer), key)
                if place not in newest or newest[place].value < each.value:
                    newest[place] = each
    for place in sorted(found.keys() | newest.keys()):
        wanted = newest.get(place)
        if wanted is None:
            yield Fault("invented", f"{place} is of {found[place][1]}, which did not land")
        elif place not in found:
            yield Fault("lost", f"{place}: nothing of {wanted.name}, which was the newest event")
        elif found[place] != (wanted.value, wanted.name):
            value, by = found[place]
            words = f"{place} is of {by} at {value}, but {wanted.name} at {wanted.value} was the newest event"
            yield Fault("lost" if by in landed else "invented", words)


def summary(faults: Iterable[Fault]) -> str:
    """Return the number of faults of each kind, and some of them."""
    found = list(faults)
    kinds = Counter(each.kind for each in found)
    count = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return f"{count}: {'; '.join(each.what for each in found[:_SHOWN])}"
