"""The report of kept results: one page that needs nothing else, whatever stands in it, and says what the figures say."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from lakelatch.bench import read
from lakelatch.bench.operations import ABORTED, DONE, Hold, Operation, Recorder, Try, read_operations
from lakelatch.bench.report import advise, page, write
from lakelatch.bench.report.pictures import lanes, ticks, window
from lakelatch.bench.results import figures, percentile
from lakelatch.errors import InputError

from ..thorough import some

ODD = "lake<script>alert(1)</script> 100% {x} | 🙂"


def history(writers: int, count: int, seed: int = 1, *, locked: bool = True) -> list[Operation]:
    """Writers that go on one after another, of whom some lose against the one before."""
    chance, found, before = random.Random(seed), [], ""
    for number in range(count):
        writer, at = number % writers, 0.01 * number
        lost = number > 0 and chance.random() < 0.2
        tries = [Try(at, at + 0.004, "both changed | the same row", before)] if lost else []
        tries.append(Try(at + 0.004 * lost, at + 0.009))
        holds = [Hold(at + 0.001, at + 0.003, at + 0.008)] if locked else []
        found.append(
            Operation(
                f"w{writer}-{number}", writer, "r", "append", at, at, at + 0.009, rows=10, outcome=DONE,
                commit=f"T{number}", tries=tries, holds=holds,
            )
        )  # fmt: skip
        before = f"T{number}"
    return found


def keep(folder: Path, systems: dict[str, float], *, writers=(1, 4), rounds: int = 2, **more) -> Path:
    """A folder of results, of which the rates are given by system."""
    folder.mkdir()
    plan = {"scenarios": ["s"], "contenders": list(systems), "writers": list(writers), "seconds": 1, "rounds": rounds,
            "operations": 0, "place": "/x|y", "seed": 0}  # fmt: skip
    lines = [
        {
            "what": "machine",
            "cores": 2,
            "memory_mib": 1,
            "system": "L",
            "python": "3",
            "load": 0.1,
            "versions": {},
            "plan": plan,
        }
    ]
    number = 0
    for count in writers:
        for turn in range(rounds):
            for system, rate in systems.items():
                number += 1
                run = folder / "runs" / f"{number:04d}"
                run.mkdir(parents=True)
                operations = history(count, 60, number)
                recorder = Recorder(run / "writer-0000-0.jsonl")
                for each in operations:
                    recorder.begins(each)
                    recorder.ends(each)
                recorder.close()
                (run / "run.json").write_text(
                    json.dumps({"start": 0.0, "strikes": [{"writer": 0, "kind": "kill", "at": 0.1}]})
                )
                facts = {
                    "what": "run", "scenario": ODD, "about": ODD, "writers": count, "round": turn, "system": system,
                    "ours": system.startswith("lake"), "configuration": ODD, "folder": f"runs/{number:04d}",
                }  # fmt: skip
                facts |= figures(operations, 1.0) | {"goodput": rate * (1 + turn / 100)} | more
                lines.append(facts)
    lines.append({"what": "skipped", "why": f"{ODD} is not here"})
    (folder / "results.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return folder


class Reader(HTMLParser):
    """Tags and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_needs_nothing_else_and_runs_nothing(tmp_path):
    text = page(read(keep(tmp_path / "o", {ODD: 50.0, "peer": 10.0})))
    reader = Reader()
    reader.feed(text)
    assert {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe", "object"} == set()
    assert not [a for _, attributes in reader.tags for a in attributes if a.startswith("on") or a in ("src", "href")]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert len(text.encode()) < 1_000_000
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text


def test_each_picture_is_sound_svg_with_a_title_and_lies_within_its_box(tmp_path):
    text = page(read(keep(tmp_path / "o", {ODD: 50.0, "peer": 10.0})))
    pictures = [part.partition("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
    assert len(pictures) == 5 + 2  # the lanes of both
    for each in pictures:
        root = ET.fromstring("<svg" + each)
        wide, high = map(float, root.get("viewBox").split()[2:])
        assert root[0].text
        for shape in root.iter():
            for name, most in (
                ("x", wide),
                ("x1", wide),
                ("x2", wide),
                ("cx", wide),
                ("y", high),
                ("y1", high),
                ("cy", high),
            ):
                if shape.get(name) is not None:
                    assert -1 <= float(shape.get(name)) <= most + 1, ET.tostring(shape)


def test_a_lane_for_each_writer_and_an_arrow_from_a_loser_to_its_winner():
    winner = Operation("a", 0, "r", "append", 0, 0.0, 0.5, outcome=DONE, commit="T1", tries=[Try(0.0, 0.5)])
    loser = Operation(
        "b", 1, "r", "append", 0, 0.1, 1.0, outcome=DONE, commit="T2", tries=[Try(0.1, 0.6, "why", "T1"), Try(0.6, 1.0)]
    )
    drawn = ET.fromstring(lanes([winner, loser], [{"writer": 1, "kind": "pause", "at": 0.2}]))
    shapes = [each.get("class") for each in drawn.iter()]
    assert shapes.count("lost") == 1
    assert shapes.count("landed") == 2
    assert shapes.count("arrow") == 1
    assert shapes.count("strike") == 1


def test_the_timeline_shows_where_most_attempts_lost():
    quiet = [
        Operation(f"q{n}", 0, "r", "append", n, n, n + 0.5, outcome=DONE, tries=[Try(n, n + 0.5)]) for n in range(500)
    ]
    for each in quiet[400:420]:
        each.tries.insert(0, Try(each.began, each.began, "lost"))
    begin, end = window(quiet)
    assert begin <= 400
    assert end >= 419
    assert end - begin < 200


def test_nothing_to_show_is_no_picture_and_no_error(tmp_path):
    assert lanes([]) == ""
    folder = tmp_path / "o"
    keep(folder, {"lakelatch": 1.0}, writers=(1,), rounds=1)
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["what"] == "run":
            line["failed"] = f"the oracle found wrong rows: {ODD}"
            for name in ("goodput", "latency_ms"):
                line.pop(name)
    (folder / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = [path.read_text() for path in write(read(folder))]
    assert all("the oracle found wrong rows" in text for text in made)
    assert "<svg" not in made[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there are no results in"),
        ("", "does not say on which machine"),
        ("[1]", "is no file of results"),
        ("{}", "is no file of results"),
        ('{"what":', "is no file of results"),
    ],
)
def test_what_is_no_folder_of_results_is_refused_in_a_sentence(tmp_path, text, words):
    if text is not None:
        (tmp_path / "results.jsonl").write_text(text)
    with pytest.raises(InputError, match=words):
        read(tmp_path)


def test_the_advice_follows_from_the_figures(tmp_path):
    cells = read(keep(tmp_path / "a", {"lakelatch a": 50.0, "peer": 10.0}, lock_held_share=0.25)).cells()
    words = [each.words for each in advise(cells)]
    assert words[0] == "With 4 writers take lakelatch a: 50.2 operations a second, 5.0 times peer."
    assert words[1].startswith(
        "lakelatch a: the lock is held 25% of the time at 50.2 operations a second; expect trouble beyond 141"
    )
    same = read(keep(tmp_path / "b", {"lakelatch a": 50.0, "peer": 49.0})).cells()
    assert "are equally fast, and it has the least p99" in advise(same)[0].words
    busy = read(keep(tmp_path / "c", {"lakelatch a": 50.0}, lock_held_share=0.9)).cells()
    assert "it is the bottleneck" in advise(busy)[0].words
    unfair = {"fairness": {"slowest": 1, "fastest": 100, "ratio": 0.01, "each": [1, 100]}}
    starved = read(keep(tmp_path / "d", {"peer": 50.0}, **unfair)).cells()
    assert advise(starved)[0].words == "peer: the slowest writer makes 1% of what the fastest makes."
    assert all(each.rule for each in advise(starved))
    both = read(keep(tmp_path / "e", {"lakelatch a": 50.0, "peer": 90.0})).cells()
    for cell in both:
        if not cell.ours:
            for run in cell.runs:
                run |= unfair
    words = advise(both)[0].words
    assert (
        words == "With 4 writers take lakelatch a: 50.2 operations a second. peer makes 90.5, and lets writers starve."
    )


# --- figures ---------------------------------------------------------------------------------------------------------


def test_latency_counts_from_when_an_operation_was_due():
    late = Operation("a", 0, "r", "append", 0.0, 2.0, 2.5, rows=1, outcome=DONE, tries=[Try(2.0, 2.5)])
    found = figures([late], 10.0)
    assert found["latency_ms"]["max"] == 2500
    assert found["late_starts"] == 1


def test_what_ended_after_the_time_was_load_and_is_no_goodput():
    late = Operation("a", 0, "r", "append", 0.0, 0.0, 11.0, rows=1, outcome=DONE, tries=[Try(0.0, 11.0)])
    assert figures([late], 10.0)["goodput"] == 0
    assert figures([late], 10.0)["done"] == 1


def test_a_lock_is_held_no_longer_than_the_run():
    each = Operation("a", 0, "r", "append", 0.0, 0.0, 30.0, outcome=DONE, tries=[Try(0, 30)], holds=[Hold(0, 1, 30)])
    assert figures([each], 10.0)["lock_held_share"] == 0.9


@pytest.mark.parametrize("seed", some(range(50), 20))
def test_the_lock_is_never_held_for_more_than_all_of_the_time(seed):
    """Against a model that looks at each tick; holders overlap, because each notes its release after the next one's grant."""
    chance = random.Random(seed)
    operations, held = [], set()
    for number in range(chance.randrange(1, 40)):
        granted = chance.randrange(-20, 220)
        released = chance.choice([None, granted + chance.randrange(60)])
        holds = [Hold(granted - 1, granted, released)]
        operations.append(Operation(f"w{number}", number, "r", "append", 0, 0, 200, outcome=DONE, holds=holds))
        held |= set(range(granted, granted if released is None else released))
    share = figures(operations, 200.0)["lock_held_share"]
    assert share == pytest.approx(len(held & set(range(200))) / 200, abs=0.0001)
    assert share <= 1


def test_no_operations_are_figures_of_nothing():
    assert figures([], 0.0)["goodput"] == 0
    assert figures([], 1.0)["longest_silence_s"] == 1.0


@pytest.mark.parametrize("seed", some(range(30), 15))
def test_figures_against_a_model_that_counts_by_hand(seed):
    chance = random.Random(seed)
    operations = history(chance.randrange(1, 5), chance.randrange(1, 80), seed)
    for each in chance.sample(operations, len(operations) // 4):
        each.outcome, each.reason = ABORTED, "x"
    found = figures(operations, 0.0)
    done = [each for each in operations if each.outcome == DONE]
    elapsed = max(each.ended for each in operations)
    assert found["goodput"] == pytest.approx(len(done) / elapsed, abs=0.01)
    assert found["aborted"] == len(operations) - len(done)
    assert sum(found["aborts"].values()) == found["aborted"]
    held = sum(h.released - h.granted for each in operations for h in each.holds)
    assert found["lock_held_share"] == pytest.approx(held / elapsed, abs=0.001)
    ends = sorted([0.0, elapsed, *(each.ended for each in done)])
    assert found["longest_silence_s"] == pytest.approx(max(b - a for a, b in pairwise(ends)), abs=0.001)


def test_percentiles_and_ticks():
    assert percentile([], 0.5) == 0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 1.0) == 1.0
    for high in (0, 1e-9, 0.3, 1, 7, 99, 12345.6, 1e12):
        marks = ticks(high)
        assert marks[0] == 0
        assert marks[-1] >= high * (1 - 1e-9)
        assert 2 <= len(marks) <= 6


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_scenario_of_several_roles_tells_what_each_got(tmp_path):
    of_role = {"per_s": 2.5, "aborted": 1, "attempts_per_commit": 1.25, "latency_ms": {"p50": 7, "p99": 9}}
    folder = keep(
        tmp_path / "o", {"lakelatch": 1.0}, writers=(2,), rounds=1, roles={"del<b>": of_role, "ingest": of_role}
    )
    html, text = (path.read_text() for path in write(read(folder)))
    assert "<td>del&lt;b&gt;</td><td>2.50</td><td>1</td><td>1.25</td><td>7.0</td><td>9.0</td>" in html
    assert "| 2 | lakelatch | ingest | 2.50 | 1 | 1.25 | 7.0 | 9.0 |" in text


def test_what_began_late_is_told(tmp_path):
    folder = keep(tmp_path / "o", {"lakelatch": 1.0}, writers=(2,), rounds=1, late_starts=7, never_begun=3)
    html, text = (path.read_text() for path in write(read(folder)))
    for each in (html, text):
        assert "2 x lakelatch: 7 operations began late, and 3 that were due never began" in each


def test_what_is_recorded_is_read_again_and_a_torn_last_line_is_none(tmp_path):
    path = tmp_path / "writer-0.jsonl"
    recorder = Recorder(path)
    written = history(2, 5)
    for each in written:
        each.saw, each.keys, each.parts = {"k-é🙂": ODD}, ("k-é🙂",), ("p0",)
        recorder.begins(each)
        recorder.ends(each)
    recorder.close()
    assert read_operations([path], start=0.0) == written
    with path.open("a") as file:
        file.write('{"name": "w0-9", "wri')
    assert read_operations([path], start=0.0) == written
    shifted = read_operations([path], start=-1.0)
    assert shifted[1].tries[0].began == pytest.approx(written[1].tries[0].began + 1)
    assert shifted[1].holds[0].released == pytest.approx(written[1].holds[0].released + 1)


def test_a_beginning_without_an_end_has_no_outcome(tmp_path):
    path = tmp_path / "writer-0.jsonl"
    recorder = Recorder(path)
    recorder.begins(history(1, 1)[0])
    recorder.close()
    (found,) = read_operations([path], start=0.0)
    assert (found.outcome, found.ended, found.tries) == ("unknown", 0.0, [])
