"""What held: the writers' histories against the table that they left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from .writer import TOTAL

Event = Mapping[str, Any]


class Fault(NamedTuple):
    """What befell somebody, from when until when; moments as in the events."""

    kind: str
    whom: str
    began: float
    ended: float


def broken(
    events: Iterable[Event], rows: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return what does not hold. ``events`` have their ``writer``; ``rows`` are the table's at the end, ``others`` those of the
    other one.

    An operation of which nothing was said, because its process was killed, is one whose outcome is unknown.
    """
    events, found, rows = sorted(events, key=lambda each: each["at"]), list[str](), list(rows)
    last = {(each["writer"], each["n"]): each for each in events}
    outcome = {key: "unknown" if each["told"] == "begins" else each["told"] for key, each in last.items()}
    operation = {key: each["op"] for key, each in last.items()}
    found += [
        f"{each['writer']} {each['op']} {each['n']} met {each['error']}" for each in events if each["told"] == "raw"
    ]

    there = Counter(each["id"] for each in rows)
    found += [f"{key} stands {count} times" for key, count in there.items() if count > 1]
    for (writer, number), told in outcome.items():
        if operation[writer, number] != "append":
            continue
        stands = there[f"{writer}-{number}"] > 0
        if told == "landed" and not stands:
            found.append(f"append {number} of {writer} was acknowledged and is lost")
        if told == "failed" and stands:
            found.append(f"append {number} of {writer} is there, and its writer was told that nothing landed: "
                         f"{last[writer, number]['error']}")  # fmt: skip
    known = {f"{writer}-{number}" for writer, number in outcome}
    found += [
        f"{each['id']} was written by nobody" for each in rows if each["part"] in "xy" and each["id"] not in known
    ]

    counts = Counter(told for key, told in outcome.items() if operation[key] == "count")
    value = next((each["v"] for each in rows if each["part"] == "counter"), -1)
    if not counts["landed"] <= value <= counts["landed"] + counts["unknown"]:
        found.append(
            f"the counter is {value}, after {counts['landed']} increments and {counts['unknown']} of unknown outcome"
        )
    if (total := sum(each["v"] for each in (*rows, *others) if each["part"] == "bank")) != 2 * TOTAL:
        found.append(f"the accounts hold {total}, and held {2 * TOTAL}")
    return found + list(_seen(events))


def _seen(events: list[Event]) -> Iterable[str]:
    """What a reader saw must hold all that was acknowledged before it began, whole transfers, and no older counter."""
    acknowledged: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for each in events:
        if each["told"] == "landed" and each["op"] == "append":
            acknowledged[each["writer"]].append((each["at"], each["n"]))
    increments = [each["at"] for each in events if each["told"] == "landed" and each["op"] == "count"]
    for each in events:
        if each["op"] != "look" or each["told"] != "landed":
            continue
        began, who = each["at"] - each["took"], f"a look of {each['writer']} at {each['at']:.2f}"
        if each["sum"] != 2 * TOTAL:
            yield f"{who} saw {each['sum']} in the accounts: half of a transfer"
        if each["counter"] < (least := sum(at < began for at in increments)):
            yield f"{who} saw the counter at {each['counter']}, after {least} increments"
        for writer, appended in acknowledged.items():
            newest = max((number for at, number in appended if at < began), default=0)
            if each["newest"].get(writer, 0) < newest:
                yield f"{who} did not see append {newest} of {writer}"


def longest_silence(events: Iterable[Event], since: float, until: float) -> tuple[float, float]:
    """Return the longest time without a commit between two moments, and when it began."""
    landed = sorted(each["at"] for each in events if each["told"] == "landed" and each["op"] != "look")
    moments = [since, *(at for at in landed if since < at < until), until]
    return max((later - earlier, earlier) for earlier, later in pairwise(moments))


def until_next_commit(events: Iterable[Event], faults: Iterable[Fault]) -> dict[str, list[float]]:
    """Return, by kind, the seconds from the end of each fault to the next commit of anybody."""
    landed = sorted(each["at"] for each in events if each["told"] == "landed" and each["op"] != "look")
    found: dict[str, list[float]] = defaultdict(list)
    for fault in faults:
        if (after := next((at for at in landed if at >= fault.ended), None)) is not None:
            found[fault.kind].append(after - fault.ended)
    return found
