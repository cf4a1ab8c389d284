"""For people who write a lock provider, a store, or tests on top of this library. Needs ``lakelatch[testing]``.

class TestMyLocks(LockProviderContract):
    @pytest.fixture
    def url(self) -> str:
        return "mylocks://localhost/tests"
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fake_environment import FakeEnvironment
    from .lock_contract import LockProviderContract
    from .store_contract import StoreContract

__all__ = ["FakeEnvironment", "LockProviderContract", "StoreContract"]

_FROM = {
    "FakeEnvironment": ".fake_environment",
    "LockProviderContract": ".lock_contract",
    "StoreContract": ".store_contract",
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: FakeEnvironment works where pytest is not installed.
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name], __name__), name)
