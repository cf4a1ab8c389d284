"""The contract on real object stores, and what only they can show."""

from __future__ import annotations

import json
import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import lakelatch
from lakelatch.environment import SYSTEM, Environment
from lakelatch.errors import ConfigError, InputError, LockError, LockUnavailableError, UnsafeStoreError
from lakelatch.locks import LockProvider, Release, open_provider
from lakelatch.locks.core.provider import LeasedLocks
from lakelatch.locks.lock_url import parse_lock_url
from lakelatch.locks.objects.backend import TOKEN_BLOCK, ObjectBackend
from lakelatch.locks.objects.pacing import Found, Pace, Rhythm
from lakelatch.locks.objects.record import LockObject
from lakelatch.locks.objects.server_clock import ServerClock, Stamp
from lakelatch.storage import Put, Store, Stored, open_store
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing import FakeEnvironment, LockProviderContract
from lakelatch.testing.faults import FaultStore, Late, LoseReply, On, Pause
from lakelatch.testing.unsafe_store import CheckThenWrite

from ..servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET, KEY, Bucket, Wire, azurite, free_port, require, running, s3s_fs
from .weather import Holder, KilledServer, holding, sits_out_an_outage


class Gateway:
    """A versitygw that can be killed and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._program = require("versitygw")
        self._running = ExitStack()
        (folder / "objects" / BUCKET).mkdir(parents=True)
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [self._program, "--port", f"127.0.0.1:{self.port}", "posix", str(self._folder / "objects")]
        keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY}
        self._server = self._running.enter_context(running(command, self.port, self._folder, keys))

    def kill(self) -> None:
        self._server.kill()
        self._running.close()

    def store(self, folder: str) -> Store:
        return open_store(f"s3://{BUCKET}/{folder}", endpoint=self.endpoint, region="us-east-1", allow_http="1")

    def url(self, folder: str = "locks", *, port: int | None = None, **options: str) -> str:
        told = {"endpoint": f"http://127.0.0.1:{port or self.port}", "region": "us-east-1", "allow_http": "1"} | options
        return f"s3://{BUCKET}/{folder}?" + "&".join(f"{name}={value}" for name, value in told.items())


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("versitygw"))
    yield gateway
    gateway.kill()


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with azurite(tmp_path_factory.mktemp("azurite")) as bucket:
        yield bucket


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where users have them: in the environment, never in a URL."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)


class Blind(ServerClock):
    """Learns nothing: the server's clock does not follow a fake one."""

    def saw(self, mtime: float | None, sent: Stamp, after: float) -> None:
        super().saw(None, sent, after)


class _Contract(LockProviderContract):
    across_processes = True
    lease_s = 2.0  # less than the URLs say
    many = 10  # with leases as short as theirs

    def open(self, url: str, env: Environment) -> LockProvider:
        locks = open_provider(url, env=env)
        if isinstance(env, FakeEnvironment):
            locks._backend.clock = Blind(env, 5.0, url)
        return locks


@pytest.mark.server
class TestS3Locks(KilledServer, _Contract):
    @pytest.fixture(autouse=True)
    def _server(self, s3: Gateway) -> None:
        self.server = s3

    @pytest.fixture
    def url(self, s3: Gateway) -> str:
        return s3.url(lease="18s")  # a third of it bounds requests: a busy machine does not answer for seconds


@pytest.mark.server
class TestAzureLocks(_Contract):
    @pytest.fixture
    def url(self, azure: Bucket) -> str:
        return f"{azure.url}/locks?endpoint={azure.options['endpoint']}&allow_http=1&account_name={AZURE_ACCOUNT}&lease=18s"


# Without a server: the same code on a folder, where answers can be lost at will -------------------------------------

KEY_NAME = "flights"


def locks_on(store: Store, env: Environment, *, url: str = "s3://bucket/locks", race: bool = False) -> LeasedLocks:
    settings = parse_lock_url(url, options=("layout",))
    kept = {} if race else {"race": lambda _: None}
    return LeasedLocks(ObjectBackend(store, settings.host, settings, 5.0, env, **kept), settings, env)


@pytest.fixture
def env() -> FakeEnvironment:
    return FakeEnvironment()


@pytest.fixture
def store(tmp_path: Path) -> FaultStore:
    return FaultStore(LocalStore(tmp_path))


