"""Exports: other tools read what the lab says, and an independent judge of the exported history agrees with its oracle."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest

from lakelatch.bench import read, rows
from lakelatch.bench.export import FORMATS, export
from lakelatch.bench.export import elle as elle_format
from lakelatch.bench.operations import ABORTED, DONE, UNKNOWN, Operation, Try
from lakelatch.bench.oracle import judge
from lakelatch.errors import ConfigError

from ..thorough import some
from .elle_check import anomalies
from .test_report import history, keep

FACTS = {"scenario": "s", "writers": 2, "system": "lakelatch default"}


def transfers(seed: int, count: int = 40, keys: int = 4) -> tuple[list[Operation], dict[str, str]]:
    """Operations of five writers at a time, that take effect at one moment each."""
    chance, by, found = random.Random(seed), {f"k-{n}": rows.FIRST for n in range(keys)}, []
    free = [0.0] * 5
    for number in range(count):
        writer = min(range(5), key=lambda each: free[each])
        name, began = f"w{writer}-{number}", max(free[writer], number * 1.0)
        free[writer] = began + chance.uniform(1.0, 1.5)
        mine = sorted(chance.sample(sorted(by), 2))
        each = Operation(
            name, writer, "r", "transfer", began, began, free[writer], keys=tuple(mine), parts=("p0",), rows=2, outcome=DONE,
            saw={key: by[key] for key in mine}, tries=[Try(began, free[writer])],
        )  # fmt: skip
        if chance.random() < 0.1:
            each.outcome = ABORTED
        else:
            by |= dict.fromkeys(mine, name)
        found.append(each)
    return found, by


def exported(operations: list[Operation], final: dict[str, str]) -> str:
    return elle_format.make(operations, FACTS | {"final": final}).decode()


@pytest.mark.parametrize("seed", some(range(20), 8))
def test_a_serial_history_has_no_anomaly(seed):
    assert anomalies(exported(*transfers(seed))) == []


@pytest.mark.parametrize("seed", some(range(20), 8))
def test_a_lost_update_is_an_anomaly_and_the_oracle_says_so_too(seed):
    operations, final = transfers(seed)
    done = [each for each in operations if each.outcome == DONE]
    readers = Counter(each.saw[key] for each in done for key in each.keys)
    # One that somebody came after: let another one have read the same as it did.
    victim = next(each for each in done if any(each.name in other.saw.values() for other in done) and readers)
    for other in done:
        for key in other.keys:
            if other.saw[key] == victim.name:
                other.saw[key] = victim.saw[key]
    assert anomalies(exported(operations, final))
    first = rows.first_rows(4, 1, 0)
    there = first.set_column(3, "by", [[final.get(key, rows.FIRST) for key in first["id"].to_pylist()]])
    assert "lost" in {each.kind for each in judge(first, operations, there)}


def test_two_that_read_what_the_other_changes_are_a_cycle():
    """Write skew: each row's own history is in order, and still no serial order explains both."""
    a = Operation(
        "w0-1", 0, "r", "transfer", 0, 0, 2, keys=("k-0", "k-1"), outcome=DONE, saw={"k-0": "first", "k-1": "w1-1"}
    )
    b = Operation(
        "w1-1", 1, "r", "transfer", 0, 0, 2, keys=("k-0", "k-1"), outcome=DONE, saw={"k-0": "w0-1", "k-1": "first"}
    )
    assert any("cycle" in each for each in anomalies(exported([a, b], {"k-0": "w1-1", "k-1": "w0-1"})))


@pytest.mark.parametrize("lands", [True, False])
def test_one_whose_writer_was_killed_stands_where_a_place_is_left_for_it(lands):
    operations, before = [], "first"
    for number in range(6):
        name, killed = f"w0{'.1' * (number > 3)}-{number}", number == 3
        each = Operation(name, 0, "r", "increment", number, number, number + 0.5, keys=("k-0",), rows=1, outcome=DONE)
        each.saw = {"k-0": before}
        if killed:
            each.outcome, each.saw, each.ended = UNKNOWN, {}, 0.0
        if lands or not killed:
            before = name
        operations.append(each)
    text = exported(operations, {"k-0": before})
    assert anomalies(text) == []
    assert f"[:r :k-0 [1 2 3 {'4 ' * lands}5 6]]" in text
    assert text.count(":type :invoke") == 7
    assert text.count(":type :ok") == 6


