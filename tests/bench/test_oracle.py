"""The oracle, with real processes: what is right passes, and each way of being wrong is caught and prints no rate."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.bench import oracle, rows
from lakelatch.bench.operations import ABORTED, DONE, UNKNOWN, Operation, read_operations
from lakelatch.bench.scenario import of
from lakelatch.bench.systems import load
from lakelatch.bench.worker import LockWatch, Writer, run_writer

from ..thorough import some


def facts(work: str, **more):
    return {
        "about": work,
        "partitions": 0,
        "keys": 6,
        "roles": [{"name": "writer", "work": work, "pick": "own"}],
        **more,
    }


def in_threads(folder: Path, system: str, work: str, *, operations: int = 5, keys: int = 6) -> list[oracle.Fault]:
    """Two writers as a worker has them, in this process; what the oracle finds."""
    scenario = of("own", facts(work, keys=keys))
    (folder / "cells").write_bytes(bytes(64))
    job = {
        "system": system, "settings": {}, "tries": 1, "place": str(folder / "t"), "folder": str(folder), "partitions": 2,
        "scenario": asdict(scenario), "seconds": 0, "operations": operations, "seed": "1", "generation": 0, "first": 1,
    }  # fmt: skip
    adapter = load(system)({})
    first = rows.first_rows(keys, 2, 0)
    adapter.create(job["place"], rows.widened(first) if scenario.wide else first)
    crashes: list[BaseException] = []
    writers = [Writer(job, number, scenario.roles[0], LockWatch()) for number in range(2)]
    threads = [threading.Thread(target=run_writer, args=(writer, time.monotonic(), crashes)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not crashes
    done = read_operations(folder.glob("writer-*.jsonl"), start=0.0)
    assert len(done) == 2 * operations
    final = adapter.rows(job["place"])
    return oracle.judge(first, done, rows.narrowed(final) if scenario.wide else final)


@pytest.mark.parametrize("work", ["append", "replace", "upsert", "increment", "transfer", "event"])
def test_what_is_right_passes(tmp_path, faulty, work):
    assert in_threads(tmp_path, f"{faulty}:Right", work) == []


@pytest.mark.parametrize(
    ("system", "work", "kind"),
    [
        ("Loses", "append", "lost"),
        ("Loses", "replace", "lost"),
        ("Loses", "upsert", "lost"),
        ("Loses", "increment", "lost"),
        ("Loses", "transfer", "lost"),
        ("Doubles", "append", "doubled"),
        ("Invents", "append", "invented"),
        ("Invents", "increment", "invented"),
        ("Tears", "append", "torn"),
        ("Tears", "upsert", "torn"),
        ("AbortsButWrites", "append", "invented"),
        ("AbortsButWrites", "increment", "invented"),
        ("ReadsStale", "increment", "lost"),
        ("Loses", "event", "lost"),
        ("LastComesWins", "event", "lost"),
        ("AbortsButWrites", "event", "invented"),
    ],
)
def test_what_is_wrong_is_caught(tmp_path, faulty, system, work, kind):
    # Of rows that are written again and again only the last write tells whether one was lost.
    operations = 20 if system == "LastComesWins" else 3 if work in ("replace", "upsert", "event") else 5
    keys = 40 if system == "LastComesWins" else 2 if work == "transfer" else 1
    found = in_threads(tmp_path, f"{faulty}:{system}", work, operations=operations, keys=keys)
    assert kind in {each.kind for each in found}, found


def test_a_wrong_run_has_no_rate_and_a_right_one_beside_it_has(lab, faulty):
    right, wrong = lab(facts=facts("append"), peers=[f"{faulty}:Right", f"{faulty}:Loses"], ours=False).runs
    assert right["done"] == 10
    assert right["goodput"] > 0
    assert "the oracle found wrong rows: 2 lost" in wrong["failed"]
    assert "goodput" not in wrong


def test_two_holders_of_one_lock_are_caught(lab, faulty):
    both = {"about": "hold", "roles": [{"name": "holder", "work": "hold", "think_s": 0.002}]}
    right, wrong = lab(facts=both, peers=[f"{faulty}:Right", f"{faulty}:LocksNobody"], ours=False, operations=100).runs
    assert right["done"] == 200
    assert "two held the lock at the same time" in wrong["failed"]


def test_a_crashed_writer_is_told_and_nothing_hangs(lab, faulty):
    (run,) = lab(facts=facts("append"), peers=[f"{faulty}:Crashes"], ours=False).runs
    assert "ended with code 7 before its work was done" in run["failed"]


def test_a_writer_that_only_fails_gives_up_and_says_why(lab, faulty):
    (run,) = lab(facts=facts("append"), peers=[f"{faulty}:Refuses"], ours=False, operations=100).runs
    assert "ValueError: the disk is | full <b>" in run["failed"]


def test_a_table_that_cannot_be_made_is_a_row_without_a_rate_and_others_go_on(lab, faulty):
    broken, right = lab(facts=facts("append"), peers=[f"{faulty}:CannotBeMade", f"{faulty}:Right"], ours=False).runs
    assert broken["failed"] == "OSError: no such | place"
    assert right["done"] == 10


# --- histories in memory ---------------------------------------------------------------------------------------------


def made(name: str, work: str, at: float, outcome: str = DONE, **more) -> Operation:
    return Operation(name, int(name[1]), "r", work, at, at, at + 1, outcome=outcome, **more)


def appended(name: str, at: float, outcome: str = DONE, value: int = 3) -> Operation:
    return made(name, "append", at, outcome, parts=("p0",), rows=2, value=value)


def rows_of(*operations: Operation):
    keys = [(f"a-{o.name}-{n}", o.parts[0], o.value, o.name) for o in operations for n in range(o.rows)]
    return pa.table([list(column) for column in zip(*keys, strict=True)], schema=rows.SCHEMA)


FIRST = rows.first_rows(0, 1, 0)


def faults(operations, *there):
    final = rows_of(*there) if there else FIRST.slice(0, 0)
    return [f.kind for f in oracle.judge(FIRST, operations, pa.concat_tables([FIRST, final]))]


def test_of_an_operation_whose_writer_was_killed_all_or_nothing_may_be_there():
    killed = appended("w1-1", 0, UNKNOWN)
    assert faults([killed]) == []
    assert faults([killed], killed) == []


def test_a_deleted_row_may_stay_only_if_it_came_at_the_same_time_or_later():
    delete = made("w0-3", "delete", 5, value=3)
    before, beside, after, other = (
        appended("w1-1", 1), appended("w1-2", 5.5), appended("w1-3", 7), appended("w1-4", 1, value=2),
    )  # fmt: skip
    assert faults([before, beside, after, other, delete], after, other) == []
    assert faults([before, beside, after, other, delete], beside, after, other) == []
    assert faults([before, delete], before) == ["invented"]
    assert faults([after, delete]) == ["lost"]
    assert faults([other, delete]) == ["lost"]
    assert faults([before, made("w0-3", "delete", 5, ABORTED, value=3)]) == ["lost"]


def test_rows_that_nobody_writes_must_stay_and_be_as_they_were():
    assert [f.kind for f in oracle.judge(FIRST, [], FIRST.slice(0, 0))] == ["lost"]
    changed = rows.rows_of(["first-0"], ["p0"], [1], "first")
    assert [f.kind for f in oracle.judge(FIRST, [], changed)] == ["invented"]
    strange = rows.rows_of(["first-0", "é🙂%{}"], ["p0", "p0"], [0, 0], "first")
    assert [f.kind for f in oracle.judge(FIRST, [], strange)] == ["invented"]


@pytest.mark.parametrize("seed", some(range(200), 50))
def test_counting_in_any_order_is_right_and_any_lost_increment_is_found(seed):
    """Against a model: a counter that some writers increase, one of them perhaps killed, and then one increment taken out."""
    chance = random.Random(seed)
    first = rows.first_rows(1, 1, 0)
    value, by, operations = 0, rows.FIRST, []
    count = chance.randrange(1, 12)
    killed = chance.choice([None, *range(count)])
    lost = chance.choice([None, *range(count)])
    for number in range(count):
        name = f"w{chance.randrange(3)}-{number}"
        operation = made(name, "increment", number, keys=("k-0",), saw={"k-0": by}, parts=("p0",), rows=1)
        if number == killed:
            operation.outcome, operation.saw = UNKNOWN, {}
            lands = chance.random() < 0.5
        else:
            lands = number != lost
        operations.append(operation)
        if lands:
            value, by = value + 1, name
    final = rows.rows_of(["first-0", "k-0"], ["p0", "p0"], [0, value], "first")
    final = final.set_column(3, "by", [["first", by]])
    found = oracle.judge(first, operations, final)
    assert bool(found) == (lost is not None and lost != killed), found


@pytest.mark.parametrize("seed", some(range(200), 50))
def test_events_in_any_order_are_right_and_any_other_value_in_a_row_is_found(seed):
    """Against a model: each stream's newest event of each row, some writers killed, and then one place that is wrong."""
    chance = random.Random(seed)
    first = rows.first_rows(3, 1, 0)
    wide = {key: {} for key in ("first-0", "k-0", "k-1", "k-2")}
    operations = []
    for number in range(chance.randrange(1, 15)):
        writer = chance.randrange(20)
        keys = tuple(sorted(chance.sample(["k-0", "k-1", "k-2"], chance.randrange(1, 4))))
        outcome = chance.choice([DONE, DONE, UNKNOWN, ABORTED])
        at = chance.randrange(-9, 9) * 1000 + number
        op = made(
            f"w{writer % 10}-{number}", "event", number, outcome, keys=keys, parts=("p0",), rows=len(keys), value=at
        )
        op.writer = writer
        operations.append(op)
        if outcome == DONE or (outcome == UNKNOWN and chance.random() < 0.5):
            for key in keys:
                now = wide[key].get(rows.stream_of(writer))
                if now is None or now[0] < at:
                    wide[key][rows.stream_of(writer)] = (at, op.name)

    def final():
        facts = [
            {"id": key, "part": "p0"}
            | {
                name: value
                for stream, pair in streams.items()
                for name, value in zip(rows.stream_columns(stream), pair, strict=True)
            }
            for key, streams in wide.items()
        ]
        return rows.narrowed(pa.Table.from_pylist(facts, schema=rows.WIDE))

    assert oracle.judge(first, operations, final()) == []
    key, stream = chance.choice(["k-0", "k-1", "k-2"]), chance.randrange(rows.STREAMS)
    there = wide[key].get(stream)
    wide[key][stream] = (10**9, "w9-999") if there is None or chance.random() < 0.5 else (there[0], "w9-999")
    assert oracle.judge(first, operations, final())
