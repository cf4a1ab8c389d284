"""Prometheus metrics of this process's locks; ``pip install 'lakelatch[metrics]'`` and call `enable` once.

An observer feeds counters and histograms. States (leases held, threads waiting) are read at scrape
time. Keys are labels only on request, because one label value per table grows without bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import ConfigError
from .events import current, scheme_of
from .lease import LOSSES, all_renewers
from .thread_queue import all_queues

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

# Locks take from a tenth of a millisecond (a file, Redis nearby) to minutes (a long commit ahead).
_WAIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


def enable(registry: CollectorRegistry | None = None, *, by_key: bool = False) -> None:
    """Count the locks of this process in ``registry`` (None: the default one) from now on.

    Args:
        registry: where the metrics appear; a second call moves them.
        by_key: adds a label ``key``. Only for a process that uses a few keys.
    """
    try:
        import prometheus_client
    except ModuleNotFoundError as e:
        raise ConfigError("Lock metrics need prometheus_client; run pip install 'lakelatch[metrics]'") from e
    disable()
    current.observer = _Prometheus(registry or prometheus_client.REGISTRY, by_key=by_key)


def disable() -> None:
    """Stop counting and remove the metrics from their registry. Does nothing when they are off."""
    observer, current.observer = current.observer, None
    if isinstance(observer, _Prometheus):
        observer.unregister()


class _Prometheus:
    """The observer, and the collector of states."""

    def __init__(self, registry: CollectorRegistry, *, by_key: bool) -> None:
        from prometheus_client import Counter, Histogram
        from prometheus_client.metrics_core import GaugeMetricFamily

        self._registry = registry
        self._by_key = by_key
        self._gauge = GaugeMetricFamily
        labels = ["scheme", "key"] if by_key else ["scheme"]
        self._waits = Histogram(
            "lakelatch_lock_wait_seconds", "Time from asking for a lock to having it, or not",
            [*labels, "outcome"], buckets=_WAIT_S, registry=registry,
        )  # fmt: skip
        self._holds = Histogram(
            "lakelatch_lock_hold_seconds", "Time from asking for a lock to its release or loss",
            labels, buckets=_WAIT_S, registry=registry,
        )  # fmt: skip
        self._renewals = Counter(
            "lakelatch_lock_renewals", "Answers to renewals", [*labels, "outcome"], registry=registry
        )
        self._late = Histogram(
            "lakelatch_lock_renewal_lateness_seconds", "How long after a third of the lease a renewal was sent",
            labels, buckets=_WAIT_S, registry=registry,
        )  # fmt: skip
        self._losses = Counter("lakelatch_lock_losses", "Leases lost", [*labels, "reason"], registry=registry)
        self._breaks = Counter("lakelatch_lock_breaks", "Leases broken by this process", labels, registry=registry)
        self._known: set[tuple[str, ...]] = set()
        registry.register(self)

    def asked(self, scheme: str, key: str) -> None:
        """Begin all counters of a lock at 0: an alert on ``increase`` would not see a first loss that begins its series."""
        labels = self._labels(scheme, key)
        if labels in self._known:
            return
        self._known.add(labels)
        for metric, values in (
            (self._waits, ("granted", "busy")),
            (self._renewals, ("ok", "refused", "failed")),
            (self._losses, LOSSES),
        ):
            for value in values:
                metric.labels(*labels, value)
        for alone in (self._holds, self._late, self._breaks):
            alone.labels(*labels)

    def waited(self, scheme: str, key: str, seconds: float, *, granted: bool) -> None:
        self._waits.labels(*self._labels(scheme, key), "granted" if granted else "busy").observe(seconds)

    def renewed(self, scheme: str, key: str, outcome: str, late_s: float) -> None:
        self._renewals.labels(*self._labels(scheme, key), outcome).inc()
        self._late.labels(*self._labels(scheme, key)).observe(late_s)

    def ended(self, scheme: str, key: str, seconds: float, reason: str) -> None:
        self._holds.labels(*self._labels(scheme, key)).observe(seconds)
        if reason != "released":
            self._losses.labels(*self._labels(scheme, key), reason).inc()

    def broke(self, scheme: str, key: str) -> None:
        self._breaks.labels(*self._labels(scheme, key)).inc()

    def _labels(self, scheme: str, key: str) -> tuple[str, ...]:
        return (scheme, key) if self._by_key else (scheme,)

    def collect(self) -> Iterator[Metric]:
        """Yield the states by scheme. They are exact, even for leases taken before `enable`."""
        held: Counter[str] = Counter({labels[0]: 0 for labels in list(self._known)})
        waiting: Counter[str] = Counter(held)
        for renewer in all_renewers():
            for place, count in renewer.counts().items():
                held[scheme_of(place)] += count
        for queue in all_queues():
            waiting[scheme_of(queue.place)] += sum(queue.depths().values())
        for name, text, counts in (
            ("lakelatch_lock_leases", "Leases held now", held),
            (
                "lakelatch_lock_queue_depth",
                "Threads of this process that wait behind another one for the same lock",
                waiting,
            ),
        ):
            gauge = self._gauge(name, text, labels=["scheme"])
            for scheme, count in sorted(counts.items()):
                gauge.add_metric([scheme], count)
            yield gauge

    def unregister(self) -> None:
        for metric in (self._waits, self._holds, self._renewals, self._late, self._losses, self._breaks, self):
            self._registry.unregister(metric)