def test_perfetto_has_a_track_for_each_writer_and_flows_from_losers_to_winners(tmp_path):
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    from lakelatch.bench.export.perfetto import make

    operations = history(3, 60)
    trace = Trace.FromString(make(operations, FACTS))
    names = [packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")]
    assert names == [
        "s, 2 writers, lakelatch default",
        *(f"{n:03d} {what}" for n in range(3) for what in ("r", "lock")),
    ]
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    assert [each.timestamp for each in events] == sorted(each.timestamp for each in events)
    open_slices: Counter[int] = Counter()
    for each in events:
        open_slices[each.track_event.track_uuid] += {
            TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1, TrackEvent.TYPE_INSTANT: 0,
        }[each.track_event.type]  # fmt: skip
        assert open_slices[each.track_event.track_uuid] in (0, 1)
    starts = Counter(flow for each in events for flow in each.track_event.flow_ids)
    ends = Counter(flow for each in events for flow in each.track_event.terminating_flow_ids)
    lost = sum(len(each.tries) - 1 for each in operations)
    assert lost > 3
    assert starts == ends == Counter(range(1, lost + 1))


def test_an_hdr_log_has_every_latency(tmp_path):
    pytest.importorskip("hdrh")
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    from lakelatch.bench.export.hdr import make

    operations = [
        Operation(f"w0-{n}", 0, "r", "append", n / 10, n / 10, n / 10 + 0.001 * (n + 1), outcome=DONE)
        for n in range(50)
    ]
    path = tmp_path / "log"
    path.write_bytes(make(operations, FACTS))
    whole = HdrHistogram(1, 24 * 3600 * 10**6, 3)
    reader = HistogramLogReader(str(path), whole)
    while reader.add_next_interval_histogram() is not None:
        pass
    assert whole.get_total_count() == 50
    assert whole.get_value_at_percentile(50) == pytest.approx(25_000, rel=0.002)
    assert whole.get_max_value() == pytest.approx(50_000, rel=0.002)
    assert io.StringIO(path.read_text()).readline() == "#s, 2 writers, lakelatch default: microseconds\n"


def test_all_formats_of_kept_results_and_a_sentence_for_what_is_left_out(tmp_path):
    pytest.importorskip("hdrh")
    pytest.importorskip("perfetto")
    made, left_out = export(read(keep(tmp_path / "o", {"lake 100% <b>/é": 1.0}, rounds=1)))
    assert Counter(path.suffix for path in made) == {".pftrace": 2, ".hlog": 2}
    assert left_out == ["2 runs have nothing for elle"]
    assert all(path.parent == tmp_path / "o" / "exports" for path in made)


def test_an_unknown_format_is_refused_with_those_that_there_are(tmp_path):
    results = read(keep(tmp_path / "o", {"x": 1.0}, rounds=1))
    with pytest.raises(ConfigError, match=f"no format 'csv'; there are {', '.join(FORMATS)}"):
        export(results, ["csv"])


@pytest.mark.thorough
def test_real_histories_of_ours_pass_the_second_judge_and_a_stale_reader_does_not(lab, faulty):
    bank = {"about": "x", "keys": 4, "balance": 9, "partitions": 2, "roles": [{"name": "t", "work": "transfer"}]}
    results = lab(facts=bank, operations=8, peers=[f"{faulty}:ReadsStale"])
    good, stale = export(results, ["elle"])[0]
    assert anomalies(good.read_text()) == []
    assert anomalies(stale.read_text())
    assert "failed" not in results.runs[0]
    assert "failed" in results.runs[1]
