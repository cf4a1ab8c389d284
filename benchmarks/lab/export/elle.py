"""Elle's list-append histories in EDN (https://github.com/jepsen-io/elle), of operations that read rows before they change
them.

A row keeps the name of the operation that wrote it last, and an operation records which name it read. So a row's history is a
list to which each operation appends its number after reading it: the list of the operation whose name it read, plus its own
number. Two operations that read the same name have contradicting lists, as after a lost update. The reads of a killed writer
are unknown; if only one position in the list fits, it is used, and otherwise reads after it are nil, Elle's unknown.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..operations import ABORTED, DONE, FAILED, UNKNOWN, Operation
from ..rows import FIRST

_MOST = 2000  # operations; lists grow with each, so the file grows with their square


def make(operations: list[Operation], facts: dict[str, Any]) -> bytes | None:
    """Return the history of a run: a line at the beginning and one at the end of each operation."""
    changes = [each for each in operations if each.work in ("increment", "transfer")]
    if not changes:
        return None
    changes, rest = changes[:_MOST], changes[_MOST:]
    numbers = {each.name: number for number, each in enumerate([*changes, *rest], 1)}
    lists = {key: _Lists(key, changes, numbers) for key in sorted({key for each in changes for key in each.keys})}
    lines = []
    for each in changes:
        lines.append((each.began, 0, _line("invoke", each, dict.fromkeys(each.keys), numbers)))
        if each.outcome == UNKNOWN:
            continue  # its outcome is unknown, so for Elle it never ends
        reads = {key: lists[key].before(each) if each.outcome == DONE else None for key in each.keys}
        kind = {DONE: "ok", ABORTED: "fail", FAILED: "fail"}[each.outcome]
        lines.append((each.ended, 1, _line(kind, each, reads, numbers)))
    last = max(at for at, _, _ in lines)
    final = {} if rest else {key: lists[key].upto(by) for key, by in facts.get("final", {}).items() if key in lists}
    if final:
        reads_only = " ".join(f"[:r :{key} {_edn(found)}]" for key, found in final.items())
        for kind in ("invoke", "ok"):
            asked = " ".join(f"[:r :{key} nil]" for key in final) if kind == "invoke" else reads_only
            lines.append((last + 1, len(lines), f"{{:type :{kind}, :f :txn, :value [{asked}], :process -1"))
    ordered = sorted(lines)
    text = [f"{line}, :time {max(round(at * 1e9), 0)}, :index {n}}}" for n, (at, _, line) in enumerate(ordered)]
    return ("\n".join(text) + "\n").encode()


def _line(kind: str, each: Operation, reads: dict[str, list[int] | None], numbers: dict[str, int]) -> str:
    steps = " ".join(f"[:r :{key} {_edn(read)}] [:append :{key} {numbers[each.name]}]" for key, read in reads.items())
    # An operation without an end leaves its process; its successor in the lane has another number.
    process = each.writer * 1000 + (int(each.name.partition("-")[0].partition(".")[2] or 0))
    return f"{{:type :{kind}, :f :txn, :value [{steps}], :process {process}"


def _edn(found: list[int] | None) -> str:
    return "nil" if found is None else f"[{' '.join(map(str, found))}]"


class _Lists:
    """The history of one row, as each operation saw it."""

    def __init__(self, key: str, changes: list[Operation], numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._saw = {each.name: each.saw[key] for each in changes if key in each.keys and key in each.saw}
        self._key = key
        self._place_the_killed({each.name for each in changes if each.outcome == UNKNOWN and key in each.keys})
        self._known: dict[str, list[int] | None] = {FIRST: []}

    def _place_the_killed(self, killed: set[str]) -> None:
        """Place a killed operation whose change was seen, if only one other operation has no successor: it came after that
        one.
        """
        seen: dict[str, int] = defaultdict(int)
        for name in self._saw.values():
            seen[name] += 1
        landed = [name for name in killed if seen[name] and name not in self._saw]
        last = [name for name in (FIRST, *self._saw) if not seen[name]]
        if len(landed) == 1 and len(last) == 2:
            # Of the two ends one is the end of the list; the other one is what the killed operation had read.
            after = self._after(landed[0])
            earlier = [name for name in last if name not in after]
            if len(earlier) == 1:
                self._saw[landed[0]] = earlier[0]

    def _after(self, name: str) -> set[str]:
        found, more = {name}, True
        while more:
            new = {each for each, saw in self._saw.items() if saw in found} - found
            found, more = found | new, bool(new)
        return found

    def before(self, each: Operation) -> list[int] | None:
        """Return the list that an operation read; None if unknown."""
        return self.upto(each.saw[self._key]) if self._key in each.saw else None

    def upto(self, name: str) -> list[int] | None:
        """Return the list that ends with the operation of that name; None if unknown."""
        way = []
        while name not in self._known:
            way.append(name)
            if name not in self._saw or name in way[:-1] or name not in self._numbers:
                self._known[name] = None
                break
            name = self._saw[name]
        for each in reversed(way):
            before = self._known[self._saw[each]] if each in self._saw else None
            self._known[each] = None if before is None else [*before, self._numbers[each]]
        return self._known[way[0]] if way else self._known[name]