@pytest.fixture
def locks(store: FaultStore, env: FakeEnvironment) -> LeasedLocks:
    locks = locks_on(store, env)
    locks.acquire("another", wait_s=0).release()  # what is done once is done
    return locks


@pytest.fixture
def rival(store: FaultStore, env: FakeEnvironment) -> LeasedLocks:
    return locks_on(store.inner, env.peer())


def lock_file(root: Path) -> Path:
    (found,) = [path for path in root.rglob("table_lock.json") if "another" not in str(path)]
    return found


def requests_of(locks: LeasedLocks, call: object) -> int:
    before = locks._backend.requests
    call()
    return locks._backend.requests - before


def test_requests_are_as_few_as_documented(locks: LeasedLocks, rival: LeasedLocks, env: FakeEnvironment) -> None:
    held = []

    def take() -> None:
        held.append(locks.acquire(KEY_NAME, wait_s=0))

    def give_back() -> None:
        held.pop().release()

    assert requests_of(locks, take) == 4  # the first time for this key: also a look at the tokens and a block of them
    assert requests_of(locks, lambda: held[0]._state.grant.renew()) == 1
    assert requests_of(locks, lambda: held[0].ensure_held()) == 0
    assert requests_of(locks, lambda: held[0].ensure_held(fresh=True)) == 1
    assert requests_of(locks, give_back) == 1
    assert requests_of(locks, take) == 2
    give_back()
    assert requests_of(locks, take) == 1  # nobody else was there the last time
    assert (
        requests_of(rival, lambda: rival.try_acquire(KEY_NAME)) == 4
    )  # in a new process: is the place proven? the clocks?
    assert requests_of(rival, lambda: rival.try_acquire(KEY_NAME)) == 1
    assert requests_of(rival, lambda: rival.inspect(KEY_NAME)) == 1
    give_back()
    rival.acquire(KEY_NAME, wait_s=0).release()
    assert requests_of(locks, take) == 3  # the guess that nobody came was wrong
    give_back()


def test_the_limit_of_leases_follows_from_how_long_writes_take(
    locks: LeasedLocks, store: FaultStore, env: FakeEnvironment
) -> None:
    locks.acquire(KEY_NAME, wait_s=10).release()
    for _ in range(16):
        store.add(Pause(On("replace_if_match", "table_lock"), call=lambda: env.advance(0.25)))
        lease = locks.acquire(KEY_NAME, wait_s=10)
        store.add(Pause(On("replace_if_match", "table_lock"), call=lambda: env.advance(0.25)))
        lease.release()
    assert locks.max_leases == 20  # of 30 s


def test_the_object_is_hudis_at_every_moment(locks: LeasedLocks, env: FakeEnvironment, tmp_path: Path) -> None:
    def seen() -> tuple[float, bool]:
        value = json.loads(lock_file(tmp_path).read_text())
        assert type(value["validUntil"]) is int
        assert type(value["expired"]) is bool
        assert str(uuid.UUID(value["owner"])) == value["owner"]
        return value["validUntil"] / 1000 - env.now(), value["expired"]

    lease = locks.acquire(KEY_NAME, wait_s=0, lease_s=30)
    assert seen() == (pytest.approx(30, abs=0.01), False)
    env.advance(12)
    assert seen() == (pytest.approx(28, abs=3), False)  # renewed
    lease.release()
    assert seen()[1] is True


def test_a_grant_whose_answer_is_lost_is_found(locks: LeasedLocks, store: FaultStore, rival: LeasedLocks) -> None:
    store.add(LoseReply(On("put_if_absent", "table_lock")))
    with locks.acquire(KEY_NAME, wait_s=0):
        assert rival.try_acquire(KEY_NAME) is None
    store.add(LoseReply(On("replace_if_match", "table_lock")))
    with locks.acquire(KEY_NAME, wait_s=0):
        assert rival.try_acquire(KEY_NAME) is None
    assert rival.inspect(KEY_NAME) is None


@pytest.mark.parametrize("op", ["put_if_absent", "replace_if_match"])
def test_a_request_that_lands_after_we_gave_up_gets_nothing(
    op: str, locks: LeasedLocks, store: FaultStore, rival: LeasedLocks
) -> None:
    if op == "replace_if_match":
        locks.acquire(KEY_NAME, wait_s=0).release()
    store.add(Late(On(op, "table_lock")))
    assert locks.try_acquire(KEY_NAME) is None
    store.land()
    assert rival.inspect(KEY_NAME) is None
    rival.acquire(KEY_NAME, wait_s=0).release()


