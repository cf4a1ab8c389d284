"""What Prometheus sees of the locks of this process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from lakelatch.environment import SystemEnvironment
from lakelatch.errors import ConfigError, LockTimeoutError, StorageError
from lakelatch.locks import open_provider
from lakelatch.locks.core import metrics
from lakelatch.locks.core.events import current
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S, until

from .scripted import ScriptedBackend, ScriptedGrant, provider


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    metrics.enable(registry)
    yield registry
    metrics.disable()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"lakelatch_lock_{name}", labels) or 0.0


def test_waits_holds_renewals_losses_and_breaks_are_counted(registry: CollectorRegistry) -> None:
    env = FakeEnvironment()
    failing, broken = ScriptedGrant(1), ScriptedGrant(2)
    backend = ScriptedBackend(failing, broken)
    locks = provider(backend, env)
    backend.on_grant = lambda: env.suspend(0.2)
    lease = locks.acquire("k", wait_s=1, lease_s=12)
    assert value(registry, "wait_seconds_sum", scheme="scripted", outcome="granted") == pytest.approx(0.2)
    env.advance(6)
    failing.answer = StorageError("no answer")
    env.advance(6)
    failing.answer = False
    env.advance(2)
    assert lease.lost == "stolen"
    renewals = {o: value(registry, "renewals_total", scheme="scripted", outcome=o) for o in ("ok", "failed", "refused")}
    assert (renewals["ok"], renewals["refused"]) == (1, 1)
    assert renewals["failed"] > 3
    assert value(registry, "renewal_lateness_seconds_sum", scheme="scripted") > 0
    assert value(registry, "losses_total", scheme="scripted", reason="stolen") == 1
    assert value(registry, "hold_seconds_count", scheme="scripted") == 1
    assert 10 < value(registry, "hold_seconds_sum", scheme="scripted") < 20
    with locks.acquire("k", wait_s=1) as other:
        assert locks.break_lease("k", token=other.token, reason="stuck", who="me")
        assert other.release() is not None
    assert value(registry, "breaks_total", scheme="scripted") == 1
    with pytest.raises(LockTimeoutError):
        locks.acquire("k", wait_s=0)
    assert value(registry, "wait_seconds_count", scheme="scripted", outcome="busy") == 1


def test_all_series_of_a_lock_begin_with_zero_before_anything_happens(registry: CollectorRegistry) -> None:
    """An alert on ``increase`` sees a first loss only if the series was there before it."""
    backend = ScriptedBackend(ScriptedGrant(1))
    seen: list[float | None] = []
    backend.on_grant = lambda: seen.extend(
        registry.get_sample_value(f"lakelatch_lock_{name}", {"scheme": "scripted", **labels})
        for name, labels in (
            ("losses_total", {"reason": "stolen"}),
            ("losses_total", {"reason": "expired"}),
            ("losses_total", {"reason": "unreachable"}),
            ("losses_total", {"reason": "max_hold"}),
            ("losses_total", {"reason": "forked"}),
            ("renewals_total", {"outcome": "failed"}),
            ("wait_seconds_count", {"outcome": "busy"}),
            ("breaks_total", {}),
            ("leases", {}),
            ("queue_depth", {}),
        )
    )
    provider(backend, FakeEnvironment()).acquire("k", wait_s=1).release()
    *counted, leases, depth = seen
    assert counted == [0.0] * 8
    assert None not in (leases, depth), "gauges of this process, which other tests may have left above 0"


def test_states_are_read_when_asked_for() -> None:
    with open_provider("memory://metrics", env=SystemEnvironment()) as locks, locks.acquire("k", wait_s=0):
        registry = CollectorRegistry()
        metrics.enable(registry)  # later than the lease
        try:
            before = value(registry, "leases", scheme="memory")
            assert before >= 1
            waiter = threading.Thread(target=lambda: locks.acquire("k", wait_s=PATIENCE_S).release())
            waiter.start()
            until(lambda: value(registry, "queue_depth", scheme="memory") >= 1, "a waiting thread is not counted")
            with locks.acquire("other", wait_s=0):
                assert value(registry, "leases", scheme="memory") == before + 1
        finally:
            metrics.disable()
    waiter.join(PATIENCE_S)


def test_keys_are_labels_only_when_asked(registry: CollectorRegistry) -> None:
    with open_provider("memory://labels") as locks:
        locks.acquire("s3://bucket/secret-name", wait_s=0).release()
        assert b"secret-name" not in generate_latest(registry)
        metrics.enable(registry, by_key=True)
        locks.acquire("k", wait_s=0).release()
    assert value(registry, "hold_seconds_count", scheme="memory", key="k") == 1


def test_it_moves_and_ends_and_the_default_registry_is_clean() -> None:
    metrics.enable()
    metrics.enable()
    assert b"lakelatch_lock_leases" in generate_latest(REGISTRY)
    metrics.disable()
    metrics.disable()
    assert b"lakelatch_lock" not in generate_latest(REGISTRY)
    assert current.observer is None


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'lakelatch\[metrics\]'"):
        metrics.enable()


def test_locks_import_no_metrics_client() -> None:
    code = (
        "import sys; from lakelatch.locks import open_provider; open_provider('memory://a').acquire('k', wait_s=0)\n"
        "import lakelatch.locks.core.metrics\n"
        "print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
