"""A second judge of exported list-append histories: knows nothing of the lab, reads EDN alone, looks for cycles.

The rules are those of Elle's list-append checker, https://github.com/jepsen-io/elle, without its search for explanations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

_TOKEN = re.compile(r"[\[\]{}]|[^\s,\[\]{}]+")


def parse(text: str):
    """The maps of an EDN file, one after another; keywords are texts with their colon."""
    tokens = _TOKEN.findall(text)
    at = 0

    def value():
        nonlocal at
        token = tokens[at]
        at += 1
        if token in "[{":
            inside = []
            while tokens[at] not in "]}":
                inside.append(value())
            at += 1
            return inside if token == "[" else dict(zip(inside[::2], inside[1::2], strict=True))
        return None if token == "nil" else int(token) if re.fullmatch(r"-?\d+", token) else token

    while at < len(tokens):
        yield value()


def anomalies(text: str) -> list[str]:
    """Everything that no strictly serial order of the transactions could have shown."""
    entries = list(parse(text))
    assert [each[":index"] for each in entries] == list(range(len(entries)))
    begun, found = {}, []
    transactions = []  # (type, steps, began, ended)
    for each in entries:
        if each[":type"] == ":invoke":
            assert each[":process"] not in begun, "a process does one thing at a time"
            begun[each[":process"]] = each
        else:
            first = begun.pop(each[":process"])
            transactions.append((each[":type"], each[":value"], first[":index"], each[":index"]))
    transactions += [(":info", each[":value"], each[":index"], None) for each in begun.values()]

    writer, lists = {}, defaultdict(list)
    for number, (_, steps, _, _) in enumerate(transactions):
        for kind, key, value in steps:
            if kind == ":append":
                writer[key, value] = number
    for kind, steps, _, _ in transactions:
        for step, key, value in steps:
            if kind == ":ok" and step == ":r" and value is not None and len(value) > len(lists[key]):
                lists[key] = value
    # What was appended after the longest read and read by nobody has no place; the last append of that reader has one.
    for kind, steps, _, _ in transactions:
        reads = {key: value for step, key, value in steps if step == ":r" and value is not None}
        for step, key, value in steps:
            if kind == ":ok" and step == ":append" and reads.get(key) == lists[key] and value not in lists[key]:
                lists[key] = [*lists[key], value]

    edges = defaultdict(set)

    def edge(a, b):
        if a is not None and b is not None and a != b:
            edges[b].add(a)

    for number, (kind, steps, _, _) in enumerate(transactions):
        for step, key, value in steps:
            order = lists[key]
            if step == ":append" and kind == ":ok" and value not in order and final_read(transactions, key):
                found.append(f"{key}: {value} was acknowledged and is not there")
            if step == ":append" and kind == ":fail" and value in order:
                found.append(f"{key}: {value} aborted and was read")
            if step != ":r" or kind != ":ok" or value is None:
                continue
            if value != order[: len(value)]:
                found.append(f"{key}: {value} is no beginning of {order}")
                continue
            edge(writer.get((key, value[-1])) if value else None, number)
            after = order[len(value) : len(value) + 1]
            edge(number, writer.get((key, after[0])) if after else None)
    for key, order in lists.items():
        for a, b in pairwise(order):
            edge(writer.get((key, a)), writer.get((key, b)))
    for a, (_, _, _, ended) in enumerate(transactions):
        for b, (_, _, began, _) in enumerate(transactions):
            if ended is not None and ended < began:
                edge(a, b)
    alive = {n for n, (kind, _, _, _) in enumerate(transactions) if kind != ":fail"}
    try:
        list(TopologicalSorter({n: edges[n] & alive for n in alive}).static_order())
    except CycleError as e:
        found.append(f"a cycle: {e.args[1]}")
    return found


def final_read(transactions, key) -> bool:
    return any(
        all(step == ":r" for step, _, _ in steps) and any(k == key for _, k, _ in steps)
        for _, steps, _, _ in transactions
    )
