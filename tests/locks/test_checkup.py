"""`lakelatch locks check` on a real object store; tests/cli has it on a folder, and finds out a lock that is none."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.locks import checkup
from lakelatch.locks.checkup import check_up

from ..servers import KEY, Wire, free_port, versitygw
from ..servers.redis_server import redis_server


@pytest.mark.server
def test_a_good_object_store_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, KEY)
    with versitygw(tmp_path) as bucket:
        reach = f"endpoint={bucket.options['endpoint']}&region=us-east-1&allow_http=1"
        verdict = check_up(f"{bucket.url}/locks?{reach}&key=in-use", processes=2, seconds=0.5)
    assert verdict.kept, [finding for finding in verdict.findings if not finding.kept]
    assert verdict.figures["requests_per_release"] == 1
    assert 1 <= verdict.figures["requests_per_acquire"] <= 3
    assert verdict.limits[0] == "Waiters are not served strictly in the order they came"


def test_a_closed_port_has_broken_no_promise() -> None:
    port = free_port()
    verdict = check_up(f"redis://127.0.0.1:{port}", processes=2, seconds=0.1)
    assert verdict.kept is None
    (only,) = verdict.findings
    assert only.kept is None
    assert only.seen.count(f"127.0.0.1:{port}") == only.seen.count("Connection refused") == 1, "no text stands twice"


@pytest.mark.server
def test_a_wrong_password_has_broken_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path, "--requirepass", "right", password="right") as server:
        monkeypatch.setenv("LAKELATCH_REDIS_PASSWORD", "wrong")
        verdict = check_up(f"redis://127.0.0.1:{server.port}", processes=2, seconds=0.1)
    assert verdict.kept is None
    assert "wrong password: Redis at" in verdict.findings[0].seen


@pytest.mark.process
@pytest.mark.parametrize(("times", "kept"), [(1, True), (checkup._TRIES, None)])
def test_a_holder_that_stood_still_for_its_lease_has_shown_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, kept: bool | None
) -> None:
    """The part is tried again, and in the end nothing was learnt from it."""
    holding, stopped = checkup._Checkup._holding, []

    @contextmanager
    def stands(self: checkup._Checkup, key: str, **options: bool) -> Iterator[tuple[int, subprocess.Popen[str]]]:
        with holding(self, key, **options) as (token, worker):
            if key == f"{checkup.PREFIX}break" and len(stopped) < times:
                stopped.append(worker.pid)
                worker.send_signal(signal.SIGSTOP)
                SYSTEM.sleep(self._lease_s + 0.5)
                worker.send_signal(signal.SIGCONT)
            yield token, worker

    monkeypatch.setattr(checkup._Checkup, "_holding", stands)
    verdict = check_up(f"file://{tmp_path}/locks", processes=2, seconds=0.1)
    assert len(stopped) == times
    assert verdict.kept is kept
    (found,) = [each for each in verdict.findings if each.promise.startswith("a lease can be ended")]
    assert found.kept is kept
    if not kept:
        assert "stood still for" in found.seen


@pytest.mark.server
def test_a_good_server_far_away_passes_with_longer_leases(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, Wire(server.port, delay_s=0.4) as wire:
        verdict = check_up(f"redis://127.0.0.1:{wire.port}", processes=2, seconds=0.1)
    assert verdict.kept, verdict.findings
    lease_s = float(verdict.url.partition("?lease=")[2].rstrip("s"))
    assert lease_s > 3
    assert lease_s >= verdict.figures["acquire_ms_p50"] / 1000 * 8
