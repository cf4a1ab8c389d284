"""The promises of every lock provider, as tests.

Subclass it, give the URL, and pytest does the rest:

    class TestMyLocks(LockProviderContract):
        across_processes = True

        @pytest.fixture
        def url(self) -> str:
            return "mylocks://localhost/tests"

Declare missing abilities by the attributes of `LockContractBase` and of the provider (``fair``,
``durable_tokens``, ``lifts_tokens``). Override `cut_off` and `restart` to test the provider under failures.

Tests that need a lease to end run on a `FakeEnvironment`, whose time passes on request, so they never wait. For a
server that judges leases by its own clock set ``server_clock = True`` and a small ``lease_s``.
"""

from __future__ import annotations

from .lock_contract_holding import HoldingContract
from .lock_contract_waiting import WaitingContract


class LockProviderContract(HoldingContract, WaitingContract):
    """All promises. Override the fixture ``url``, and set to False what your backend cannot do, with a reason beside it."""
