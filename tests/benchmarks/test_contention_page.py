"""docs/contention.md is made of the run that is kept, and of nothing else."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import contention
from lakelatch.bench import Results, read


def test_page_and_pictures_are_those_of_the_kept_run():
    """To renew them: ``python -m benchmarks.contention``."""
    results = read(contention.KEPT)
    assert contention.text(results) == contention.PAGE.read_text()
    drawn = contention.pictures(results)
    assert {path.name: path.read_text() for path in contention.PICTURES.iterdir()} == drawn
    for name, each in drawn.items():
        assert ET.fromstring(each).tag.endswith("svg"), name


def test_the_kept_run_is_small_and_names_no_place_of_the_machine():
    text = (contention.KEPT / "results.jsonl").read_text()
    assert len(text) < 600_000
    assert "/tmp" not in text


OURS, PEER = ("lakelatch default", "lakelatch unique_keys=False"), "delta-rs"


@pytest.fixture
def made(tmp_path: Path):
    """Makes results with all cells that the goals are about, of a kept run that is changed."""

    def make(change) -> Results:
        machine, run = (json.loads(line) for line in (contention.KEPT / "results.jsonl").read_text().splitlines()[:2])
        lines = [machine]
        for scenario, writers in dict.fromkeys((goal.scenario, goal.writers) for goal in contention.GOALS):
            for system in (*OURS, PEER):
                line = run | {"scenario": scenario, "writers": writers, "system": system, "ours": system in OURS}
                line |= {"seconds": 20.0 if system == PEER else 2.0, "operations": 8 * ("each writer" in scenario)}
                line |= {"goodput": 10.0 if system == PEER else 100.0, "aborted": 0, "attempts_per_commit": 1.0}
                line["fairness"] = {"slowest": 9, "fastest": 10, "ratio": 0.9, "each": [9, 10]}
                lines.append(line)
                change(line)
        (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return read(tmp_path)

    return make


def goals(results: Results) -> list[str]:
    return list(contention.goals(results))[2:]


def test_a_goal_that_is_reached_is_told_with_its_figure(made):
    told = goals(made(lambda run: None))
    assert len(told) == len(contention.GOALS)
    assert told[0] == (
        "| appends, 8 by each writer, 16 writers: times as fast as the best peer, until all are done | >= 10 | 10.0 | 10.0 |"
    )
    assert "**" not in "".join(told)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"seconds": 2.5}, "until all are done | >= 10 | **8.0** |"),
        ({"goodput": 99.0}, "times the best peer | >= 10 | **9.9** |"),
        ({"aborted": 1}, "false aborts | <= 0 | **1** |"),
        ({"attempts_per_commit": 1.31}, "attempts for each increment | <= 1.3 | **1.31** |"),
        ({"failed": "the oracle found wrong rows"}, "times the best peer | >= 10 | **no rate** |"),
        ({"fairness": {"slowest": 1, "fastest": 2, "ratio": 0.5}}, "slowest to fastest writer | >= 0.8 | **0.50** |"),
    ],
)
def test_a_goal_that_is_missed_is_bold_for_the_system_that_misses_it(made, change, missed):
    told = goals(made(lambda run: run.update(change) if run["system"] == OURS[0] else None))
    assert any(missed in line for line in told), told
    assert not any(line.endswith("** |") for line in told), told  # the other one's


def test_a_rate_that_falls_with_many_writers_is_bold(made):
    told = goals(made(lambda run: run.update(goodput=79.0) if run["writers"] == 32 else None))
    assert "| appends, 32 writers: of the rate with the best number of writers | >= 0.8 | **0.79** | **0.79** |" in told


def test_what_was_not_measured_is_told_as_that(made):
    told = goals(made(lambda run: run.update(scenario="hot")))
    assert all(line.endswith("| **not measured** | **not measured** |") for line in told)


def test_peers_without_a_rate_are_not_beaten(made):
    told = goals(made(lambda run: run.update(failed="wrong") if run["system"] == PEER else None))
    beaten = [line for line in told if "the best peer" in line and ">= 10 |" in line]
    assert len(beaten) == 4
    assert all(line.endswith("| >= 10 | **0.0** | **0.0** |") for line in beaten), beaten
