"""The contract on memory://."""

from __future__ import annotations

import uuid

import pytest

from lakelatch.errors import ConfigError
from lakelatch.locks import open_provider
from lakelatch.testing import LockProviderContract


class TestMemoryLocks(LockProviderContract):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4()}"


class TestMemoryLocksInRealTime(TestMemoryLocks):
    """As a server with a clock of its own would be tested."""

    server_clock = True
    lease_s = 0.6


def test_a_name_is_needed() -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        open_provider("memory://")
