"""The contract can fail: a lock service that breaks one promise fails the tests of that promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakelatch.locks import open_provider
from lakelatch.testing.contention import threads_of

HERE = Path(__file__).parent
# Who breaks what, and a test that has to notice it.
NOTICED_BY = {
    "RenewsWhoeverHolds": "test_a_renewal_is_refused_when_another_holds_the_key",
    "RenewsWithoutEffect": "test_renewal_keeps_the_lease",
    "ChecksNothing": "test_break_ends_the_lease_and_leaves_a_record",
    "ReleasesWhoeverHolds": "test_release_after_expiry_spares_next_holder",
    "ReleasesNothing": "test_a_free_key_is_granted_and_a_busy_one_is_not",
    "PollsWithoutPause": "test_waiting_is_not_looping",
    "LeavesNothing": "test_timed_out_waiter_leaves_no_trace",
    "ServesTheLastFirst": "test_clients_are_served_in_order",
    "GrantsTwice": "test_a_free_key_is_granted_and_a_busy_one_is_not",
    "EndsNoLease": "test_a_silent_holder_is_followed_and_notices_by_itself",
    "RepeatsTokens": "test_tokens_only_grow",
    "BreaksWhoeverHolds": "test_break_ends_the_lease_and_leaves_a_record",
    "BreaksUnseen": "test_break_ends_the_lease_and_leaves_a_record",
    "ShowsNobody": "test_inspect_names_the_holder",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each test, by its name in broken.py; run as a user's own, away from this repository's settings."""
    broken = tmp_path_factory.mktemp("contract") / "test_broken.py"
    broken.write_text((HERE / "broken.py").read_text())
    names = {f"Test{name}::{test}" for name, test in NOTICED_BY.items()}
    names |= {f"TestSound::{test}" for test in NOTICED_BY.values()}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--tb=no", "-q", *(f"{broken.name}::{name}" for name in sorted(names))],
        cwd=broken.parent, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {
        name.partition("::")[2]: outcome
        for outcome, name, *_ in (line for line in lines if len(line) > 1)
        if outcome in ("PASSED", "FAILED", "ERROR")
    }
    assert set(found) == names, done.stdout[-3000:] + done.stderr[-3000:]
    return found


@pytest.mark.parametrize(("broken", "test"), NOTICED_BY.items())
def test_a_broken_promise_is_noticed(outcomes: dict[str, str], broken: str, test: str) -> None:
    assert outcomes[f"TestSound::{test}"] == "PASSED"
    assert outcomes[f"Test{broken}::{test}"] == "FAILED"


def test_every_broken_service_is_run() -> None:
    text = (HERE / "broken.py").read_text()
    classes = {line.partition("(")[0].removeprefix("class Test") for line in text.splitlines() if "(TestSound)" in line}
    assert classes == set(NOTICED_BY)


def test_a_thread_that_stays_is_named_with_its_stack() -> None:
    threads = threads_of(open_provider("memory://named"), "k", patience_s=0)
    (left,) = threads.left  # it ends some ticks later
    assert left.startswith("lakelatch-renewer (_SystemTimer._run):")
    assert "self._stop.wait(period_s)" in left
    assert [each.splitlines()[0] for each in threads.started] == [left.splitlines()[0]]
