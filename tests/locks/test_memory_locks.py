"""The contract on memory://."""

from __future__ import annotations

import uuid

import pytest

from lakelatch.errors import ConfigError
from lakelatch.locks import memory, open_provider
from lakelatch.locks.core.backend import LockRequest
from lakelatch.locks.memory import MemoryBackend
from lakelatch.testing import FakeEnvironment, LockProviderContract


class TestMemoryLocks(LockProviderContract):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4()}"


class TestMemoryLocksInRealTime(TestMemoryLocks):
    """As a server with a clock of its own would be tested."""

    server_clock = True
    lease_s = 2.0


def test_a_name_is_needed() -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        open_provider("memory://")


def test_a_break_by_another_client_is_told_without_a_renewal() -> None:
    env = FakeEnvironment()
    with open_provider("memory://told", env=env) as ours, open_provider("memory://told", env=env.peer()) as theirs:
        lease = ours.acquire("k", wait_s=0)
        assert theirs.break_lease("k", token=lease.token, reason="stuck", who="alice")
        assert lease.lost == "stolen"


def test_a_newcomer_does_not_overtake_and_a_waiter_that_gives_up_passes_on() -> None:
    backend = MemoryBackend("line", env := FakeEnvironment())
    ask = LockRequest("k", "owner", env.process(), 30.0, None, 0, "", waits=True)
    first, second, newcomer = (backend.line_up("k") for _ in range(3))
    grant = backend.try_grant(ask, newcomer)
    assert grant is not None
    for place in (first, second):
        place.wait(0.0)
    grant.release()
    assert backend.try_grant(ask, newcomer) is None
    first.leave()
    assert isinstance(second, memory._MemoryContender)
    assert second.woken.is_set()
    assert backend.try_grant(ask, second) is not None
