"""The real code of occ/ and locks/ through a fixed set of adverse schedules; docs/simulation.md tells what is in them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from ..thorough import THOROUGH
from .faults import FAULTS, faults_of
from .graph import write_skews
from .hunt import DOCUMENT, MUTANTS, broken, hunt, print_into
from .install import simulated
from .shape import LOCKS, MIXES, SHARED_LOCK, Shape
from .soak import Tally, shrunk, story, tally, with_keepers
from .world import World, run

BLOCKS, SEEDS, STREAM_SEEDS = 14 if THOROUGH else 1, 300, 140 if THOROUGH else 50
NEIGHBOUR_SEEDS = 400 if THOROUGH else 100
COORDINATOR_SEEDS = 1000 if THOROUGH else 100
SEVERAL_SEEDS = 2000 if THOROUGH else 100
# Each of these has to be struck by every fault that can strike it. `soak` tells of all the others too (few leases live
# long enough to be renewed).
STEPS = (
    "put begin", "put commit", "put completed", "put heartbeat", "replace heartbeat", "put marker", "put data",
    "lock grant", "lock release",
)  # fmt: skip


@functools.cache
def block(number: int) -> Tally:
    return tally(number * SEEDS, SEEDS)


@pytest.mark.parametrize("number", range(BLOCKS))
def test_no_schedule_breaks_a_promise(number: int):
    failed = block(number).failed
    assert not failed, f"{failed[0][1]}\n\n{story(shrunk(failed[0][0], seeds=50, seconds=20))}"


@pytest.mark.parametrize("seed", [77000611, 77000645])
def test_a_compaction_whose_events_a_restore_took_back_ends(seed: int):
    """It was told that a file is gone, and stayed pending for ever, with its file groups."""
    run(with_keepers(Shape.of(seed).streaming()))


def test_what_replaces_file_groups_and_has_log_files_is_covered():
    """`judge_covered` has something to judge."""
    shapes = [Shape.of(seed).appending() for seed in (10, 13, 45, 81)]
    with simulated():
        assert sum(run(each).also["commits that another covers"] for each in shapes) > 1


@functools.cache
def bank_block() -> Tally:
    return tally(0, SEVERAL_SEEDS, several=True)


def test_no_schedule_over_several_tables_breaks_a_promise():
    failed = bank_block().failed
    assert not failed, f"{failed[0][1]}\n\n{story(shrunk(failed[0][0], seeds=50, seconds=20))}"
    found = bank_block()
    assert (
        min(found.also[what] for what in ("prepared", "over several tables", "cuts read", "carried while prepared")) > 0
    )
    assert found.also["prepared"] > found.also["over several tables"], "none was prepared and then lost"
    assert found.outcomes["committed"] > SEVERAL_SEEDS


@functools.cache
def stream_block() -> Tally:
    return tally(0, STREAM_SEEDS, streams=True)


def test_streams_are_the_serial_merge_of_all_events_in_every_schedule():
    failed = stream_block().failed
    assert not failed, f"{failed[0][1]}\n\n{story(shrunk(failed[0][0], seeds=50, seconds=20))}"


def test_what_can_happen_to_streams_has_happened():
    also, outcomes = stream_block().also, stream_block().outcomes
    happened = ("power cuts", "archivals", "compactions", "streams declared meanwhile", "streams overwritten")
    assert all(also[each] for each in happened)
    assert {"committed", "conflict", "lost", "rolled back", "cut off", "failed"} <= set(outcomes)


@functools.cache
def block_coordinated() -> Tally:
    return tally(0, COORDINATOR_SEEDS, coordinated=True)


def test_no_schedule_with_coordinators_breaks_a_promise():
    failed = block_coordinated().failed
    assert not failed, f"{failed[0][1]}\n\n{story(shrunk(failed[0][0], seeds=50, seconds=20))}"


def test_what_can_happen_with_coordinators_has_happened():
    also, struck = block_coordinated().also, block_coordinated().struck
    assert all(also[f"answers to ask {each}"] > COORDINATOR_SEEDS for each in ("begin", "commit"))
    assert also["begins that others made"]
    assert also["commits that others made"]
    for fault in ("lose request", "lose reply", "late", "twice", "refuse", "slow answer", "stop"):
        assert struck[fault, "ask begin"] + struck[fault, "ask commit"], fault


@functools.cache
def block_beside() -> Tally:
    return tally(0, NEIGHBOUR_SEEDS, neighbours=True)


def test_no_schedule_beside_another_engine_breaks_a_promise():
    failed = block_beside().failed
    assert not failed, f"{failed[0][1]}\n\n{story(shrunk(failed[0][0], seeds=50, seconds=20))}"


def test_what_can_happen_beside_another_engine_has_happened():
    also, outcomes = block_beside().also, block_beside().outcomes
    assert also["commits of another engine"] > NEIGHBOUR_SEEDS
    assert also["schedules whose lock did not exclude"] < NEIGHBOUR_SEEDS / 10, "the rest is judged"
    assert {"committed", "conflict", "lost", "rolled back", "cut off", "failed", "unknown"} <= set(outcomes)


def test_every_fault_has_struck_every_step_of_the_protocol():
    struck, outcomes, also = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for number in range(BLOCKS):
        struck += block(number).struck
        outcomes += block(number).outcomes
        also += block(number).also

    def missed() -> list[tuple[str, str]]:
        return [(fault, step) for step in STEPS for fault in faults_of(step) if not struck[fault, step]]

    # The rarest strike now and then in these schedules, so perhaps not at all: those are aimed at their step.
    with simulated():
        for fault, step in missed():
            aimed = (replace(Shape.of(seed), faults={f"{fault} at {step}": 0.3}) for seed in range(50))
            struck += next((s for s in (run(each).faults.struck for each in aimed) if s[fault, step]), Counter())
    assert not missed()
    assert {fault for fault, _ in struck} == set(FAULTS)
    assert all(
        also[each] for each in ("power cuts", "names lost in them", "archivals", "compactions", "tables with buckets")
    )
    told = {"committed", "conflict", "lost", "aborted", "rolled back", "unknown", "no lock", "cut off", "failed"}
    assert told <= set(outcomes)
    assert outcomes["committed"] > sum(outcomes.values()) / 2, "most schedules get something done"


def test_every_kind_of_work_and_every_setting_occurs():
    shapes = [Shape.of(seed) for seed in range(SEEDS)]
    rare = [Shape.of(seed) for seed in range(10 * SEEDS)]  # some come once in a few hundred schedules
    assert {each.mix for s in rare for each in (s, s.coordinated())} == set(MIXES)
    assert {s.lock for s in shapes} == {"none://", *LOCKS, SHARED_LOCK}
    assert {s.strangers for s in shapes} == {0, 1, 2}
    assert {s.isolation for s in shapes} == {"snapshot", "write-serializable", "serializable"}
    assert {s.threads for s in shapes} == {1, 2}
    assert {s.admin for s in shapes} == {False, True}
    assert {s.unique for s in shapes if s.mix == "keys"} == {False, True}
    assert {s.keepers for s in shapes} == {0, 1, 2}
    assert {s.readers for s in shapes} == {0, 1}
    assert {s.power_cut for s in shapes} == {False, True}
    assert {s.bucket_count for s in shapes} == {None, 1, 2}
    assert {s.by_events for s in shapes if s.appends} == {False, True}
    assert {s.streams for s in shapes} >= {0, 1, 2}
    assert {s.streaming().streams for s in shapes} == {1, 2, 3, 4, 5, 6, 7}


SEEDS_WITH_FAULTS = [seed for seed in range(200) if Shape.of(seed).faults][: 12 if THOROUGH else 5]


def test_a_seed_is_always_the_same_schedule():
    """Also in another process, where sets of strings have another order: or no failure could be looked at."""
    here = "".join(story(Shape.of(seed)) for seed in SEEDS_WITH_FAULTS)
    assert here == "".join(story(Shape.of(seed)) for seed in SEEDS_WITH_FAULTS)
    program = (
        "from tests.simulation.test_simulation import *\n"
        "sys.stdout.write(''.join(story(Shape.of(seed)) for seed in SEEDS_WITH_FAULTS))"
    )
    for order in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program], cwd=Path(__file__).parents[2], env=os.environ | {"PYTHONHASHSEED": order},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert there.stdout == here


def skews(isolation: str) -> int:
    shape = Shape(0, writers=3, transactions=2, mix="skew", isolation=isolation)
    worlds = [run(replace(shape, seed=seed)) for seed in range(40)]
    return sum(len(write_skews(w.attempts, [look.state for look in w.looks])) for w in worlds)


def test_write_skew_happens_under_snapshot_and_not_under_serializable():
    assert skews("snapshot") > 0
    assert skews("serializable") == 0


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_what_a_mutant_replaces_is_there(name: str):
    """One that patches a name which has moved breaks nothing, and its hunt would show nothing."""
    with broken(name):
        pass


NOTICED_SOON = (
    *("candidates_are_not_compared", "the_lock_alone_is_trusted", "published_before_the_log", "reads_are_not_compared"),
    *("events_are_merged_by_requested_time", "nothing_is_imported"),
)


@pytest.mark.parametrize("name", NOTICED_SOON)
def test_a_broken_protocol_is_noticed(name: str):
    """A few of them; `make mutants` hunts all."""
    _, _, caught = hunt(name, seconds=inf, schedules=100)
    assert caught, MUTANTS[name].why


def test_a_failure_is_shrunk_and_told_as_a_timeline():
    with broken("candidates_are_not_compared"), simulated():
        shape = next(s for s in map(Shape.of, range(20)) if s.faults and s.writers == 3 and _fails(s))
        small = shrunk(shape, seeds=20, seconds=inf)
        told = story(small)
    assert small.writers == 2
    assert not small.faults
    assert "lost update" in told
    assert "put commit" in told


def _fails(shape: Shape) -> bool:
    try:
        World(shape).run()
    except AssertionError:
        return True
    return False


def test_the_document_names_every_mutant():
    text = DOCUMENT.read_text()
    assert not [name for name in MUTANTS if f"`{name}`" not in text]


def test_the_hunt_prints_its_table_into_the_document(tmp_path: Path):
    copy = tmp_path / "mutants.md"
    copy.write_text(DOCUMENT.read_text())
    print_into(copy, "| `one` | 1 | 0.1 |\n")
    found = copy.read_text()
    assert "| `one` | 1 | 0.1 |\n<!--" in found
    assert "candidates_are_not_compared" not in found
    assert found.startswith(DOCUMENT.read_text().partition("<!--")[0])
    assert found.endswith(DOCUMENT.read_text().rpartition("-->")[2])
