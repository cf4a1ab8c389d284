"""Lock services that break one promise each, under the contract; test_contract.py runs them and sees who notices.

Not collected by itself. All of them are the one in memory, with a grant that brings no news, as behind a server.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

import pytest

from lakelatch.environment import Environment
from lakelatch.locks import LockProvider, Release
from lakelatch.locks.core.backend import Contender, Grant, LockRequest
from lakelatch.locks.core.provider import LeasedLocks
from lakelatch.locks.lock_url import parse_lock_url
from lakelatch.locks.memory import MemoryBackend
from lakelatch.testing import LockProviderContract


class Quiet(Grant):
    """A grant in memory; its holder hears of its end only when it asks."""

    def __init__(self, real: Any) -> None:
        self.real, self.token = real, real.token

    def renew(self) -> bool:
        return self.real.renew()

    def check(self) -> bool:
        return self.real.check()

    def release(self) -> Release:
        return self.real.release()


class QuietBackend(MemoryBackend):
    grant: ClassVar[type[Quiet]] = Quiet

    def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
        found = super().try_grant(ask, getattr(place, "real", place))
        return found and self.grant(found)


class TestSound(LockProviderContract):
    """Breaks nothing: what is noticed below is not the grant without news."""

    backend: ClassVar[type[MemoryBackend]] = QuietBackend

    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4()}"

    def open(self, url: str, env: Environment) -> LockProvider:
        settings = parse_lock_url(url)
        return LeasedLocks(self.backend(settings.host, env), settings, env)


# Grants --------------------------------------------------------------------------------------------------------------


class TestRenewsWhoeverHolds(TestSound):
    class backend(QuietBackend):  # noqa: N801 - as the attribute that it is
        class grant(Quiet):  # noqa: N801
            def renew(self) -> bool:
                with self.real._space.lock:
                    slot = self.real._space.slot(self.real._request.key)
                    slot.deadline = self.real._env.monotonic() + self.real._request.lease_s
                    return slot.holder is not None


class TestRenewsWithoutEffect(TestSound):
    class backend(QuietBackend):  # noqa: N801
        class grant(Quiet):  # noqa: N801
            def renew(self) -> bool:
                return self.real.check()


class TestChecksNothing(TestSound):
    class backend(QuietBackend):  # noqa: N801
        class grant(Quiet):  # noqa: N801
            def check(self) -> bool:
                return True


class TestReleasesWhoeverHolds(TestSound):
    class backend(QuietBackend):  # noqa: N801
        class grant(Quiet):  # noqa: N801
            def release(self) -> Release:
                with self.real._space.lock:
                    self.real._space.slot(self.real._request.key).free()
                return Release.RELEASED


class TestReleasesNothing(TestSound):
    class backend(QuietBackend):  # noqa: N801
        class grant(Quiet):  # noqa: N801
            def release(self) -> Release:
                return Release.RELEASED


# Places --------------------------------------------------------------------------------------------------------------


class _Contender(Contender):
    def __init__(self, real: Any, env: Environment) -> None:
        self.real, self.env = real, env

    def wait(self, limit_s: float) -> None:
        self.real.wait(limit_s)

    def leave(self) -> None:
        self.real.leave()


class TestPollsWithoutPause(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def line_up(self, key: str) -> Contender:
            class Contender(_Contender):
                def wait(self, limit_s: float) -> None:
                    self.env.sleep(0.001)  # a round trip, on which no CPU of ours is spent

            return Contender(super().line_up(key), self._env)


class TestLeavesNothing(TestSound):
    class backend(QuietBackend):  # noqa: N801
        """Nobody waits behind those who are gone: they are stepped over."""

        def line_up(self, key: str) -> Contender:
            class Contender(_Contender):
                def leave(self) -> None:
                    pass

            return Contender(super().line_up(key), self._env)

        def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
            slot, real = self._space.slot(ask.key), place.real  # type: ignore[attr-defined]
            line = slot.line[:]
            slot.line[:] = [real] if real in line else []
            try:
                return super().try_grant(ask, place)
            finally:
                slot.line[:] = [each for each in line if each is not real or real in slot.line]


class TestServesTheLastFirst(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def line_up(self, key: str) -> Contender:
            class Contender(_Contender):
                def wait(self, limit_s: float) -> None:
                    space = self.real._space
                    with space.lock:
                        line = space.slot(self.real._key).line
                        if self.real not in line:
                            line.insert(0, self.real)
                    self.real.wait(limit_s)

            return Contender(super().line_up(key), self._env)


# Backends ------------------------------------------------------------------------------------------------------------


class TestGrantsTwice(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
            self._space.slot(ask.key).holder = None
            return super().try_grant(ask, place)


class TestEndsNoLease(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
            slot = self._space.slot(ask.key)
            if slot.holder is not None:
                slot.deadline = float("inf")
            return super().try_grant(ask, place)


class TestRepeatsTokens(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
            slot = self._space.slot(ask.key)
            if slot.holder is None:
                slot.token = 0
            return super().try_grant(ask, place)


class TestBreaksWhoeverHolds(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
            slot = self._space.slot(key)
            return super().end(key, token=slot.token, reason=reason, who=who)


class TestBreaksUnseen(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
            done = super().end(key, token=token, reason=reason, who=who)
            self._space.slot(key).broken.clear()
            return done


class TestShowsNobody(TestSound):
    class backend(QuietBackend):  # noqa: N801
        def inspect(self, key: str) -> None:
            return None
