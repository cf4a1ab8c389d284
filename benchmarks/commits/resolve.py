"""Resolving one commit against many candidates: no time may grow with the square of anything.

python -m benchmarks.commits.resolve [--candidates 10000] [--groups 100000] [--runs 7]
"""

from __future__ import annotations

import argparse
import random
import time

from lakelatch.conflict import Party, ReadSet, Scan, WriteSet, resolve
from lakelatch.conflict.predicate import ColumnStatistics, FileStatistics, where_of
from lakelatch.conflict.write_set import EVERYWHERE, Region
from lakelatch.hudi.files import FileGroupId

from .._report import machine, show

PARTITIONS = 100


def groups(count: int, start: int) -> list[FileGroupId]:
    return [FileGroupId(f"part={n % PARTITIONS}", f"{n:08d}-{n:027d}-0") for n in range(start, start + count)]


def candidates(count: int, total: int, *, pending: bool = False) -> list[Party]:
    """None of them is in the way, so that all have to be looked at. Log and timeline give them as values like these."""
    each = total // count
    known = FileStatistics(10, {"x": ColumnStatistics(100, 200, 0)})
    made = []
    for n in range(count):
        ids = frozenset(groups(each, 10_000_000 + n * each))
        writes = WriteSet(ids, statistics=dict.fromkeys(ids, known))
        made.append(Party(f"{n:017d}", "" if pending else f"{n:017d}", "UPSERT", "other", writes))
    return made


def of_a_stream(count: int, n: int) -> Party:
    """A commit that appended events to ``count`` file groups, which ours appends to as well."""
    ids = frozenset(groups(count, n * count))
    writes = WriteSet(ids, appended=frozenset(groups(count, n * count)), streamed=True)
    return Party(f"{n:017d}", f"{n:017d}", "UPSERT", "other", writes)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--candidates", type=int, default=10_000)
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--runs", type=int, default=7)
    given = options.parse_args()
    show("machine", machine())
    random.seed(1)
    landed = candidates(given.candidates, given.groups)
    pending = candidates(given.candidates, given.groups, pending=True)
    small, large = frozenset(groups(10, 0)), frozenset(groups(given.groups, 0))
    low = Scan(EVERYWHERE, where_of([("x", "<", 50)]), small)
    elsewhere = Region(frozenset({"part=other"}))
    each = given.groups // given.candidates
    cases = {
        "10 own file groups": (small, ReadSet(), landed, {}),
        "as many own file groups as theirs": (large, ReadSet(), landed, {}),
        "the same, all pending": (large, ReadSet(), pending, {"by": "prefer-writer"}),
        "bucket index": (small, ReadSet(), landed, {"by": "bucket", "bucketed": True}),
        "bucket index, as many own as theirs": (large, ReadSet(), landed, {"by": "bucket", "bucketed": True}),
        "a condition on another partition": (small, ReadSet(elsewhere), landed, {}),
        "serializable, statistics of every file": (small, ReadSet(scans=(low,)), landed, {"isolation": "serializable"}),
    }
    mine = {name: WriteSet(own) for name, (own, *_) in cases.items()}
    for name, others in (
        ("streams: one commit of as many file groups, all shared", [of_a_stream(given.groups, 0)]),
        ("streams: all candidates, some shared with each", [of_a_stream(each, n) for n in range(given.candidates)]),
    ):
        cases[name] = (large, ReadSet(scans=()), others, {"bucketed": True})
        mine[name] = WriteSet(large, appended=large, streamed=True)
    for name, (_own, reads, others, how) in cases.items():
        ours = Party("9" * 17, "", "UPSERT", "me", mine[name])
        took = []
        for _ in range(given.runs):
            began = time.process_time()  # it computes and waits for nothing, so a busy machine must not count
            verdict = resolve(ours, reads, others, **how)
            took.append(time.process_time() - began)
            assert verdict.lost is None
        show(
            name,
            {
                "median_cpu_ms": round(sorted(took)[len(took) // 2] * 1000, 2),
                "worst_cpu_ms": round(max(took) * 1000, 2),
            },
        )


if __name__ == "__main__":
    main()