def test_a_request_that_landed_late_while_we_wait_is_ours(locks: LeasedLocks, store: FaultStore) -> None:
    locks.acquire(KEY_NAME, wait_s=0).release()
    store.add(Late(On("replace_if_match", "table_lock")), Pause(On("get", "table_lock"), call=store.land, after=True))
    with locks.acquire(KEY_NAME, wait_s=5):
        pass


def test_a_token_reservation_without_answer_wastes_numbers_only(locks: LeasedLocks, store: FaultStore) -> None:
    store.add(LoseReply(On("put_if_absent", "tokens")))
    with locks.acquire(KEY_NAME, wait_s=1) as lease:
        assert lease.token == TOKEN_BLOCK + 1


@pytest.mark.parametrize("fault", [LoseReply, Late])
def test_a_renewal_without_answer_keeps_the_lease(
    fault: type, locks: LeasedLocks, store: FaultStore, rival: LeasedLocks, env: FakeEnvironment
) -> None:
    lease = locks.acquire(KEY_NAME, wait_s=0, lease_s=10)
    store.add(fault(On("replace_if_match", "table_lock")))
    env.advance(4)
    store.land()
    env.advance(8)
    lease.ensure_held(fresh=True)
    assert rival.try_acquire(KEY_NAME) is None
    assert lease.release() is Release.RELEASED


def test_a_late_renewal_does_not_undo_a_release(locks: LeasedLocks, store: FaultStore, rival: LeasedLocks) -> None:
    lease = locks.acquire(KEY_NAME, wait_s=0)
    store.add(Late(On("replace_if_match", "table_lock")))
    lease._state.grant.renew()
    assert lease.release() is Release.RELEASED
    store.land()
    assert rival.inspect(KEY_NAME) is None


def test_a_release_whose_answer_is_lost_is_seen_to_have_landed(
    locks: LeasedLocks, store: FaultStore, rival: LeasedLocks
) -> None:
    lease = locks.acquire(KEY_NAME, wait_s=0)
    store.add(LoseReply(On("replace_if_match", "table_lock")))
    assert lease.release() is Release.RELEASED
    lease = locks.acquire(KEY_NAME, wait_s=0)
    store.add(
        LoseReply(On("replace_if_match", "table_lock")),
        Pause(On("get", "table_lock"), call=lambda: rival.acquire(KEY_NAME, wait_s=0)),
    )
    assert lease.release() is Release.RELEASED


def test_a_break_whose_answer_is_lost_is_done_once(locks: LeasedLocks, store: FaultStore, rival: LeasedLocks) -> None:
    lease = rival.acquire(KEY_NAME, wait_s=0)
    store.add(LoseReply(On("replace_if_match", "table_lock")))
    assert locks.break_lease(KEY_NAME, token=lease.token, reason="stuck", who="alice")
    assert [record.token for record in locks.breaks(KEY_NAME)] == [lease.token]
    assert lease.release() is Release.WAS_LOST


