"""Log compactions as no writer makes them, but as readers may find them: a file group of its own for each case."""

from __future__ import annotations

from pathlib import Path

from ..occ.mor import Mor, at, data_block, delete_block, rows

Change = dict[str, int] | list[str]  # rows that are set, or keys that are deleted
# T of a log file, its blocks, and of each the T of the log files that it has merged. What is merged has values that no
# reader could get from the log files themselves, so that it shows which of the two was read.
CASES: dict[str, list[tuple[int, list[tuple[Change, list[int]]]]]] = {
    "another-before-it": [
        (10, [({"k": 10, "x": 10}, [])]),
        (12, [({"k": 12}, [])]),
        (20, [({"k": 90, "x": 90}, [10])]),
    ],
    "another-between": [
        (10, [({"k": 10}, [])]),
        (12, [({"k": 5, "z": 12}, [])]),
        (14, [({"k": 14}, [])]),
        (20, [({"k": 90, "z": 1}, [10, 14])]),
    ],
    "another-after-it": [(10, [({"k": 10}, [])]), (20, [({"k": 90}, [10])]), (22, [({"k": 7}, [])])],
    "a-row-less": [(10, [({"k": 10, "y": 10}, [])]), (20, [({"k": 3}, [10])])],
    "of-what-is-gone": [(20, [({"k": 3}, [5])])],
    "of-one": [
        (10, [({"k": 10, "p": 10}, [])]),
        (12, [({"k": 12, "q": 12}, [])]),
        (20, [({"k": 20, "r": 20}, [10, 12])]),
        (22, [({"k": 22, "s": 22}, [])]),
        (25, [({"k": 2, "u": 25}, [])]),
        (30, [({"k": 30, "t": 30}, [20, 22])]),
    ],
    "of-one-alone": [(10, [({"k": 10, "p": 10}, [])]), (20, [({"r": 20}, [10])]), (30, [({"t": 30}, [20])])],
    "of-one-and-its-own": [(10, [({"k": 10, "p": 10}, [])]), (20, [({"r": 20}, [10])]), (30, [({"t": 30}, [10, 20])])],
    "two-of-the-same": [(10, [({"k": 10, "p": 10}, [])]), (20, [({"r": 20}, [10])]), (30, [({"t": 30}, [10])])],
    "deletes": [
        (10, [({"k": 10, "p": 10}, [])]),
        (12, [(["base"], [])]),
        (20, [({"k": 20}, [10, 12]), (["base", "p"], [10, 12])]),
    ],
    "said-by-its-first-block": [
        (10, [({"k": 10, "p": 10}, [])]),
        (12, [(["base"], [])]),
        (20, [({"k": 20}, [10, 12]), (["base"], [])]),
    ],
    "not-said-by-its-first-block": [
        (10, [({"k": 10, "p": 10}, [])]),
        (20, [(["base"], []), ({"k": 20, "r": 20}, [10])]),
    ],
}


def log_compactions(folder: Path, *, version: int, ordering: str | None) -> Mor:
    """A table with all of them; the keys are those of the case, with its name before them."""
    mor = Mor(folder, version=version, ordering=ordering)
    for number, (name, logs) in enumerate(CASES.items()):
        part, first = f"{number:x}", 100 * (number + 1)
        mor.base(at(first), at(first + 1), part, rows(part, {f"{name} base": 1, f"{name} k": 1}))
        for instant, blocks in logs:
            t, body = at(first + instant), b""
            for change, merged in blocks:
                named = [at(first + each) for each in merged]
                if isinstance(change, dict):
                    values = {f"{name} {key}": value for key, value in change.items()}
                    body += data_block(t, rows(part, values), merged=named)
                else:
                    body += delete_block(t, [f"{name} {key}" for key in change], merged=named)
            mor.log(t, at(first + instant + 1), part, body)
    return mor
