"""The base of the lock contract: fixtures and hooks that describe a backend, each with a sensible default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import ClassVar
from uuid import uuid4

import pytest

from ..environment import Environment
from ..locks import LockProvider, open_provider
from .fake_environment import FakeEnvironment


class LockContractBase:
    """The description of a backend: override the fixture ``url``, and declare what it cannot do, with a reason beside it."""

    across_processes: ClassVar[bool] = False
    """True when other processes that open the same URL contend for the same keys."""
    breakable: ClassVar[bool] = True
    """False when the backend cannot end another owner's lease."""
    one_lock: ClassVar[bool] = False
    """True when all keys of the URL are one lock: then nobody can ask its holder for it."""
    server_clock: ClassVar[bool] = False
    """True when the server itself ends leases, by a clock that no test can move: then tests wait, a few `lease_s`."""
    lease_s: ClassVar[float] = 10.0
    """The lease where it has to end; with `server_clock` as short as a slow machine can keep it alive, say 2 s."""
    many: ClassVar[int] = 100
    """How many keys one process holds at once."""
    threads_max: ClassVar[int] = 6
    """How many threads one provider may start, however many leases it keeps alive."""

    readings_max: ClassVar[int] = 300
    """How often who waits for a second may read a clock: at most so often it does something."""

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of the locks; override it. It may be shared between tests, each of which uses its own keys."""
        raise NotImplementedError("a test class of LockProviderContract must override the fixture `url`")

    @pytest.fixture
    def env(self) -> FakeEnvironment:
        """Return the environment of `provider`."""
        return FakeEnvironment(real_time=self.server_clock)

    @pytest.fixture
    def rival_env(self, env: FakeEnvironment) -> FakeEnvironment:
        """Return another process's environment, on the same clock; while it is advanced, `env` stands still."""
        return env.peer()

    @pytest.fixture
    def provider(self, url: str, env: FakeEnvironment) -> Iterator[LockProvider]:
        with self.open(url, env) as provider:
            yield provider

    @pytest.fixture
    def rival(self, url: str, rival_env: FakeEnvironment) -> Iterator[LockProvider]:
        """Yield a second client that shares nothing with `provider` but the backend."""
        with self.open(url, rival_env) as provider:
            yield provider

    @pytest.fixture
    def stopped_env(self, env: FakeEnvironment) -> FakeEnvironment:
        """Return the environment of `stopped`."""
        return env.stopped()

    @pytest.fixture
    def stopped(self, url: str, stopped_env: FakeEnvironment) -> Iterator[LockProvider]:
        """Yield a client whose own clocks stand still until they are advanced."""
        with self.open(url, stopped_env) as provider:
            yield provider

    @pytest.fixture
    def key(self, request: pytest.FixtureRequest) -> str:
        return f"contract/{request.node.name}/{uuid4().hex[:8]}"

    def open(self, url: str, env: Environment) -> LockProvider:
        """Open a provider; override it if it is not registered under its scheme."""
        return open_provider(url, env=env)

    def let_pass(self, env: FakeEnvironment, seconds: float) -> None:
        """Let time pass everywhere; only ``env`` acts meanwhile."""
        env.advance(seconds)

    def outlast(self, locks: LockProvider, key: str, env: FakeEnvironment) -> None:
        """Let a silent holder's lease end, as ``locks`` sees it: one observation, then more than the lease."""
        assert locks.try_acquire(key) is None
        self.let_pass(env, self.lease_s * 1.5)

    def cut_off(self) -> AbstractContextManager[None]:
        """Override: the backend answers no request in this block.

        Requests may be lost or arrive late.
        """
        pytest.skip("cut_off() is not overridden: nobody told how to keep this backend from answering")

    def restart(self) -> None:
        """Override: stop the backend as a crash would, and start it again with the same data."""
        pytest.skip("restart() is not overridden: nobody told how to restart this backend")
