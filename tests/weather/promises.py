"""The table of docs/guarantees.md: each fault, what is safe, for how long nobody committed, and what is to be done.

python -m tests.weather.promises      writes it from measured.json (`tests.weather.night --measured`)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .faults import KINDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
MEASURED = Path(__file__).with_name("measured.json")
_BLOCK = re.compile(r"(?<=<!-- weather -->\n<!-- generated -->\n).*?(?=<!-- end -->)", re.DOTALL)
_ALL = "everything"
_NOTHING = "nothing"

# Fault -> (what it is, what is safe, what the operator does)
SAID: dict[str, tuple[str, str, str]] = {
    "partition": ("a writer and a server do not reach each other", _ALL, _NOTHING),
    "one-way partition": ("requests arrive and answers do not, or the other way round", _ALL, _NOTHING),
    "isolated host": ("a host of writers or a server reaches nobody", _ALL, _NOTHING),
    "writer killed": ("`kill -9`", "everything acknowledged; the rest is rolled back", "start it again"),
    "writer paused": ("stopped, perhaps while it holds the lock", _ALL, _NOTHING),
    "server killed": ("of the lock, the store or a coordinator, or one of several", _ALL, "start it again"),
    "server paused": ("it takes connections and answers nobody", _ALL, _NOTHING),
    "server forgets": (
        "a lock's servers come back with empty disks",
        "everything: tokens begin a new generation",
        _NOTHING,
    ),
    "clock step": (
        "a writer's wall clock, by seconds to a year",
        _ALL,
        "set it right; times of commits are read from it",
    ),
    "disk full": ("of the table or of the store", _ALL, "make room"),
    "disk read-only": ("a local table's", _ALL, "mount it writable"),
    "no descriptors": ("a writer may open no more files", _ALL, "raise its limit"),
    "no memory": (
        "a writer gets no more",
        "everything; an outcome may be told as unknown",
        "give it more, or start it again",
    ),
    "slow answers": ("up to 2 s each", _ALL, _NOTHING),
    "lost answers": ("the request was carried out", "everything; an outcome may be told as unknown", _NOTHING),
    "errors afterwards": (
        "500 for a request that was carried out",
        "everything; an outcome may be told as unknown",
        _NOTHING,
    ),
    "errors": ("500 for one that was not", _ALL, _NOTHING),
    "throttled": ("503 SlowDown, or no capacity", _ALL, "raise the limit"),
    "expired credentials": ("403", _ALL, "renew them"),
}


# What nights have found, by words of the finding, and the test that has held it since.
MENDED = {
    "calling the DescribeTable operation": "test_a_server_that_is_busy_while_a_table_is_made_is_told_as_any_other",
}


def table(measured: Mapping[str, Any]) -> str:
    """Return what was done, and the tables by fault and by lock."""
    told = measured["told"]
    done = f"{measured['commits']:,} commits in {measured['hours']:g} h, {_told(measured['findings'])}"
    lines = [f"{done}; {told.get('unknown', 0)} of {sum(told.values()):,} operations had an unknown outcome.", ""]
    lines += ["| Fault | Safe | Nobody commits, p50, p99 | The operator |", "|---|---|---|---|"]
    for kind, (what, safe, does) in SAID.items():
        lines.append(f"| {kind}: {what} | {safe} | {_silence(measured['faults'].get(kind))} | {does} |")
    lines += ["", "| Lock | Next commit after all has healed, p50, p99, longest of |", "|---|---|"]
    for lock, found in measured["locks"].items():
        after = found["until_the_next_commit_s"]
        lines.append(f"| {lock} | {after['p50']:g} s, {after['p99']:g} s, {after['max']:g} s of {after['n']} |")
    return "\n".join(lines) + "\n"


def _told(findings: Sequence[str]) -> str:
    if not findings:
        return "no findings"
    return f"{len(findings)} finding{'s' * (len(findings) > 1)}, mended since"


def _silence(found: Mapping[str, Any] | None) -> str:
    silence = found["longest_without_a_commit_s"] if found else {"n": 0}
    return (
        f"{silence['p50']:g} s, {silence['p99']:g} s ({silence['n']} times)" if silence["n"] else "not measured alone"
    )


def main() -> None:
    """Write the tables into the document."""
    text = DOCUMENT.read_text()
    made = _BLOCK.sub(lambda _: table(json.loads(MEASURED.read_text())), text)
    DOCUMENT.write_text(made)


def written() -> str:
    """Return what the document has."""
    found = _BLOCK.search(DOCUMENT.read_text())
    return found[0] if found else ""


assert {*SAID, "nothing"} == set(KINDS)

if __name__ == "__main__":
    main()