def test_a_break_record_outlives_a_breaker_that_dies_in_between(
    locks: LeasedLocks, store: FaultStore, rival: LeasedLocks
) -> None:
    lease = rival.acquire(KEY_NAME, wait_s=0)
    store.add(Pause(On("get", "tokens"), call=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        locks.break_lease(KEY_NAME, token=lease.token, reason="stuck", who="alice")
    assert lease.release() is Release.WAS_LOST
    rival.acquire(KEY_NAME, wait_s=0).release()
    assert [record.who for record in rival.breaks(KEY_NAME)] == ["alice"]


def test_a_torn_object_is_refused_and_named(locks: LeasedLocks, tmp_path: Path) -> None:
    locks.acquire(KEY_NAME, wait_s=0).release()
    for body in (
        "",
        "{",
        "[]",
        '{"validUntil": 1, "expired": false}',
        '{"validUntil": "1", "expired": true, "owner": ""}',
    ):
        lock_file(tmp_path).write_text(body)
        with pytest.raises(LockError, match=r"table_lock.json cannot be read .* delete it"):
            locks_on(LocalStore(tmp_path), SYSTEM).try_acquire(KEY_NAME)
        assert lock_file(tmp_path).read_text() == body


def test_a_huge_object_is_refused_without_reading_it_whole(locks: LeasedLocks, tmp_path: Path) -> None:
    locks.acquire(KEY_NAME, wait_s=0).release()
    for name in ("table_lock.json", "tokens.json"):
        path = lock_file(tmp_path).with_name(name)
        kept = path.read_bytes()
        os.truncate(path, 1 << 40)
        with pytest.raises(LockError, match=f"{name}.* cannot be read"):
            locks_on(LocalStore(tmp_path), SYSTEM).try_acquire(KEY_NAME, token_above=1 << 40)
        path.write_bytes(kept)
    locks_on(LocalStore(tmp_path), SYSTEM).acquire(KEY_NAME, wait_s=0, token_above=1 << 40).release()


def test_a_reason_that_would_make_a_huge_object_is_refused(locks: LeasedLocks) -> None:
    with pytest.raises(InputError, match="give a shorter reason"):
        locks.try_acquire(KEY_NAME, reason="x" * (1 << 20))
    locks.acquire(KEY_NAME, wait_s=0, reason="x" * 1000).release()


# Beside a JVM -------------------------------------------------------------------------------------------------------


class Jvm:
    """Hudi's storage-based provider by its documented rules, sharing no code with ours."""

    def __init__(self, store: Store, env: FakeEnvironment) -> None:
        self.store, self.env, self.owner = store, env, str(uuid.uuid4())
        self.tag = ""

    def try_lock(self, validity_s: float = 300) -> bool:
        found = self.store.get(".hoodie/.locks/table_lock.json")
        if found is not None:
            value = json.loads(found.body)
            if not value["expired"] and not self.env.now() * 1000 > value["validUntil"] + 500:
                return False
        return self._put(False, self.env.now() + validity_s, found.tag if found else None)

    def unlock(self) -> bool:
        value = json.loads(self.store.get(".hoodie/.locks/table_lock.json").body)
        return self._put(True, value["validUntil"] / 1000, self.tag)

    def _put(self, expired: bool, until: float, tag: str | None) -> bool:
        body = json.dumps({"validUntil": int(until * 1000), "expired": expired, "owner": self.owner}).encode()
        path = ".hoodie/.locks/table_lock.json"
        put = self.store.put_if_absent(path, body) if tag is None else self.store.replace_if_match(path, body, tag)
        self.tag = put.tag or self.tag
        return put.done


@pytest.fixture
def shared(store: FaultStore, env: FakeEnvironment) -> LeasedLocks:
    return locks_on(store, env, url="s3://bucket/t?layout=hudi&key=table")


@pytest.fixture
def jvm(store: FaultStore, env: FakeEnvironment) -> Jvm:
    return Jvm(store.inner, env)


def test_we_and_a_jvm_exclude_each_other(shared: LeasedLocks, jvm: Jvm) -> None:
    tokens = []
    for _ in range(3):
        with shared.acquire("t", wait_s=0) as lease:
            tokens.append(lease.token)
            assert not jvm.try_lock()
        assert jvm.try_lock()
        assert shared.try_acquire("t") is None
        holder = shared.inspect("t")
        assert (holder.owner, holder.details) == (jvm.owner, {"writer": "JVM"})
        assert jvm.unlock()
    assert tokens == [
        1,
        TOKEN_BLOCK + 1,
        2 * TOKEN_BLOCK + 1,
    ]  # a JVM's write drops ours; a new block never repeats one


def test_both_take_over_half_a_second_after_the_published_end(
    shared: LeasedLocks, jvm: Jvm, env: FakeEnvironment
) -> None:
    assert jvm.try_lock(validity_s=10)
    env.suspend(10.49)
    assert shared.try_acquire("t") is None
    env.suspend(0.02)
    lease = shared.acquire("t", wait_s=0, lease_s=10)
    assert not jvm.unlock()
    env.suspend(10.49)
    assert not jvm.try_lock()
    env.suspend(0.02)
    assert jvm.try_lock()
    assert lease.release() is Release.WAS_LOST
    assert shared.try_acquire("t") is None


def test_a_jvms_hold_can_be_broken_by_its_number(shared: LeasedLocks, jvm: Jvm) -> None:
    assert jvm.try_lock()
    token = shared.inspect("t").token
    assert token < 0
    assert not shared.break_lease("t", token=token - 1, reason="wrong", who="x")
    assert shared.break_lease("t", token=token, reason="its host is gone", who="alice")
    with shared.acquire("t", wait_s=0):
        assert not jvm.unlock()
    assert [record.token for record in shared.breaks("t")] == [token]


# The place and the clock ----------------------------------------------------------------------------------------------


def test_a_store_whose_conditional_writes_race_is_refused_before_anything_is_granted(tmp_path: Path) -> None:
    locks = locks_on(CheckThenWrite(tmp_path), SYSTEM, race=True)
    with pytest.raises(UnsafeStoreError):
        locks.try_acquire(KEY_NAME)
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.thorough  # the server takes a minute to build
@pytest.mark.server
def test_s3s_fs_is_refused(tmp_path: Path) -> None:
    with s3s_fs(tmp_path) as bucket:
        url = f"{bucket.url}/locks?endpoint={bucket.options['endpoint']}&region=us-east-1&allow_http=1"
        with open_provider(url) as locks, pytest.raises(UnsafeStoreError):
            locks.try_acquire(KEY_NAME)


def test_a_place_is_raced_for_once(tmp_path: Path) -> None:
    raced: list[str] = []
    for where in ("one", "one", "two"):  # a copy of the objects elsewhere proves nothing
        settings = parse_lock_url("s3://b/l")
        backend = ObjectBackend(
            LocalStore(tmp_path), where, settings, 5.0, SYSTEM, race=lambda _, w=where: raced.append(w)
        )
        LeasedLocks(backend, settings, SYSTEM).acquire(KEY_NAME, wait_s=0).release()
    assert raced == ["one", "two"]


def clock_of(env: FakeEnvironment) -> ServerClock:
    return ServerClock(env, 5.0, "s3://b/l")


def saw(clock: ServerClock, env: FakeEnvironment, mtime: float) -> None:
    """A write that took 0.1 s, and the server's time on it."""
    sent = clock.stamp()
    env.suspend(0.1)
    clock.saw(mtime, sent, env.monotonic())


def test_a_proven_difference_is_corrected_and_no_more(env: FakeEnvironment) -> None:
    clock = clock_of(env)
    saw(clock, env, float(int(env.now())))
    assert clock.now() == env.now()
    saw(clock, env, float(int(env.now())) + 3)
    assert env.now() + 1.9 < clock.now() < env.now() + 3
    saw(clock, env, float(int(env.now())) - 3)  # one of the clocks was set
    assert env.now() - 3 < clock.now() < env.now() - 1.9


def test_a_clock_beyond_the_bound_is_refused(env: FakeEnvironment) -> None:
    for wrong_s, way in ((7, "behind"), (-7, "ahead of")):
        clock = clock_of(env)
        saw(clock, env, env.now() + wrong_s)
        with pytest.raises(LockError, match=f"{way} that of the server at s3://b/l.*NTP"):
            clock.check()


class Dated:
    """A store whose server has a clock that nobody sets, as every cloud's has; listings and streams are not for locks."""

    def __init__(self, inner: Store, env: FakeEnvironment) -> None:
        self._inner, self._env, self._times = inner, env, {}
        self._fast_s = env.now() - env.monotonic()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        found = self._inner.get(path, bytes_max=bytes_max)
        return found and replace(found, mtime=self._times.get(found.tag))

    def put(self, path: str, body: bytes) -> Put:
        return self._date(self._inner.put(path, body))

    def put_if_absent(self, path: str, body: bytes) -> Put:
        return self._date(self._inner.put_if_absent(path, body))

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        return self._date(self._inner.replace_if_match(path, body, tag))

    def _date(self, put: Put) -> Put:
        if put.tag is not None:
            self._times[put.tag] = float(int(self._env.monotonic() + self._fast_s))
        return put


@pytest.mark.parametrize("step_s", [60, -60, 3600, -3600])
def test_a_waiter_whose_clock_is_set_does_not_take_a_lock_that_is_held(
    tmp_path: Path, env: FakeEnvironment, step_s: float
) -> None:
    store = Dated(LocalStore(tmp_path), env)
    theirs = env.peer()
    waiter = locks_on(store, theirs)
    with locks_on(store, env).acquire(KEY_NAME, wait_s=0, lease_s=10) as lease:
        assert waiter.try_acquire(KEY_NAME) is None
        place = waiter._backend.line_up(KEY_NAME)
        theirs.set_wall(theirs.now() + step_s)
        ask = waiter._request(KEY_NAME, None, None, 0, "", waits=True)
        assert waiter._backend.try_grant(ask, place) is None  # a waiter that was in line
        assert waiter.inspect(KEY_NAME) is not None
        with pytest.raises(LockError, match="clock of this machine"):
            waiter.try_acquire(KEY_NAME)  # one that comes now
        env.advance(8)
        lease.ensure_held(fresh=True)


@pytest.mark.parametrize("step_s", [60, -60])
def test_a_holder_whose_clock_is_set_publishes_the_end_of_its_lease_as_before(
    tmp_path: Path, env: FakeEnvironment, step_s: float
) -> None:
    store = Dated(LocalStore(tmp_path), env)
    others = env.peer()
    with locks_on(store, env).acquire(KEY_NAME, wait_s=0, lease_s=10) as lease:
        env.set_wall(env.now() + step_s)
        for _ in range(4):
            env.advance(4)
            assert json.loads(lock_file(tmp_path).read_text())["validUntil"] / 1000 == pytest.approx(
                others.now() + 8, abs=3
            )
            assert locks_on(store, others).try_acquire(KEY_NAME) is None
        lease.ensure_held(fresh=True)


def test_a_machine_that_slept_asks_the_server_for_the_time(tmp_path: Path, env: FakeEnvironment) -> None:
    """Its monotonic clock has stood still, so what it knew of the server's means nothing."""
    store = Dated(LocalStore(tmp_path), env)
    theirs, now = env.peer(), env.now()
    sleeper = locks_on(store, theirs)
    sleeper.acquire(KEY_NAME, wait_s=0, lease_s=10).release()
    lease = locks_on(store, env).acquire(KEY_NAME, wait_s=0, lease_s=10)
    store._fast_s += 3600
    theirs.set_wall(now + 3600)
    assert (
        requests_of(sleeper, lambda: sleeper.acquire(KEY_NAME, wait_s=0).release()) == 2 + 2 + 1
    )  # measure, take, release
    assert lease.token


def test_setting_the_clock_costs_one_measurement(tmp_path: Path, env: FakeEnvironment) -> None:
    locks = locks_on(Dated(LocalStore(tmp_path), env), env)
    lease = locks.acquire(KEY_NAME, wait_s=0, lease_s=10)
    env.set_wall(env.now() + 2)
    assert requests_of(locks, lambda: lease._state.grant.renew()) == 3
    assert requests_of(locks, lambda: lease._state.grant.renew()) == 1


def test_a_provider_that_travels_leaves_what_its_clock_said_behind(tmp_path: Path, env: FakeEnvironment) -> None:
    clock = clock_of(env)
    saw(clock, env, env.now() + 3)
    assert not clock.due
    assert pickle.loads(pickle.dumps(ServerClock(SYSTEM, 5.0, "x"))).due
    assert clock.__reduce__()[1] == (env, 5.0, "s3://b/l")


@pytest.mark.server
def test_a_machine_with_a_wrong_clock_gets_no_lock(s3: Gateway) -> None:
    for wrong_s in (60, -60):
        with (
            open_provider(s3.url("clock"), env=FakeEnvironment(wall=time.time() + wrong_s)) as locks,
            pytest.raises(LockError, match="clock of this machine"),
        ):
            locks.try_acquire(KEY_NAME)
    with open_provider(s3.url("clock"), env=FakeEnvironment(wall=time.time() + 3)) as locks:
        before = time.time()
        lease = locks.acquire(KEY_NAME, wait_s=0, lease_s=30)
        assert before + 30 - 1.5 <= locks.inspect(KEY_NAME).until <= time.time() + 30 + 1.5
        lease.release()


# Order ------------------------------------------------------------------------------------------------------------------


def test_who_waited_longest_is_let_go_first(env: FakeEnvironment) -> None:
    lock = LockObject(0, True, "o", {"token": 7, "line": ["b", "c", "a"]})
    paces = {me: Pace(env, me, Rhythm(env), 1.0) for me in "abc"}
    assert [paces[me].saw_free(lock, "tag") for me in "bca"] == [True, False, False]
    waits = {me: pace._pause_s for me, pace in paces.items()}
    assert waits["b"] < waits["c"] < waits["a"]
    assert paces["b"].line_with_me(lock, waits=True) == ["c", "a", "b"]
    env.advance(waits["c"])
    assert paces["c"].saw_free(lock, "tag")
    missed = LockObject(0, True, "o", {"token": 8, "line": paces["c"].line_with_me(lock, waits=True)})
    assert missed.line == ["-b", "a", "c"]
    assert paces["b"].line_with_me(missed, waits=True) == ["a", "c", "b"]  # it was only slow
    assert paces["a"].saw_free(missed, "next"), "a waits for b, which did not come the last time"
    assert paces["a"].line_with_me(missed, waits=True) == ["--b", "c", "a"]
    dead = LockObject(0, True, "o", {"token": 9, "line": ["----b", "a", "c"]})
    assert paces["a"].line_with_me(dead, waits=True) == ["c", "a"]


def test_every_look_teaches_how_long_a_turn_is(env: FakeEnvironment) -> None:
    """A process that had learned a long one would sleep through its turns for good if only some looks counted."""
    rhythm = Rhythm(env)
    rhythm.cycle_s = 0.5
    pace = Pace(env, "me", rhythm, 3.0)
    for turn in range(10):
        lock = LockObject(0, True, "o", {"token": 7, "turn": turn, "line": ["b", "me"]})
        pace.saw_free(lock, f"{turn}")
        env.advance(0.01)
    assert rhythm.cycle_s < 0.05


def test_who_takes_it_again_leaves_the_line_as_it_is(locks: LeasedLocks, tmp_path: Path) -> None:
    lease = locks.acquire(KEY_NAME, wait_s=1)
    assert lease._state.grant._replace(
        lambda lock: replace(lock, ours=lock.ours | {"line": ["me"]})
    )  # as others left it
    lease.release()
    locks._backend.line_up(lease.key).rhythm.look_s = 60.0  # so that its turn is not over
    locks.acquire(KEY_NAME, wait_s=1).release()
    assert json.loads(lock_file(tmp_path).read_text())["lakelatch"]["line"] == ["me"]


@pytest.mark.parametrize(("line", "most"), [(["b", "a"], 6), (list("hgfedcba"), 4), ([f"{i}" for i in range(32)], 2)])
def test_a_turn_is_a_few_grants_and_no_more(env: FakeEnvironment, line: list[str], most: int) -> None:
    rhythm = Rhythm(env)
    rhythm.look_s = 0.01
    rhythm.took(turn=True)
    grants = 1
    for _ in range(10):
        rhythm.left(Found(LockObject(0, True, "o", {"token": 1, "line": line}), "tag"))
        if rhythm.recall() is None:
            break
        rhythm.took(turn=False)
        grants += 1
    assert grants == most
    rhythm.took(turn=True)
    env.advance(0.2)  # a hold that is longer than a turn
    rhythm.left(Found(LockObject(0, True, "o", {"token": 1, "line": line}), "tag"))
    assert rhythm.recall() is None


@pytest.mark.parametrize("hold_s", [0.0, 0.005, 0.2])
def test_a_newcomer_gets_in_between_the_holds_of_a_process_that_comes_back_at_once(
    env: FakeEnvironment, hold_s: float
) -> None:
    """It leaves no trace while it waits, so anyone who seems alone makes a pause, long enough to be found."""
    look_s, rhythm, taken_s = 0.002, Rhythm(env), 0.0
    rhythm.look_s = look_s
    pace = Pace(env, "a", rhythm, 3.0)
    free = Found(LockObject(0, True, "o", {"token": 1, "line": []}), "tag")
    rhythm.took(turn=True)
    for _ in range(50):
        env.advance(hold_s + look_s)
        taken_s += hold_s + look_s
        rhythm.left(free)
        rhythm.looked(look_s, free)  # nobody had come
        env.advance(0.0001)
        if rhythm.recall() is None:
            break
        rhythm.took(turn=False)
    else:
        pytest.fail("it never leaves room")
    assert taken_s <= max(1.0 + hold_s, 17 * look_s) + look_s
    assert pace.holds_back()
    assert pace._pause_s >= look_s
    assert pace._pause_s >= taken_s / 17  # a newcomer looks that often
    assert pace._pause_s <= taken_s / 16 + look_s  # and it costs no more than that


def test_pauses_that_there_are_leave_room_enough(env: FakeEnvironment) -> None:
    rhythm = Rhythm(env)
    rhythm.look_s = 0.002
    free = Found(LockObject(0, True, "o", {"token": 1, "line": []}), "tag")
    rhythm.took(turn=True)
    for _ in range(50):
        env.advance(0.1)
        rhythm.left(free)
        rhythm.looked(0.002, free)
        env.advance(0.1)
        assert rhythm.recall() is free
        rhythm.took(turn=False)


def test_a_lonely_process_leaves_no_line(locks: LeasedLocks, tmp_path: Path) -> None:
    for _ in range(3):
        locks.acquire(KEY_NAME, wait_s=1).release()
    assert json.loads(lock_file(tmp_path).read_text())["lakelatch"]["line"] == []


# Bad weather on a real server ---------------------------------------------------------------------------------------------


@pytest.mark.server
def test_lost_replies_of_a_real_server(s3: Gateway) -> None:
    with (
        Wire(s3.port) as wire,
        open_provider(s3.url("wire", port=wire.port)) as locks,
        open_provider(s3.url("wire")) as other,
    ):
        locks.acquire(KEY_NAME, wait_s=5).release()
        for _ in range(2):  # with a look first, and without
            wire.lose_next_reply()
            lease = locks.acquire(KEY_NAME, wait_s=5)
            assert other.try_acquire(KEY_NAME) is None
            wire.lose_next_reply()
            assert lease.release() is Release.RELEASED
        other.acquire(KEY_NAME, wait_s=5).release()


@pytest.mark.server
def test_a_waiter_sits_out_an_outage(s3: Gateway) -> None:
    sits_out_an_outage(s3, s3.url("outage", lease="6s"), KEY_NAME)


@pytest.mark.server
def test_what_cannot_be_reached_or_used_is_said_with_its_name(s3: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for url in (
        f"s3://{BUCKET}/x?endpoint=http://{nobody}&region=us-east-1&allow_http=1&lease=2s",
        s3.url("x").replace(BUCKET, "missing-bucket"),
    ):
        with open_provider(url) as locks, pytest.raises(LockUnavailableError, match="Nothing is held") as caught:
            locks.acquire(KEY_NAME, wait_s=5)
        assert nobody in str(caught.value) or "missing-bucket" in str(caught.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with open_provider(s3.url("x")) as locks, pytest.raises(LockUnavailableError) as caught:
        locks.acquire(KEY_NAME, wait_s=5)
    assert "wrong-secret" not in str(caught.value)


@pytest.mark.server
@pytest.mark.process
@pytest.mark.parametrize("how", [Holder.kill, Holder.stop])
def test_a_holder_that_is_killed_or_stopped_is_followed_after_its_lease(
    s3: Gateway, how: Callable[[Holder], None]
) -> None:
    url = s3.url("dead", lease="2s")
    with open_provider(url) as locks:
        locks.acquire("warm", wait_s=30).release()
        with holding(url, how.__name__) as holder:
            how(holder)
            locks.acquire(how.__name__, wait_s=30).release()
            if how is Holder.stop:
                holder.go_on()
                assert holder.says() == "expired was lost"


# URLs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("s3://user:secret@bucket/x", "password"),
        ("s3://bucket/x?secret_access_key=hidden", "unknown settings"),
        ("s3://bucket/x?layout=delta", "layout=hudi"),
        ("s3://bucket/x?max_skew=5", "max_skew"),
    ],
)
def test_senseless_urls_are_refused(url: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        open_provider(url)
    assert "hidden" not in str(caught.value)


def test_a_table_shared_with_a_jvm_has_one_lock_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_provider("s3://bucket/base?layout=hudi") as locks:
        assert locks._backend._store.url == "s3://bucket/base"
        assert locks.spell("s3://bucket/base") == locks.spell("something else") == "table"


def test_nobody_can_ask_for_a_lock_in_hudis_layout(store: FaultStore, env: FakeEnvironment) -> None:
    locks = locks_on(store, env, url="s3://bucket/table?layout=hudi")
    with pytest.raises(ConfigError, match="are one lock"), lakelatch.lock(locks, KEY_NAME, on_revoke=print, env=env):
        raise AssertionError("entered")
    with locks.acquire(KEY_NAME, wait_s=0), pytest.raises(ConfigError, match="are one lock"):
        lakelatch.lock(locks, KEY_NAME, env=env).ask_revoke(wait_s=0)


def test_several_keys_that_are_one_lock_are_refused_instead_of_waiting_for_each_other(
    store: FaultStore, env: FakeEnvironment
) -> None:
    locks = locks_on(store, env, url="s3://bucket/table?layout=hudi")
    before = env.monotonic()
    with (
        pytest.raises(InputError, match="are one lock, so"),
        lakelatch.lock(locks, ["a", "b"], wait_s=float("inf"), env=env),
    ):
        raise AssertionError("entered")
    assert env.monotonic() == before
    assert locks.inspect("a") is None
