"""Operations of the JVM and of ours at the same time on one table with neighbours=hudi, and the rows that may stand then.

    python -m tests.jvm.operations [--kind KIND] [--pair 'OURS beside THEIRS'] [--seconds N] [--seed N] [--skip N]

Of two that were acknowledged the table shows one order or the other; of one that was refused it shows nothing. Both sides
begin from the same rows and have keys of their own, so an order shows where one of them overwrites, drops or restores.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import lakelatch
from lakelatch.hudi.table.record_keys import bucket_ids

from .neighbours import KINDS, Row, Shared
from .readers import ask_jvm

State = dict[str, int]  # the value of each key
OPERATIONS = (
    "upsert", "insert", "delete", "overwrite", "drop partition",
    "compaction", "log compaction", "clustering", "clean", "archival", "savepoint", "restore",
)  # fmt: skip
PLACES = ("same file group", "other file group", "other partition")
# What Hudi says to a writer that lost, or that must not begin now: its scheduler runs it again.
REFUSALS = (
    "Cannot resolve conflicts", "Conflicting writes", "pending restore", "pending table service actions",
    "Not allowed to update the clustering file group",
)  # fmt: skip
# Hudi reads a plan or a file that it has listed, and fails if a rollback or restore has deleted it meanwhile; so it does beside
# another JVM. When a restore of its own has ended it asks for the newest commit, and fails if ours has landed by then.
_VANISHED = re.compile(
    r"FileNotFoundException: File \S+ does not exist|is not the last commit after restoring to savepoint"
)
_TRIES = 20


class Pair(NamedTuple):
    """An operation of ours, one of theirs, and where theirs is, seen from ours."""

    ours: str
    theirs: str
    place: str


def pairs(kind: str) -> list[Pair]:
    """All that a table of this kind can have."""
    logs = ("compaction", "log compaction")
    possible = [each for each in OPERATIONS if "merge-on-read" in kind or each not in logs]
    if "buckets" in kind:
        possible.remove("clustering")
    return [Pair(*each) for each in itertools.product(possible, possible, PLACES)]


class Table:
    """A table of one kind on which pairs run, one after the other."""

    def __init__(self, folder: Path, kind: str, luck: random.Random, **more: Any) -> None:
        self._luck, self._kind, self._value = luck, kind, 0
        self.shared = Shared(folder, start=False, **KINDS[kind], **more)
        self.shared.options["hoodie.compact.inline"] = "false"
        table = self.shared.table
        # Two file groups of partition a, one of b: keys of each side in all of them.
        self._keys = {
            (who, where): [f"{who}{where}{number}" for number in _numbers(f"{who}{where}", where, table)]
            for who in "jp"
            for where in ("a1", "a2", "b1")
        }
        for where in ("a1", "a2", "b1"):
            table.insert([_row(key, 0) for who in "jp" for key in self._keys[who, where]])

    def run(self, pair: Pair) -> str:
        """Run both at once, compare what three readers see with what may stand, and say who was acknowledged."""
        self._value += 1
        table, before = self.shared.table, self._begin()
        kept = table.timeline().commits[-1].requested
        theirs_at = {"same file group": "a1", "other file group": "a2", "other partition": "b1"}[pair.place]
        answers: list[str] = []
        beside = threading.Thread(target=lambda: answers.append(self._theirs(pair.theirs, theirs_at, kept)))
        beside.start()
        time.sleep(self._luck.uniform(0.0, 1.0))  # so that ours meets each step of theirs in some run
        try:
            refused = self._ours(pair.ours, kept)
        finally:
            beside.join()
        (error,) = answers
        vanished = _VANISHED.search(error) is not None
        if error and not vanished and not any(each in error for each in REFUSALS):
            raise AssertionError(f"{pair}: the JVM fails: {error}")
        ours = lambda state: self._after(state, before, pair.ours, "p", "a1")  # noqa: E731
        theirs = lambda state: self._after(state, before, pair.theirs, "j", theirs_at)  # noqa: E731
        # One that fails so does not say whether before its commit or after it.
        possible = [[theirs], []] if vanished else [[] if error else [theirs]]
        steps = [([] if refused else [ours]) + each for each in possible]
        allowed = [_applied(order, before) for each in steps for order in itertools.permutations(each)]
        if error:
            # Its failed attempt may have left a base file, and Hudi's reader takes log files that are completed after that
            # for those of this file: ours would be hidden from it (Hudi 1.2.0) until the attempt is rolled back.
            table.rollback_failed_writes()
        found = self.shared.agreed()
        if found not in allowed:
            raise AssertionError(f"{pair}: {refused=} {error=}\nfound   {found}\nallowed {allowed}")
        return ("ours refused" if refused else "ours landed") + (
            ", theirs failed" if vanished else ", theirs refused" if error else ", theirs landed"
        )

    def _begin(self) -> State:
        """Give each key a value of this run, and return all rows."""
        table = self.shared.table
        rows = [_row(key, self._value * 1000) for keys in self._keys.values() for key in keys]
        table.upsert(rows)
        table.delete_where(f"v < {self._value * 1000}")
        return {each["id"]: each["v"] for each in rows}

    def _changed(self, operation: str, who: str, where: str) -> list[Row]:
        """The rows that an operation brings."""
        value = self._value * 1000 + (1 if who == "p" else 2)
        if operation == "insert":
            return [_row(f"{who}{where}n{self._value}", value)]
        return [_row(key, value) for key in self._keys[who, where][:2]]

    def _after(self, state: State, before: State, operation: str, who: str, where: str) -> State:
        """The rows after an operation."""
        brings = {each["id"]: each["v"] for each in self._changed(operation, who, where)}
        others = {key: value for key, value in state.items() if _part(key) != where[0]}
        return {
            "upsert": state | brings,
            "insert": state | brings,
            "delete": {key: value for key, value in state.items() if key not in brings},
            "overwrite": others | brings,
            "drop partition": others,
            "restore": before,
        }.get(operation, state)

    def _ours(self, operation: str, kept: str) -> str:
        """Run it until it lands; why it does not."""
        table, rows = self.shared.table, self._changed(operation, "p", "a1")
        does: dict[str, Callable[[], object]] = {
            "upsert": lambda: table.upsert(rows),
            "insert": lambda: table.insert(rows),
            "delete": lambda: table.delete([{"id": each["id"], "part": each["part"]} for each in rows]),
            "overwrite": lambda: table.overwrite(rows),
            "drop partition": lambda: table.delete_all(partition={"part": "a"}),
            "compaction": table.compact,
            "log compaction": table.compact_logs,
            "clustering": lambda: table.cluster(small_bytes=1 << 20, target_bytes=2 << 20),
            "clean": lambda: table.clean(retain_commits=1),
            "archival": lambda: table.archive(keep_min=4, keep_max=5),
            "savepoint": lambda: table.savepoint(kept),
            "restore": lambda: table.restore(kept),
        }
        error: lakelatch.LakeLatchError | None = None
        for _ in range(_TRIES):
            try:
                does[operation]()
            except (lakelatch.ConflictError, lakelatch.CommitError) as e:
                error = e
            except lakelatch.InputError as e:
                if "has a savepoint already" not in str(e):
                    raise
                return str(e)
            else:
                return ""
        return str(error)

    def _theirs(self, operation: str, where: str, kept: str) -> str:
        """Ask the JVM for it once; its error."""
        rows, more = self._changed(operation, "j", where), dict[str, str]()
        if operation in ("upsert", "insert", "delete", "overwrite", "drop partition"):
            kind = {"overwrite": "insert_overwrite", "drop partition": "delete_partition"}.get(operation, operation)
            more["hoodie.datasource.write.operation"] = kind
            if operation == "drop partition":
                rows, more["hoodie.datasource.write.partitions.to.delete"] = [], f"part={where[0]}"
            request = {"kind": "upsert", "rows": rows}
        else:
            request = {"kind": "service", "service": operation, "instant": kept, "name": self.shared.table.config.name}
            request["schema"] = self.shared.table.config.create_schema
        request |= {"path": str(self.shared.path), "options": self.shared.options | more}
        for _ in range(_TRIES):
            (answer,) = ask_jvm([request], self.shared.folder)
            if operation != "restore" or not self._left_a_restore():
                break
            # It has failed midway, and nobody may write until somebody has run it again (Hudi goes on with its plan).
            request["again"] = True
            causes = re.findall(r"^(?:Caused by: |: )(.*)$", answer.get("error", ""), re.MULTILINE)
            print(f"the JVM's restore is run again after {' / '.join(causes)}", flush=True)
        return answer.get("error", "")

    def _left_a_restore(self) -> bool:
        """Return whether a restore of the JVM is pending; one of ours has a transaction in the log."""
        timeline = self.shared.path / ".hoodie" / "timeline"
        begun = {each.name.partition(".")[0] for each in timeline.glob("*.restore.requested")}
        ended = {each.name.partition("_")[0] for each in timeline.glob("*_*.restore")}
        return not begun - ended <= self.shared.table.session.log.catch_up().open.keys()


def _applied(steps: tuple[Callable[[State], State], ...], state: State) -> State:
    for step in steps:
        state = step(state)
    return state


def _numbers(stem: str, where: str, table: lakelatch.Table) -> Iterator[int]:
    """Three numbers whose keys fall into the bucket of that place; any three without buckets."""
    import pyarrow as pa

    buckets = table.settings.bucket_count
    fitting = (
        number
        for number in itertools.count()
        if not buckets or bucket_ids([pa.array([f"{stem}{number}"])], buckets)[0] == int(where[1]) - 1
    )
    return itertools.islice(fitting, 3)


def _part(key: str) -> str:
    return key[1]


def _row(key: str, value: int) -> Row:
    return {"id": key, "part": _part(key), "v": value}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="default: all")
    parser.add_argument("--seconds", type=float, default=600.0, help="no further pair begins after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--skip", type=int, default=0, help="so many of the first, which another run with this seed has made"
    )
    parser.add_argument("--pair", help="as 'upsert beside insert': only these")
    given = parser.parse_args()
    luck = random.Random(given.seed)
    asked = [(kind, pair) for kind in given.kind or KINDS for pair in pairs(kind)]
    if given.pair:
        asked = [each for each in asked if f"{each[1].ours} beside {each[1].theirs}" == given.pair] * 20
    luck.shuffle(asked)
    asked = asked[given.skip :]
    told, failed, until = Counter[str](), 0, time.monotonic() + given.seconds
    tables: dict[str, Table] = {}
    with tempfile.TemporaryDirectory(prefix="lakelatch-operations-", ignore_cleanup_errors=True) as folder:
        for number, (kind, pair) in enumerate(asked):
            if time.monotonic() > until:
                break
            if kind not in tables:
                (place := Path(folder) / f"{number}").mkdir()
                tables[kind] = Table(place, kind, luck)
            try:
                result = tables[kind].run(pair)
            except (AssertionError, lakelatch.LakeLatchError) as e:
                failed += 1
                print(f"FAILED {kind}: {pair}: {type(e).__name__}: {e}", flush=True)
                with suppress(lakelatch.LakeLatchError):
                    tables.pop(kind).shared.table.close()
                continue
            told[result] += 1
            print(f"{kind}: {pair.ours} beside {pair.theirs}, {pair.place}: {result}", flush=True)
        for each in tables.values():
            each.shared.sound()
            each.shared.table.close()
    print(dict(told), f"{failed} failed")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
