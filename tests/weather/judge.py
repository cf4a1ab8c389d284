"""What held: the writers' histories against the table that they left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .writer import KEPT, TOTAL

Event = Mapping[str, Any]


class Fault(NamedTuple):
    """What befell somebody, from when until when; moments as in the events."""

    kind: str
    whom: str
    began: float
    ended: float


def broken(events: Iterable[Event], tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return what does not hold. ``events`` have their ``writer``; ``tables`` has their last rows, by the ends of URLs.

    An operation of which nothing was said, because its process was killed, is one whose outcome is unknown.
    """
    events, found = sorted(events, key=lambda each: each["at"]), list[str]()
    last = {(each["writer"], each["n"]): each for each in events}
    told = {key: each | {"told": "unknown"} if each["told"] == "begins" else each for key, each in last.items()}
    found += [
        f"{each['writer']} {each['op']} {each['n']} met {each['error']}" for each in events if each["told"] == "raw"
    ]
    for end, rows in tables.items():
        there = Counter(each["id"] for each in rows)
        found += [f"{key} stands {count} times in table{end}" for key, count in there.items() if count > 1]

    rows = tables.get("", ())
    found += _appends(told.values(), [each for each in rows if each["part"] in "xy"])
    counts = Counter(each["told"] for each in told.values() if each["op"] == "count")
    value = next((each["v"] for each in rows if each["part"] == "counter"), -1)
    if not counts["landed"] <= value <= counts["landed"] + counts["unknown"]:
        found.append(
            f"the counter is {value}, after {counts['landed']} increments and {counts['unknown']} of unknown outcome"
        )
    accounts = [each for each in (*rows, *tables.get("-two", ())) if each["part"] == "bank"]
    if (total := sum(each["v"] for each in accounts)) != 2 * TOTAL:
        found.append(f"the accounts hold {total}, and held {2 * TOTAL}")
    found += _claims(told.values(), tables.get("-claims", ()))
    found += _sums(told.values(), tables.get("-sums", ()))
    return found + list(_seen(events))


def _appends(told: Collection[Event], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """An append stands if it was acknowledged, unless its writer has deleted it, or may have."""
    there = {each["id"] for each in rows}
    purged = {key for each in told if each["op"] == "purge" for key in each.get("purged", ())}
    in_doubt = {
        writer: max(
            each["n"]
            for each in told
            if each["op"] == "purge" and each["told"] == "unknown" and each["writer"] == writer
        )
        for writer in {each["writer"] for each in told if each["op"] == "purge" and each["told"] == "unknown"}
    }
    yield from (f"{key} was deleted, and stands" for key in purged & there)
    for each in told:
        if each["op"] != "append":
            continue
        writer, number = each["writer"], each["n"]
        key = f"{writer}-{number}"
        gone = key in purged or number < in_doubt.get(writer, 0) - KEPT
        if each["told"] == "landed" and key not in there and not gone:
            yield f"append {number} of {writer} was acknowledged and is lost"
        if each["told"] == "failed" and key in there:
            yield f"append {number} of {writer} is there, and its writer was told that nothing landed: {each['error']}"
    known = {f"{each['writer']}-{each['n']}" for each in told if each["op"] == "append"}
    yield from (f"{key} was written by nobody" for key in sorted(there - known))


def _claims(told: Iterable[Event], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """No value stands twice, and each that was acknowledged stands."""
    there = {each["id"] for each in rows}
    for value, count in Counter(each["value"] for each in rows).items():
        if count > 1:
            yield f"the unique value {value} stands {count} times"
    for each in told:
        key = f"{each['writer']}-{each['n']}"
        if each["op"] != "claim" or each["told"] == "unknown":
            continue
        if (each["told"] == "landed" and not each.get("taken")) != (key in there):
            yield f"claim {key} was told {each['told']}, and {'stands' if key in there else 'does not stand'}"


def _sums(told: Iterable[Event], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The numbered events of each writer count once each, however often they were sent; their amount is their number."""
    sent: dict[tuple[str, int], set[str]] = defaultdict(set)
    for each in told:
        if each["op"] == "event":
            sent[each["writer"], each["batch"]].add(each["told"])
    least = sum(batch for (_, batch), outcomes in sent.items() if "landed" in outcomes)
    perhaps = [batch for (_, batch), outcomes in sent.items() if "landed" not in outcomes and "unknown" in outcomes]
    total = sum(each["n"] or 0 for each in rows)
    reached = {0}
    for batch in perhaps:
        reached |= {each + batch for each in reached}
    if total - least not in reached:
        yield f"the events sum up to {total}; {least} were acknowledged, and {perhaps} are of unknown outcome"


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


class Recovery(NamedTuple):
    """One or two faults at a time, and what came of it.

    Attributes:
        kinds: of the faults.
        until_commit_s: from the end of the last of them to the next commit of anybody; None if there was none while it was
            waited for.
        silence_s: the longest time without a commit from the first fault to that commit.
    """

    kinds: tuple[str, ...]
    until_commit_s: float | None
    silence_s: float


def recovery(events: Iterable[Event], faults: Sequence[Fault], until: float) -> Recovery:
    """Return what came of faults that overlapped; ``until`` is the end of the wait for a commit."""
    landed = sorted(commits(events))
    began, healed = min(each.began for each in faults), max(each.ended for each in faults)
    after = next((at for at in landed if at >= healed), None)
    before = max((at for at in landed if at <= began), default=began)
    moments = [before, *(at for at in landed if before < at <= (after or until)), *([] if after else [until])]
    silence = max((later - earlier for earlier, later in pairwise(moments)), default=0.0)
    return Recovery(tuple(each.kind for each in faults), after and after - healed, silence)


def longest_silence(events: Iterable[Event], since: float, until: float) -> tuple[float, float]:
    """Return the longest time without a commit between two moments, and when it began."""
    moments = [since, *sorted(at for at in commits(events) if since < at < until), until]
    return max((later - earlier, earlier) for earlier, later in pairwise(moments))


def commits(events: Iterable[Event]) -> Iterator[float]:
    """Return the moments at which writers were told of commits."""
    return (
        each["at"]
        for each in events
        if each["told"] == "landed" and each["op"] not in NO_COMMITS and not each.get("taken")
    )


NO_COMMITS = ("look", "services", "purge")  # a purge may have found nothing to delete


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, 99th percentile (of few values the largest) and maximum."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {
        "n": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(p99, 1),
        "max": round(ordered[-1], 1),
    }


def growth(samples: Sequence[float]) -> float | None:
    """Return by how much the last third is above the second one, as a share; None of too few samples."""
    third = len(samples) // 3
    if third < 3:
        return None
    middle, last = (
        sorted(samples[third : 2 * third])[third // 2],
        sorted(samples[2 * third :])[(len(samples) - 2 * third) // 2],
    )
    return (last - middle) / middle if middle else 0.0
