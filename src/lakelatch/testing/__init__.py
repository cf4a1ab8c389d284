"""Tools to test a lock provider, a store or code that uses this library (``lakelatch[testing]``).

class TestMyLocks(LockProviderContract):
    @pytest.fixture
    def url(self) -> str:
        return "mylocks://localhost/tests"

`FaultStore` wraps a store and injects the faults that are exported beside it. `FakeEnvironment` is an
environment whose clock moves on request only. `check_merger` checks that a merger keeps its laws.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fake_environment import FakeEnvironment
    from .faults import At, Call, Crash, FaultStore, From, Late, LoseReply, On, Pause, Refuse
    from .lock_contract import LockProviderContract
    from .merger_laws import Broken, broken_laws, check_apply, check_merger
    from .store_contract import StoreContract

__all__ = [
    "At",
    "Broken",
    "Call",
    "Crash",
    "FakeEnvironment",
    "FaultStore",
    "From",
    "Late",
    "LockProviderContract",
    "LoseReply",
    "On",
    "Pause",
    "Refuse",
    "StoreContract",
    "broken_laws",
    "check_apply",
    "check_merger",
]

# Every other name comes from `faults`.
_FROM = {
    "FakeEnvironment": ".fake_environment",
    "Broken": ".merger_laws",
    "LockProviderContract": ".lock_contract",
    "StoreContract": ".store_contract",
    "broken_laws": ".merger_laws",
    "check_apply": ".merger_laws",
    "check_merger": ".merger_laws",
}


if not TYPE_CHECKING:  # to a type checker it would make every name one of this module's

    def __getattr__(name: str) -> Any:
        # Imported on first use, because only the contracts need pytest.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_FROM.get(name, ".faults"), __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
