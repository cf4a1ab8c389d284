"""What the server tells of a table is what the table's own methods tell, as soon as it has happened."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

import lakelatch
from lakelatch.locks import metrics
from lakelatch.server import Watched, named
from lakelatch.server.lanes import BINS, SHAPES, picture
from lakelatch.server.ledger import EARLIER, Ledger, Span
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S

from .conftest import TOKEN, Client, lose, rows

AT = "/api/v1/tables/flights"


def test_the_api_tells_who_landed_who_lost_and_to_whom(table: lakelatch.Table, ask: Client):
    loser, winner = lose(table)
    ask(f"{AT}/sizes")  # looks at the log
    instants = {each["instant"]: each for each in ask(f"{AT}/timeline").json()["instants"]}
    assert (instants[winner]["outcome"], instants[loser]["outcome"]) == ("landed", "lost")
    assert (instants[loser]["winner"], instants[loser]["reason"]) == (winner, "both changed the same file group")
    summary = ask(AT).json()["summary"]
    assert summary["conflicts"] == {"both changed the same file group": 1}
    assert summary["last_commit"]["instant"] == winner
    assert summary["wasted_s"] > 0


def test_why_is_what_lakelatch_why_says(table: lakelatch.Table, ask: Client):
    loser, winner = lose(table)
    told = ask(f"{AT}/why/{loser}").json()
    assert told == json.loads(json.dumps(table.why(loser).to_json()))
    assert told["winner"]["instant"] == winner


def test_files_are_those_of_the_newest_commit_and_come_in_pages(table: lakelatch.Table, ask: Client):
    table.insert(rows(5, origin="LAX"))
    found, after = [], ""
    while after is not None:
        page = ask(f"{AT}/files?limit=1" + (f"&after={after}" if after else "")).json()
        found, after = found + page["slices"], page["after"]
    assert [each["base"] for each in found] == [each.base.path for each in table.snapshot().file_slices()]
    assert ask(f"{AT}/sizes").json()["bytes"] == sum(each["bytes"] for each in found)
    only = ask(f"{AT}/files?partition=origin%3DLAX").json()["slices"]
    assert [each["partition"] for each in only] == ["origin=LAX"]
    assert "no partition" in ask(f"{AT}/files?partition=..%2F..%2Fetc").error


def test_pages_of_the_timeline_hold_every_instant_once(table: lakelatch.Table, ask: Client):
    for value in range(5):
        table.upsert(rows(value))
    ask(f"{AT}/sizes")
    found, before = [], ""
    while before is not None:
        page = ask(f"{AT}/timeline?limit=2" + (f"&before={before}" if before else "")).json()
        found, before = found + [each["instant"] for each in page["instants"]], page["before"]
    assert found == sorted(set(found), reverse=True)
    assert set(found) == {instant.requested for instant, _ in table.commits()}


def test_open_transactions_show_signs_of_life_markers_and_reservations(table: lakelatch.Table, ask: Client):
    with table.transaction("upsert", reserve="table") as txn:
        for group in txn.snapshot.file_slices():
            txn.rewrite(group).write(rows(1))
        (found,) = ask(f"{AT}/reservations").json()["reservations"]
        assert (found["instant"], found["state"], found["reserved"]) == (txn.instant, "alive", "the table")
        assert found["markers"] == 1
    assert ask(f"{AT}/sizes").status == 200
    assert ask(f"{AT}/open").json() == {"open": []}


def test_the_locks_holder_is_shown_with_its_writer_and_for_how_long(table: lakelatch.Table, ask: Client):
    with table.session.lease("measuring"):
        ask(f"{AT}/sizes")
        lock = ask(f"{AT}/lock").json()
        assert (lock["holder"]["writer"], lock["holder"]["reason"]) == ("A", "A: measuring")
        assert lock["holder"]["held_s"] >= 0
    ask(f"{AT}/sizes")
    assert ask(f"{AT}/lock").json()["holder"] is None


def test_the_archive_is_told_beside_the_active_timeline(table: lakelatch.Table, ask: Client):
    for value in range(4):
        table.insert(rows(value))
    before = ask(f"{AT}/sizes").json()["timeline"]
    assert (before["archived_files"], before["archived_bytes"]) == (0, 0)
    done = table.archive(keep_min=2, keep_max=2)
    told = ask(f"{AT}/sizes").json()["timeline"]
    assert told["active"] == before["active"] - done.instants
    assert told["first_active"] == done.first_active
    files = list(Path(table.url.removeprefix("file://")).glob(".hoodie/timeline/history/*.parquet"))
    assert (told["archived_files"], told["archived_bytes"]) == (len(files), sum(each.stat().st_size for each in files))


def test_plans_that_wait_are_listed(table: lakelatch.Table, ask: Client):
    table.insert(rows(7))
    table.insert(rows(8))
    planned = table.plan_clustering()
    (plan,) = ask(f"{AT}/services").json()["plans"]
    assert (plan["instant"], plan["action"]) == (planned, "clustering")


def test_a_change_is_streamed_when_it_has_happened(table: lakelatch.Table, ask: Client):
    connection = HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)
    connection.request("GET", f"{AT}/events", headers=ask.headers)
    stream = connection.getresponse()
    assert stream.getheader("content-type").startswith("text/event-stream")
    first = next_change(stream)
    table.upsert(rows(9))
    changed = next_change(stream)
    while changed["last_commit"]["instant"] == first["last_commit"]["instant"]:
        changed = next_change(stream)
    assert changed["slot"] > first["slot"]
    connection.close()


def next_change(stream) -> dict:
    while not (line := stream.readline()).startswith(b"data: "):
        assert line
    return json.loads(line[6:])


def test_counters_begin_with_zero(table: lakelatch.Table, ask: Client):
    text = ask("/metrics").body.decode()
    for series in (
        'lakelatch_commits_total{merged="true",operation="upsert",table="flights"} 0.0',
        'lakelatch_services_total{operation="compact",table="flights"} 0.0',
        'lakelatch_conflicts_total{reason="both inserted the same new key",table="flights"} 0.0',
        'lakelatch_open_transactions{state="dead",table="flights"} 0.0',
    ):
        assert series in text, [line for line in text.splitlines() if line.startswith(series.partition("{")[0])]


def test_metrics_count_what_the_writers_of_a_table_did(table: lakelatch.Table, ask: Client):
    lose(table)
    ask(f"{AT}/sizes")
    text = ask("/metrics").body.decode()
    assert 'lakelatch_conflicts_total{reason="both changed the same file group",table="flights"} 1.0' in text
    assert 'lakelatch_commits_total{merged="false",operation="upsert",table="flights"} 1.0' in text
    assert 'lakelatch_table_up{table="flights"} 1.0' in text


def test_a_table_that_cannot_be_read_says_so_and_comes_back(table: lakelatch.Table, tmp_path):
    watched = Watched("flights", table)
    log = tmp_path / "flights/.hoodie/.lakelatch/log"
    watched.look()
    newest = max(log.glob("*/*"))
    table.upsert(rows(3))
    torn = sorted(each for each in log.glob("*/*") if each.name > newest.name)[0]
    whole = torn.read_bytes()
    torn.write_bytes(whole[:10])
    watched.look()
    assert "torn" in watched.error
    torn.write_bytes(whole)
    watched.look()
    assert watched.error == ""
    assert watched.summary()["last_commit"]["operation"] == "UPSERT"


def test_names_of_writers_and_rules_are_text_whatever_they_hold(table: lakelatch.Table):
    awkward = '<img src=x onerror="alert(1)">\u202e {}%s 𝒯 \x1b[31m "quoted" \\'
    with lakelatch.open(table.url, writer=awkward) as other:
        lose(other)
    watched = Watched("flights", table)
    watched.look()
    lanes = watched.lanes(since_ms=None, until_ms=None, lanes=10, skip=0, writer="")
    assert awkward in [each["writer"] for each in lanes["lanes"]]


def test_tables_are_called_by_the_last_part_of_their_url_or_as_somebody_says():
    assert named(["s3://b/flights/", "new=./data/x=y/z"]) == {"flights": "s3://b/flights/", "new": "./data/x=y/z"}
    assert named(["./data/day=1"]) == {"day=1": "./data/day=1"}
    for wrong in (["a/t", "b/t"], ["/"], ["=x"], ["t="], [".."]):
        with pytest.raises(lakelatch.InputError, match="NAME="):
            named(wrong)


def test_a_picture_of_very_many_instants_has_few_shapes_and_loses_none():
    ledger, random_ = Ledger(), random.Random(7)
    for number in range(100_000):
        writer = f"w{random_.randrange(1000)}"
        begin = number * 100
        span = Span(
            f"{number:017d}",
            "UPSERT",
            writer,
            begin,
            begin + random_.randrange(2000),
            random_.choice(("landed", "lost")),
        )
        ledger.spans[span.instant] = span
        ledger.lanes[writer].append(span)
    seen = picture(ledger, {}, since_ms=0, until_ms=10_003_000, now_ms=10_003_000, lanes=200)
    assert (seen["lanes_total"], len(seen["lanes"]), seen["total"]) == (1000, 200, 100_000)
    assert sum(len(each["spans"] or ()) for each in seen["lanes"]) <= SHAPES
    assert sum(len(each["bins"] or ()) for each in seen["lanes"]) <= 200 * BINS
    assert sum(map(sum, seen["overview"])) == 100_000
    everyone = {}
    for skip in range(0, 1000, 200):
        for lane in picture(ledger, {}, since_ms=0, until_ms=10_003_000, now_ms=0, lanes=200, skip=skip)["lanes"]:
            everyone[lane["writer"]] = sum(lane["counts"].values())
    assert everyone == {name: len(lane) for name, lane in ledger.lanes.items()}


def test_a_picture_shows_exactly_what_overlaps_its_stretch_of_time():
    """Against a search of every transaction, for random stretches."""
    ledger, random_ = Ledger(), random.Random(3)
    for number in range(300):
        begin = random_.randrange(1000)
        end = random_.choice((None, begin, begin + random_.randrange(300)))
        span = Span(f"{number:017d}", "UPSERT", f"w{number % 5}", begin, end, "open" if end is None else "landed")
        ledger.spans[span.instant] = span
        ledger.lanes[span.writer].append(span)
    for _ in range(200):
        since = random_.randrange(1200)
        until, now = since + 1 + random_.randrange(400), 1500
        seen = picture(ledger, {}, since_ms=since, until_ms=until, now_ms=now, lanes=200)
        found = {each["instant"] for lane in seen["lanes"] for each in lane["spans"]}
        right = {
            name
            for name, s in ledger.spans.items()
            if s.begin_ms <= until and (now if s.end_ms is None else s.end_ms) >= since
        }
        assert found == right


def test_a_lane_keeps_its_place_while_its_writer_is_now_and_then_busy():
    ledger = Ledger()
    for number in range(60):
        span = Span(f"{number:017d}", "UPSERT", f"w{number * 7 % 5}", number * 1000, number * 1000 + 500, "landed")
        ledger.spans[span.instant] = span
        ledger.lanes[span.writer].append(span)
    until = [picture(ledger, {}, since_ms=0, until_ms=1000 * n, now_ms=1000 * n, lanes=5) for n in range(10, 60)]
    assert {tuple(lane["writer"] for lane in seen["lanes"]) for seen in until} == {tuple(ledger.lanes)}


def test_one_answer_tells_of_one_moment_while_writers_go_on(table: lakelatch.Table):
    """Numbers, lanes, open transactions and the newest ones agree in each of many answers."""
    watched, stop = Watched("flights", table), threading.Event()

    def write() -> None:
        with lakelatch.open(table.url, writer="B") as other:
            while not stop.is_set():
                other.transaction("upsert").abort()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        while len(seen) < 20:
            watched.look()
            told = watched.state(since_ms=0, until_ms=None, lanes=40, skip=0, writer="", newest=1000)
            spans = [span for lane in told["lanes"]["lanes"] for span in lane["spans"]]
            begun = {span["instant"] for span in spans if span["end_ms"] is None}
            assert begun == {each["instant"] for each in told["open"]}
            assert begun == {each["instant"] for each in told["newest"] if each["end_ms"] is None}
            assert told["summary"]["open"] == len(begun)
            assert told["summary"]["instants"] == len(spans) == len(told["newest"])
            seen.add(told["summary"]["slot"])
    finally:
        stop.set()
        writer.join()


def test_transactions_of_writers_whose_clocks_are_ahead_are_in_the_picture_too(table: lakelatch.Table):
    table.transaction("upsert").abort()
    with lakelatch.open(table.url, env=FakeEnvironment(wall=1.0)) as behind:
        watched = Watched("flights", behind)
        watched.look()
        told = watched.state(since_ms=None, until_ms=None, lanes=40, skip=0, writer="", newest=1000)
    spans = [span["instant"] for lane in told["lanes"]["lanes"] for span in lane["spans"]]
    assert sorted(spans) == sorted(each["instant"] for each in told["newest"]) != []


def test_while_the_log_is_read_for_the_first_time_an_answer_does_not_wait_for_it(table: lakelatch.Table):
    asked = {"since_ms": 0, "until_ms": None, "lanes": 40, "skip": 0, "writer": "", "newest": 9}
    with lakelatch.open(table.url) as other:
        watched, txn = Watched("flights", other), table.transaction("upsert")
        reads: list[str] = []
        other.session.log.catch_up, kept = lambda: reads.append("the log"), other.session.log.catch_up
        told = watched.state(**asked)
        assert (told["summary"]["ready"], told["open"], reads) == (False, [], [])
        other.session.log.catch_up = kept
        watched.look()
        assert [each["instant"] for each in watched.state(**asked)["open"]] == [txn.instant]
        txn.abort()


def test_attempts_of_one_work_are_counted_and_what_lies_between_them_was_waited_for(table: lakelatch.Table):
    lost = []

    def work(txn: lakelatch.Transaction) -> None:
        for group in txn.snapshot.file_slices():
            txn.rewrite(group).write(rows(len(lost)))
        if not lost:
            with lakelatch.open(table.url, writer="B") as other, other.transaction("upsert") as rival:
                for group in rival.snapshot.file_slices():
                    rival.rewrite(group).write(rows(9))
            lost.append(txn.instant)

    done = table.run(work, reserve_after=None)
    watched = Watched("flights", table)
    watched.look()
    with watched.ledger() as ledger:
        assert [ledger.spans[each].attempt for each in (*lost, done.commit.instant)] == [1, 2]
    lane = next(e for e in watched.lanes(since_ms=None, until_ms=None, lanes=9, skip=0, writer="A")["lanes"])
    assert len(lane["waits"]) >= 1


def test_what_the_log_does_not_tell_any_more_stands_in_a_lane_of_its_own(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="origin", log_epochs=1) as table:
        table.session.log  # noqa: B018 - opened
        with lakelatch.open(table.url) as other:
            other.upsert(rows(1))
        watched = Watched("t", table)
        watched._ledger.add_earlier(table.timeline().completed)
        with watched.ledger() as ledger:
            assert {span.writer for span in ledger.spans.values()} == {EARLIER}


def test_two_servers_for_one_table_tell_the_same(table: lakelatch.Table, serve):
    loser, _ = lose(table)
    both = [Client(serve({"flights": table.url}).url) for _ in range(2)]
    stories = [ask(f"{AT}/why/{loser}").json() for ask in both]
    assert stories[0] == stories[1]
    assert both[0](f"{AT}/timeline").json() == both[1](f"{AT}/timeline").json()
    table.upsert(rows(4))
    assert both[0](f"{AT}/files").json() == both[1](f"{AT}/files").json()


def test_many_clients_and_a_writer_at_once_get_whole_answers(table: lakelatch.Table, ask: Client):
    wrong: list[object] = []

    def look() -> None:
        for path in ("", "/lanes", "/timeline", "/open", "/sizes", "/lock") * 3:
            answer = ask(f"{AT}{path}")
            if answer.status != 200:
                wrong.append((path, answer))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for value in range(10):
        table.upsert(rows(value))
    for thread in threads:
        thread.join()
    assert not wrong
    assert TOKEN not in str(ask("/openapi.json").json())


ROOT = Path(__file__).parents[2]


def test_documents_alerts_and_the_grafana_dashboard_name_metrics_that_there_are(table: lakelatch.Table, ask: Client):
    metrics.enable()
    try:
        text = ask("/metrics").body.decode()
    finally:
        metrics.disable()
    there = set()
    for name, kind in re.findall(r"^# TYPE (lakelatch_\w+) (\w+)$", text, re.MULTILINE):
        there |= {name, f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    own = {name for name in there if not name.startswith("lakelatch_lock_")}
    named_in = {
        path: set(re.findall(r"\blakelatch_[a-z_]+\b", (ROOT / "docs" / path).read_text()))
        for path in ("server.md", "alerts.yml", "grafana.json")
    }
    for path, names in named_in.items():
        assert names <= there, path
    assert own - named_in["server.md"] == set()
    assert (
        own
        - {"lakelatch_table_up", "lakelatch_log_entries_total", "lakelatch_readers", "lakelatch_oldest_plan_seconds"}
        <= (named_in["grafana.json"])
    )
    json.loads((ROOT / "docs/grafana.json").read_text())


def test_who_waits_in_another_process_for_the_lock_is_shown_with_the_time(table: lakelatch.Table, ask: Client):
    work = (
        "import sys, lakelatch\n"
        "with lakelatch.open(sys.argv[1], writer='waiter') as table:\n"
        "    table.upsert([{'id': 'k0', 'origin': 'JFK', 'v': 7}])\n"
    )
    with table.session.lease("measuring"):
        waiter = subprocess.Popen([sys.executable, "-c", work, table.url])
        until = time.monotonic() + PATIENCE_S
        while not (line := ask(f"{AT}/lock").json()["queue"]):
            assert time.monotonic() < until
            ask(f"{AT}/files")
        assert len(line) == 1
        assert line[0]["waits_s"] >= 0
        ask(f"{AT}/files")
        assert ask(f"{AT}/lock").json()["queue"][0]["waits_s"] > line[0]["waits_s"]
    assert waiter.wait(PATIENCE_S) == 0
