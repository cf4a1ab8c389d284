"""Prometheus metrics of the watched tables and all their writers, and of this process's locks.

Counters are computed from the log, so they cover its present content. After its oldest epochs are removed a restarted server
starts with lower ones, which Prometheus treats as a counter reset.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from ..conflict import INGESTION, kind_of
from ..errors import LakeLatchError
from ..plain_text import visible
from .ledger import Ledger
from .watched import Watched

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ..occ.landing import Coordinator

_log = logging.getLogger("lakelatch.server")
_LANDED = ("landed", "merged")


def exposition(tables: Sequence[Watched]) -> tuple[bytes, str]:
    """Return the text for Prometheus, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Tables(tables))
    return generate_latest(registry) + generate_latest(REGISTRY), CONTENT_TYPE_LATEST


class _Tables:
    """A collector that reads each table's state when metrics are scraped."""

    def __init__(self, tables: Sequence[Watched]) -> None:
        self._tables = tables

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the state is read only when it is scraped."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        counters, gauges = _counters(), _gauges()
        for table in self._tables:
            with table.ledger() as ledger:
                _count(counters, table.name, ledger)
            if table.coordinator is not None:
                _coordinated(counters, gauges, table.name, table.coordinator)
            try:
                _gauge(gauges, table)
                up = not table.error
            except LakeLatchError as e:
                # One failing table must not hide the metrics of the others.
                _log.warning("metrics of table %s are not complete: %s", table.name, e)
                up = False
            gauges["lakelatch_table_up"].add_metric([table.name], up)
        yield from counters.values()
        yield from gauges.values()


def _counters() -> dict[str, CounterMetricFamily]:
    found: tuple[tuple[str, str, list[str]], ...] = (
        ("lakelatch_commits", "Commits of rows that landed", ["operation", "merged"]),
        ("lakelatch_services", "Table services that landed", ["operation"]),
        ("lakelatch_conflicts", "Transactions that lost against another writer, by the rule that decided", ["reason"]),
        ("lakelatch_wasted_seconds", "Time that transactions took which lost", []),
        ("lakelatch_rebases", "Commits that landed after they were merged again onto those of others", []),
        ("lakelatch_rollbacks", "Transactions that others ended, because their writer was dead or silent", []),
        ("lakelatch_aborts", "Transactions that their own writer ended, without losing", []),
        ("lakelatch_log_entries", "The number of the newest entry of the commit log", []),
        ("lakelatch_coordinator_entries", "Entries of the log that this server's coordinator has appended", ["kind"]),
        (
            "lakelatch_coordinator_answers",
            "Transactions that it has begun, committed, or left to their writers",
            ["kind"],
        ),
    )
    return {name: CounterMetricFamily(name, text, labels=["table", *labels]) for name, text, labels in found}


def _gauges() -> dict[str, GaugeMetricFamily]:
    found: tuple[tuple[str, str, list[str]], ...] = (
        ("lakelatch_table_up", "1 when the last look at the table went well", []),
        ("lakelatch_last_commit_age_seconds", "Since the newest commit", []),
        ("lakelatch_open_transactions", "Open transactions by the state of their writer", ["state"]),
        ("lakelatch_oldest_open_seconds", "Age of the oldest open transaction; plans do not count", []),
        ("lakelatch_oldest_heartbeat_seconds", "Age of the oldest sign of life of an open transaction", []),
        ("lakelatch_reservations", "Open transactions that keep a place for themselves", []),
        ("lakelatch_markers", "Markers of open transactions: data files that are announced or written", []),
        ("lakelatch_plans", "Plans that nobody has executed yet", ["action"]),
        ("lakelatch_oldest_plan_seconds", "Age of the oldest of them", []),
        ("lakelatch_readers", "Leases of readers", []),
        ("lakelatch_coordinator_waiting", "Questions that wait for a round of the coordinator", []),
        ("lakelatch_coordinator_unpublished", "Its commits that have landed and are not on the timeline yet", []),
        ("lakelatch_table_lock_held_seconds", "For how long the table's lock has been held", []),
        ("lakelatch_table_lock_waiters", "Who waits for the table's lock, as far as its service shows them", []),
    )
    return {name: GaugeMetricFamily(name, text, labels=["table", *labels]) for name, text, labels in found}


