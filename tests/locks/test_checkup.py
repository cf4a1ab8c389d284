"""`lakelatch locks check` on a real object store; tests/cli has it on a folder, and finds out a lock that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.locks.checkup import check_up

from ..servers import KEY, versitygw


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
    assert verdict.limits[0] == "Waiters are not served strictly in the order they came."
