"""The contract on memory://."""

from __future__ import annotations

import uuid

import pytest

from lakelatch.errors import ConfigError
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing import LockProviderContract


class TestMemoryLocks(LockProviderContract):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4()}"

    def check_break_record(self, provider: LockProvider, key: str, *, who: str, reason: str) -> None:
        (record,) = provider._backend.records(key)  # type: ignore[attr-defined]
        assert who in record
        assert reason in record


def test_a_name_is_needed() -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        open_provider("memory://")