# Series that begin at 0: an alert on ``increase`` would not see the first of their events.
_WRITES = ("insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition")
_SERVICES = ("clean", "archive", "compact", "log_compact", "cluster", "restore")
_REASONS = (
    "both changed the same file group",
    "both inserted the same new key",
    "both wrote the same value of what is unique",
    "it changed a partition that our condition was evaluated on",
    "it changed what ours had read, which counts under isolation",
)


def _count(into: dict[str, CounterMetricFamily], table: str, ledger: Ledger) -> None:
    services = Counter(dict.fromkeys(_SERVICES, 0))
    commits = Counter(dict.fromkeys(product(_WRITES, ("false", "true")), 0))
    outcomes: Counter[str] = Counter()
    for (outcome, operation), count in sorted(ledger.counts.items()):
        name = visible(operation.lower())
        outcomes[outcome] += count
        if outcome not in _LANDED:
            continue
        if kind_of(operation) in INGESTION:
            commits[name, str(outcome == "merged").lower()] += count
        else:
            services[name] += count
    for labels, count in commits.items():
        into["lakelatch_commits"].add_metric([table, *labels], count)
    for name, count in services.items():
        into["lakelatch_services"].add_metric([table, name], count)
    for reason, count in (dict.fromkeys(_REASONS, 0) | ledger.conflicts).items():
        into["lakelatch_conflicts"].add_metric([table, visible(reason)], count)
    into["lakelatch_wasted_seconds"].add_metric([table], ledger.wasted_s)
    into["lakelatch_rebases"].add_metric([table], outcomes["merged"])
    into["lakelatch_rollbacks"].add_metric([table], outcomes["rolled back"])
    into["lakelatch_aborts"].add_metric([table], outcomes["aborted"])
    into["lakelatch_log_entries"].add_metric([table], max(ledger.slot, 0))


def _coordinated(
    counters: dict[str, CounterMetricFamily], gauges: dict[str, GaugeMetricFamily], table: str, coordinator: Coordinator
) -> None:
    work = coordinator.work
    for kind, entries, answers in (
        ("begin", work.begin_entries, work.begun),
        ("commit", work.commit_entries, work.committed),
        ("left out", None, work.left_out),
    ):
        if entries is not None:
            counters["lakelatch_coordinator_entries"].add_metric([table, kind], entries)
        counters["lakelatch_coordinator_answers"].add_metric([table, kind], answers)
    gauges["lakelatch_coordinator_waiting"].add_metric([table], coordinator.waiting)
    gauges["lakelatch_coordinator_unpublished"].add_metric([table], work.unpublished)


def _gauge(into: dict[str, GaugeMetricFamily], watched: Watched) -> None:
    table = watched.name

    def put(name: str, value: float, *labels: str) -> None:
        into[f"lakelatch_{name}"].add_metric([table, *labels], value)

    last = watched.summary()["last_commit"]
    if last is not None:
        put("last_commit_age_seconds", last["age_s"])
    lock = watched.lock()
    put("table_lock_held_seconds", lock["holder"]["held_s"] if lock["holder"] else 0.0)
    put("table_lock_waiters", len(lock["queue"]))
    at_work = [each for each in watched.open() if each["state"] != "planned"]
    states = Counter({"alive": 0, "silent": 0, "dead": 0})
    states.update(each["state"] for each in at_work)
    for state, count in states.items():
        put("open_transactions", count, state)
    put("oldest_open_seconds", max((each["age_s"] for each in at_work), default=0.0))
    put("oldest_heartbeat_seconds", max((each["beat_s"] or 0.0 for each in at_work), default=0.0))
    put("reservations", sum(each["reserved"] is not None for each in at_work))
    put("markers", sum(each["markers"] for each in at_work))
    services = watched.services()
    for action, count in Counter(each["action"] for each in services["plans"]).items():
        put("plans", count, visible(action))
    put("oldest_plan_seconds", max((each["age_s"] for each in services["plans"]), default=0.0))
    put("readers", len(services["readers"]))
