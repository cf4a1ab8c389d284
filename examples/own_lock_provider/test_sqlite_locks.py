"""The shipped conformance suite, with one fixture."""

from pathlib import Path

import pytest

from lakelatch.testing import LockProviderContract


class TestSqliteLocks(LockProviderContract):
    across_processes = True

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/locks.db"

    def restart(self) -> None:
        """Nothing runs between two requests, so there is nothing to restart."""
