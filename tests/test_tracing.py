"""Spans tell where the time of a transaction went, and who won."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import lakelatch
from lakelatch import tracing
from lakelatch.errors import ConflictError


class Spans:
    """What was exported, oldest end first."""

    def __init__(self) -> None:
        self._exported = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exported))

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exported.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    def within(self, outer: ReadableSpan) -> list[str]:
        """The names of what is right inside a span, in the order in which it began."""
        inside = [
            s for s in self._exported.get_finished_spans() if s.parent and s.parent.span_id == outer.context.span_id
        ]
        return [span.name for span in sorted(inside, key=lambda span: span.start_time or 0)]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    tracing.enable(found.provider)
    yield found
    tracing.disable()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    with lakelatch.create(tmp_path / "t", record_key="id") as made:
        made.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        yield made


def told(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(f"lakelatch.{name}")


def test_a_write_is_one_run_with_its_attempt_and_the_steps_of_it(table: lakelatch.Table, spans: Spans) -> None:
    done = table.upsert([{"id": 1, "v": 5}])
    run, attempt = spans.one("lakelatch.run"), spans.one("lakelatch.transaction")
    assert spans.within(run) == ["lakelatch.transaction"]
    assert spans.within(attempt) == [f"lakelatch.{step}" for step in ("write", "lock", "append", "publish")]
    assert (told(attempt, "table"), told(attempt, "operation")) == (table.url, "upsert")
    assert (told(attempt, "instant"), told(attempt, "completion")) == (done.instant, done.completion)
    assert (told(attempt, "outcome"), attempt.status.status_code) == ("committed", StatusCode.UNSET)


def test_who_loses_says_against_whom(table: lakelatch.Table, spans: Spans) -> None:
    txn = table.transaction("upsert")
    txn.upsert([{"id": 1, "v": 5}])
    tracing.disable()  # the winner's spans are not looked at
    table.upsert([{"id": 1, "v": 6}])
    with pytest.raises(ConflictError) as caught:
        txn.commit()
    lost = spans.one("lakelatch.transaction")
    assert (told(lost, "outcome"), lost.status.status_code) == ("aborted", StatusCode.ERROR)
    assert told(lost, "winner") == caught.value.winner
    assert told(lost, "rule") == caught.value.details["rule"]
    assert [event.name for event in lost.events] == ["exception"]


def test_each_attempt_of_a_run_has_its_span(table: lakelatch.Table, spans: Spans) -> None:
    once = [[{"id": 1, "v": 6}]]

    def work(txn: lakelatch.Transaction) -> None:
        txn.upsert([{"id": 1, "v": 5}])
        if once:
            table.upsert(once.pop())

    table.run(work)
    outcomes = [told(span, "outcome") for span in spans.all("lakelatch.transaction")]
    assert outcomes == ["committed", "aborted", "committed"]  # the first is the winner
    # After a loss the lock is taken before the attempt begins.
    assert spans.within(spans.all("lakelatch.run")[-1]) == [
        f"lakelatch.{s}" for s in ("transaction", "lock", "transaction")
    ]


def test_a_round_of_merging_again_is_a_step_and_no_error(table: lakelatch.Table, spans: Spans) -> None:
    with table.transaction("upsert") as txn:
        txn.upsert([{"id": 1, "v": 5}])
        table.upsert([{"id": 2, "v": 6}])
    landed = spans.all("lakelatch.transaction")[-1]
    assert "lakelatch.merge" in spans.within(landed)
    assert {span.status.status_code for span in spans.all("lakelatch.append")} == {StatusCode.UNSET}
    assert told(landed, "outcome") == "committed"


def test_what_its_user_does_in_the_block_is_inside_it(table: lakelatch.Table, spans: Spans) -> None:
    with table.transaction("upsert") as txn:
        with spans.provider.get_tracer("mine").start_as_current_span("mine"):
            pass
        txn.upsert([{"id": 3, "v": 3}])
    with spans.provider.get_tracer("mine").start_as_current_span("after"):
        pass
    assert spans.within(spans.one("lakelatch.transaction"))[0] == "mine"
    assert spans.one("after").parent is None


def test_a_commit_without_a_block_has_its_steps_too(table: lakelatch.Table, spans: Spans) -> None:
    txn = table.transaction("upsert")
    txn.upsert([{"id": 3, "v": 3}])
    txn.commit()
    assert spans.within(spans.one("lakelatch.transaction")) == [f"lakelatch.{s}" for s in ("lock", "append", "publish")]


def test_a_table_service_has_a_span(table: lakelatch.Table, spans: Spans) -> None:
    table.upsert([{"id": 1, "v": 2}])
    table.clean(retain_commits=0)
    assert told(spans.all("lakelatch.transaction")[-1], "operation") == "clean"
    table.savepoint()
    assert told(spans.all("lakelatch.transaction")[-1], "outcome") == "committed"


def test_it_ends_what_began_before_it_was_disabled_and_begins_nothing(table: lakelatch.Table, spans: Spans) -> None:
    with table.transaction("upsert") as txn:
        txn.upsert([{"id": 3, "v": 3}])
        tracing.disable()
    assert spans.within(spans.one("lakelatch.transaction")) == ["lakelatch.write"]
    table.upsert([{"id": 4, "v": 4}])
    assert len(spans.all("lakelatch.transaction")) == 1


def test_without_it_opentelemetry_is_not_even_imported(tmp_path: Path) -> None:
    program = (
        "import sys, lakelatch\n"
        "t = lakelatch.create('t', record_key='id')\n"
        "t.upsert([{'id': 1}])\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
