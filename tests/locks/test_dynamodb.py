"""The contract on dynamodb://, on Amazon's emulator and on dynalite, and what only DynamoDB can show."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError

from lakelatch.environment import SYSTEM
from lakelatch.errors import ConfigError, LockLostError, LockTimeoutError, LockUnavailableError
from lakelatch.locks import LockProvider, Release, open_provider
from lakelatch.locks.core.backend import LockRequest
from lakelatch.locks.dynamodb.backend import BLOCK, LOOKS_ALONE, PATIENCE_MORE_S, PATIENCE_S, DynamoContender
from lakelatch.locks.dynamodb.item import OVERTAKEN_MAX, OVERTAKEN_MAX_ALONE, item_key, parse_item, second_key
from lakelatch.locks.dynamodb.table import Table
from lakelatch.testing import FakeEnvironment, LockProviderContract

from ..servers import Wire, free_port
from ..servers.dynamodb_server import CREDENTIALS, LOOPBACK, AmazonLock, Dynamo, DynamoAt, dynalite, dynamodb_local
from ..servers.moto_server import ONE_THREAD, moto_dynamodb, stands_in
from ..servers.policies import policy
from .weather import KilledServer, holding, sits_out_an_outage

LEASE_S = 10.0
MOTO_TOO = stands_in(real=LOOPBACK.exists())


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dynamo]:
    with dynamodb_local(tmp_path_factory.mktemp("dynamodb")) as server:
        yield server


LITE = pytest.param("lite", marks=pytest.mark.thorough)


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dynamo]:
    with dynalite(tmp_path_factory.mktemp("dynalite")) as server:
        yield server


@pytest.fixture
def key() -> str:
    return f"flights-{uuid4()}"


def test_the_documented_policy_has_the_requests_that_locks_send_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent, once = set[str](), Table._once

    def noted(self: Table, operation: str, request: dict[str, Any]) -> Any:
        sent.add(operation)
        return once(self, operation, request)

    monkeypatch.setattr(Table, "_once", noted)
    with moto_dynamodb() as server, open_provider(with_table(server)) as locks, open_provider(locks.url) as other:
        lease = locks.acquire("k", wait_s=5)
        with pytest.raises(LockTimeoutError):
            other.acquire("k", wait_s=0.1)
        lease.ensure_held(fresh=True)
        assert locks.break_lease("k", token=lease.token, reason="test", who="me")
        assert lease.release() is Release.WAS_LOST
        assert len(locks.breaks("k")) == 1
    stated = json.loads(policy("locks/dynamodb.md"))["Statement"]
    actions = {f"dynamodb:{each.title().replace('_', '')}" for each in sent}
    assert actions == {action for each in stated for action in each["Action"]}


def with_table(server: DynamoAt) -> str:
    """The URL; the table is there, because making it may take longer than a lease by a fake clock."""
    with open_provider(server.url()) as locks:
        locks.inspect("warm")
    return server.url()


class TestDynamoLocks(KilledServer, LockProviderContract):
    across_processes = True
    many = 30  # one renewal may take a busy machine long

    @pytest.fixture
    def url(self, local: Dynamo) -> str:
        self.server = local
        return with_table(local)


@pytest.mark.thorough
class TestDynamoLocksOnDynalite(LockProviderContract):
    """It does not return the item when a condition fails. Processes contend on Amazon's emulator, above."""

    many = 30

    @pytest.fixture
    def url(self, lite: Dynamo) -> str:
        return with_table(lite)


if MOTO_TOO:

    class TestDynamoLocksOnMoto(LockProviderContract):
        """Needs nothing but Python; what one thread can show."""

        many = 30

        @pytest.fixture(autouse=True)
        def _one_thread(self, request: pytest.FixtureRequest) -> None:
            if request.node.name in ("test_two_holders_never_overlap", "test_clients_are_served_in_order"):
                pytest.skip(ONE_THREAD)

        @pytest.fixture
        def url(self, imitation: DynamoAt) -> str:
            return with_table(imitation)


class World:
    """Two hosts with providers on one server, on one fake monotonic clock, and a look at the raw item."""

    def __init__(self, server: DynamoAt, key: str, *, apart_s: float = 0.0) -> None:
        self.env = FakeEnvironment()
        self.other_env = self.env.peer(wall=self.env.now() + apart_s)
        self.us = open_provider(server.url(), env=self.env)
        self.them = open_provider(server.url(), env=self.other_env)
        self.key = key
        self.client = server.client
        self.us.acquire("warm", wait_s=0).release()  # the table is there
        self.them.acquire("warm", wait_s=0).release()

    def item(self, name: str | None = None) -> dict[str, Any]:
        found = self.client.get_item(TableName="locks", Key={"key": {"S": name or self.key}}, ConsistentRead=True)
        return {name: next(iter(value.values())) for name, value in found.get("Item", {}).items()}

    def set(self, change: str, **values: Any) -> None:
        self.client.update_item(
            TableName="locks",
            Key={"key": {"S": self.key}},
            UpdateExpression=change,
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )


@pytest.fixture(scope="module")
def imitation() -> Iterator[DynamoAt]:
    with moto_dynamodb() as server:
        yield server


@pytest.fixture(params=["local", "imitation"] if MOTO_TOO else ["local"])
def server(request: pytest.FixtureRequest) -> DynamoAt:
    """Amazon's emulator, and moto, which is there on every machine."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def world(server: DynamoAt, key: str) -> World:
    return World(server, key)


def test_the_item_is_what_amazons_client_expects(world: World) -> None:
    lease = world.us.acquire(world.key, wait_s=0, lease_s=20, reason="commit")
    held = world.item()
    assert held["ownerName"] == lease.owner
    assert held["leaseDuration"] == "20000"
    assert len(held["recordVersionNumber"]) == 36
    assert "isReleased" not in held
    world.env.advance(8)
    assert world.item()["recordVersionNumber"] != held["recordVersionNumber"]
    lease.release()
    released = world.item()
    assert released["isReleased"] == "1"
    assert int(released["lakelatchFence"]) == lease.token == 1
    assert world.item(second_key(world.key))["lakelatchLimit"] == str(BLOCK)


def test_a_turn_costs_two_requests(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    before = world.us._backend.requests  # type: ignore[attr-defined]
    lease = world.us.acquire(world.key, wait_s=60)
    assert world.us._backend.requests == before + 1  # type: ignore[attr-defined]
    world.env.advance(10.1)  # a third of the lease
    assert world.us._backend.requests == before + 2  # type: ignore[attr-defined]
    lease.release()
    assert world.us._backend.requests == before + 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("apart_s", [-5 * 3600.0, 5 * 3600.0])
def test_clocks_hours_apart_change_nothing(server: DynamoAt, key: str, apart_s: float) -> None:
    world = World(server, key, apart_s=apart_s)
    lease = world.them.acquire(key, wait_s=0, lease_s=10)
    assert world.us.try_acquire(key) is None
    world.env.suspend(9.9)
    assert world.us.try_acquire(key) is None
    world.other_env.advance(0.05)  # a sign of life, just in time
    assert world.us.try_acquire(key) is None
    world.env.suspend(9)
    assert world.us.try_acquire(key) is None
    world.env.suspend(2)
    assert world.us.acquire(key, wait_s=0).token > lease.token


def test_a_provider_that_travels_watches_anew(world: World) -> None:
    """The monotonic clock of another machine may be days ahead: what was seen here must not look old there."""
    world.them.acquire(world.key, wait_s=0, lease_s=LEASE_S)
    assert world.us.try_acquire(world.key) is None
    backend = world.us._backend
    assert backend._watched
    copy = type(backend)(**backend.__getstate__())
    assert not copy._watched


def test_a_block_of_tokens_that_is_used_up_is_followed_by_the_next(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    world.set("SET lakelatchFence = :last", last={"N": str(BLOCK)})
    tokens = []
    for locks in (world.us, world.them, world.us):
        with locks.acquire(world.key, wait_s=0) as lease:
            tokens.append(lease.token)
    assert tokens == [BLOCK + 1, BLOCK + 2, BLOCK + 3]


def test_a_token_is_lifted_far_and_above_costs_nothing_when_it_is_met(world: World) -> None:
    with world.us.acquire(world.key, wait_s=0, token_above=10**12) as lease:
        assert lease.token > 10**12
    before = world.us._backend.requests  # type: ignore[attr-defined]
    world.us.acquire(world.key, wait_s=0, token_above=lease.token).release()
    assert world.us._backend.requests == before + 2  # type: ignore[attr-defined]


# The queue.


def test_a_waiter_that_died_is_put_out_of_the_queue(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    two, many = {"L": [{"S": "dead:1:a"}, {"S": "dead:2:b"}]}, {"N": str(OVERTAKEN_MAX_ALONE)}
    world.set("SET lakelatchQueue = :q, lakelatchOvertaken = :n", q=two, n=many)
    begin = world.env.monotonic()
    with pytest.raises(LockTimeoutError, match="Nothing is held"):
        world.us.acquire(world.key, wait_s=1)
    assert world.item()["lakelatchQueue"] == [{"S": "dead:1:a"}, {"S": "dead:2:b"}]  # ours is gone
    with world.us.acquire(world.key, wait_s=20):
        assert world.env.monotonic() - begin < 10
    assert world.item()["lakelatchQueue"] == []


def test_a_queue_of_dead_waiters_is_no_sum_of_waits(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    dead, many = {"L": [{"S": f"dead:{n}:a"} for n in range(8)]}, {"N": str(OVERTAKEN_MAX_ALONE)}
    world.set("SET lakelatchQueue = :q, lakelatchOvertaken = :n", q=dead, n=many)
    begin = world.env.monotonic()
    with world.us.acquire(world.key, wait_s=60):
        assert world.env.monotonic() - begin < PATIENCE_S + 8 * PATIENCE_MORE_S + 1.0
    assert world.item()["lakelatchQueue"] == []


def test_a_place_that_could_not_be_left_is_left_at_the_next_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when credentials expire while somebody waits: everybody behind that place would wait for it."""
    table = world.us._backend._table
    real = table._once
    with world.them.acquire(world.key, wait_s=0):

        def refuse(operation: str, request: dict[str, Any]) -> Any:
            if len(world.item().get("lakelatchQueue", [])) == 1:
                raise ClientError(
                    {"Error": {"Code": "ExpiredTokenException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, operation
                )
            return real(operation, request)

        monkeypatch.setattr(table, "_once", refuse)
        with pytest.raises(ConfigError, match="get new credentials"):
            world.us.acquire(world.key, wait_s=5)
        monkeypatch.setattr(table, "_once", real)
        assert len(world.item()["lakelatchQueue"]) == 1
        with pytest.raises(LockTimeoutError):
            world.us.acquire(world.key, wait_s=0)
    begin = world.env.monotonic()
    with world.us.acquire(world.key, wait_s=5):
        assert world.env.monotonic() - begin < 1.0
    assert world.item()["lakelatchQueue"] == []


@pytest.mark.parametrize(("waiting", "times"), [(1, OVERTAKEN_MAX_ALONE), (2, OVERTAKEN_MAX), (5, OVERTAKEN_MAX)])
def test_waiters_are_overtaken_a_few_times_and_never_more(world: World, waiting: int, times: int) -> None:
    """Else one process that comes back at once would be served alone, or each turn would cost a hand-over."""
    queue = {"L": [{"S": f"waiter:{i}"} for i in range(waiting)]}
    world.us.acquire(world.key, wait_s=0).release()
    world.set("SET lakelatchQueue = :q, lakelatchOvertaken = :n", q=queue, n={"N": "0"})
    with pytest.raises(LockTimeoutError):
        world.them.acquire(world.key, wait_s=0.001)  # they have not had it
    for _ in range(times):
        world.us.acquire(world.key, wait_s=0.001).release()
    with pytest.raises(LockTimeoutError):
        world.us.acquire(world.key, wait_s=0.001)
    first = world.us.acquire(world.key, wait_s=20)  # those waiters are dead, and put out one by one
    assert int(world.item()["lakelatchOvertaken"]) == 0, "it came in its turn, and may be overtaken no more often"
    first.release()


@pytest.mark.parametrize(("others", "looks"), [([], LOOKS_ALONE), (["alive:1:a"], 0)])
def test_where_nobody_queues_a_busy_lock_is_looked_at_again_before_joining(
    world: World, others: list[str], looks: int
) -> None:
    backend = world.us._backend  # type: ignore[attr-defined]
    with world.them.acquire(world.key, wait_s=0):
        world.set("SET lakelatchQueue = :q", q={"L": [{"S": each} for each in others]})
        place = backend.line_up(world.key)
        ask = LockRequest(world.key, "me", world.env.process(), LEASE_S, None, 0, "", waits=True)
        for _ in range(looks):
            before = backend.requests
            assert backend.try_grant(ask, place) is None
            assert (place.queued, backend.requests) == (False, before + 1)
        assert backend.try_grant(ask, place) is None
        assert [each["S"] for each in world.item()["lakelatchQueue"]] == [*others, "me"]
        place.leave()
        assert [each["S"] for each in world.item()["lakelatchQueue"]] == others


def test_who_tries_without_waiting_may_overtake(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    world.set("SET lakelatchQueue = :q", q={"L": [{"S": "dead:1:a"}]})
    lease = world.us.try_acquire(world.key)
    assert lease is not None


def waiter(env: FakeEnvironment, turns: dict[str, float], owner: str) -> DynamoContender:
    place = DynamoContender(cast(Table, None), "flights", env, turns, deque())
    place.request = LockRequest("flights", owner, env.process(), LEASE_S, None, 0, "", waits=True)
    place.queued = True
    return place


def show(place: DynamoContender, env: FakeEnvironment, *, holder: int, queue: list[str]) -> None:
    """One look at the lock while somebody holds it."""
    queued = {"L": [{"S": each} for each in queue]}
    seen = parse_item({"ownerName": {"S": f"holder {holder}"}, "lakelatchQueue": queued})
    place.note(seen, ends_at=env.monotonic() + LEASE_S, free=False)


def test_who_stands_behind_others_looks_seldom_and_all_of_a_process_know_how_seldom() -> None:
    env, turns = FakeEnvironment(), dict[str, float]()
    first = waiter(env, turns, "me")
    show(first, env, holder=1, queue=["a", "b", "me"])
    env.advance(0.02)
    show(first, env, holder=2, queue=["b", "me"])
    assert turns == {"flights": pytest.approx(0.02)}
    another = waiter(env, turns, "me too")
    show(another, env, holder=2, queue=[*"bcdefghi", "me too"])
    begin = env.monotonic()
    another.wait(10)
    assert 0.4 * 8 * 0.02 < env.monotonic() - begin < 8 * 0.02


def test_a_turn_that_was_long_once_is_soon_forgotten() -> None:
    """Who sleeps too long makes turns longer; if that counted in full, all would sleep longer and longer."""
    env, turns = FakeEnvironment(), {"flights": 0.02}
    place = waiter(env, turns, "me")
    for ahead, took_s in zip("abcdef", [0.0, 0.2, 0.02, 0.02, 0.02, 0.02], strict=True):
        env.advance(took_s)
        show(place, env, holder=ord(ahead), queue=[*"abcdef"["abcdef".index(ahead) :], "me"])
        assert turns["flights"] < 0.05
    assert turns["flights"] < 0.03


def test_a_turn_is_what_moves_the_queue() -> None:
    """A process that takes the lock three times running is one turn to those behind it: they need not look more often."""
    env, turns = FakeEnvironment(), dict[str, float]()
    place = waiter(env, turns, "me")
    for holder, queue in [(1, ["a", "b", "me"]), (2, ["a", "b", "me"]), (3, ["a", "b", "me"]), (4, ["b", "me"])]:
        show(place, env, holder=holder, queue=queue)
        env.advance(0.02)
    assert turns == {"flights": pytest.approx(0.06)}


def test_the_lock_itself_is_asked_for_when_it_may_be_free_at_once() -> None:
    env, turns = FakeEnvironment(), dict[str, float]()
    place = waiter(env, turns, "me")
    for queue, turn_s, soon in [
        (["me"], 1.0, True), (["a", "me"], 0.02, True), (["a", "me"], 1.0, False), (["a", "b", "me"], 0.02, False),
    ]:  # fmt: skip
        turns["flights"] = turn_s
        show(place, env, holder=1, queue=queue)
        assert place.expects_soon() is soon, queue
    show(place, env, holder=2, queue=["me"])
    env.advance(0.1)
    assert not place.expects_soon(), "a long hold is looked at, which costs less"


def test_processes_are_served_in_the_order_they_came(local: Dynamo, key: str) -> None:
    order: list[int] = []
    providers = [open_provider(local.url(), env=type(SYSTEM)()) for _ in range(4)]  # as four processes have them
    holder = open_provider(local.url())

    def take(i: int) -> None:
        with providers[i].acquire(key, wait_s=60):
            order.append(i)

    def queue_length() -> int:
        found = holder.inspect(key)
        assert found is not None
        return len(found.queue)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
    with holder.acquire(key, wait_s=10):
        for i, thread in enumerate(threads):
            thread.start()
            until(lambda i=i: queue_length() == i + 1)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [0, 1, 2, 3]


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)  # nothing tells us of the server's state


def test_a_renewal_tells_a_later_end_and_leaves_the_other_facts(world: World) -> None:
    with world.us.acquire(world.key, wait_s=0, lease_s=LEASE_S, reason="nightly delete"):
        granted = world.them.inspect(world.key)
        world.env.advance(LEASE_S / 2)
        renewed = world.them.inspect(world.key)
    assert granted is not None
    assert renewed is not None
    assert granted.until is not None
    assert renewed.until is not None
    assert renewed.until > granted.until
    assert replace(renewed, until=granted.until) == granted


# Amazon's client.


@pytest.mark.parametrize("delete", [True, False])
def test_amazons_client_and_we_exclude_each_other(local: Dynamo, key: str, delete: bool) -> None:
    with (
        open_provider(local.url(more="&lease=9s")) as locks,
        AmazonLock(local, key, lease_s=6.0, delete=delete) as java,
    ):
        tokens = []
        for wait_s in (7, 0):  # longer than its lease: it is renewed, and respected
            lease = locks.acquire(key, wait_s=20)
            tokens.append(lease.token)
            assert java.tell("acquire") == "busy"
            lease.ensure_held(fresh=True)
            assert lease.release() is Release.RELEASED
            assert java.tell("acquire") == "held"
            found = locks.inspect(key)
            assert found is not None
            assert found.token < 0
            with pytest.raises(LockTimeoutError):
                locks.acquire(key, wait_s=wait_s)
            assert java.tell("release") == "released"
        assert tokens == sorted(set(tokens))


def test_amazons_client_dies_and_is_followed(local: Dynamo, key: str) -> None:
    with open_provider(local.url()) as locks, AmazonLock(local, key, lease_s=1.0) as java:
        first = locks.acquire(key, wait_s=10)
        first.release()
        assert java.tell("acquire") == "held"
        java.process.kill()
        with locks.acquire(key, wait_s=30) as lease:
            assert lease.token > first.token


def test_we_die_and_amazons_client_follows(local: Dynamo, key: str) -> None:
    with holding(local.url(more="&lease=6s"), key) as holder, AmazonLock(local, key) as java:
        holder.kill()
        until(lambda: java.tell("acquire") == "held")


def test_a_jvm_holder_is_broken_by_its_own_number_only(world: World) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    put = {"key": world.key, "ownerName": "host-1", "leaseDuration": "60000", "recordVersionNumber": str(uuid4())}
    item = {name: {"S": value} for name, value in put.items()}
    world.client.put_item(TableName="locks", Item=item)
    found = world.us.inspect(world.key)
    assert found is not None
    assert found.owner == "host-1"
    world.client.put_item(TableName="locks", Item=item | {"ownerName": {"S": "host-2"}})
    assert not world.us.break_lease(world.key, token=found.token, reason="stuck", who="alice")
    found = world.us.inspect(world.key)
    assert found is not None
    assert world.us.break_lease(world.key, token=found.token, reason="stuck", who="alice")
    assert world.us.acquire(world.key, wait_s=0).token == BLOCK + 1


def test_records_of_breaks_survive_a_jvm_writer_and_the_oldest_go(world: World) -> None:
    for i in range(45):
        lease = world.us.acquire(world.key, wait_s=0)
        assert world.them.break_lease(world.key, token=lease.token, reason=f"try {i}", who="alice")
        assert lease.release() is Release.WAS_LOST
    world.client.delete_item(TableName="locks", Key={"key": {"S": world.key}})
    records = world.us.breaks(world.key)
    assert 20 <= len(records) <= 41
    assert records[-1].reason == "try 44"
    assert world.us.acquire(world.key, wait_s=0).token > records[-1].token


def test_a_torn_item_is_judged_by_our_own_lease(world: World) -> None:
    put = {"key": world.key, "ownerName": "x", "leaseDuration": "soon", "lakelatchHolder": "{"}
    world.client.put_item(TableName="locks", Item={name: {"S": value} for name, value in put.items()})
    assert world.us.try_acquire(world.key) is None
    world.env.suspend(31)
    assert world.us.try_acquire(world.key) is not None


@pytest.mark.parametrize("end", ["lease", "break"])
def test_one_that_slept_between_the_lock_and_its_number_gets_neither(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    backend = world.us._backend  # type: ignore[attr-defined]
    reserve, successors = backend._reserve, []

    def slow_reserve(*args: Any) -> Any:
        monkeypatch.setattr(backend, "_reserve", reserve)
        found = world.them.inspect(world.key)
        assert found is not None
        if end == "lease":
            world.env.suspend(31)
        else:
            assert world.them.break_lease(world.key, token=found.token, reason="stuck", who="alice")
        successors.append(world.them.try_acquire(world.key))
        return reserve(*args)

    monkeypatch.setattr(backend, "_reserve", slow_reserve)
    assert world.us.try_acquire(world.key) is None
    assert successors[0] is not None
    successors[0].ensure_held(fresh=True)
    assert successors[0].release() is Release.RELEASED
    with world.us.acquire(world.key, wait_s=0) as lease:
        assert lease.token > successors[0].token


# Answers that are lost, late, or no.


@pytest.mark.parametrize("emulator", ["local", LITE, "imitation"])
def test_any_lost_answer_leaves_no_lock_behind(emulator: str, request: pytest.FixtureRequest) -> None:
    server: DynamoAt = request.getfixturevalue(emulator)
    with Wire(server.port) as wire, open_provider(server.url(), env=type(SYSTEM)()) as direct:
        direct.acquire("warm", wait_s=10).release()
        for lost in range(6):  # which answer: of the try, the look, the block, the number, or the release
            key = f"lost-{lost}-{uuid4()}"
            with open_provider(server.url(port=wire.port)) as locks:
                locks.inspect(key)  # connected
                client = locks._backend._table._connected()  # type: ignore[attr-defined]
                countdown = iter(range(lost, -1, -1))

                def count(countdown: Iterator[int] = countdown, **_: Any) -> None:
                    if next(countdown, 1) == 0:
                        wire.lose_next_reply()

                client.meta.events.register("before-send.dynamodb", count)
                lease = locks.acquire(key, wait_s=10)
                lease.ensure_held(fresh=True)
                assert direct.try_acquire(key) is None
                assert lease.release() is Release.RELEASED
            with direct.acquire(key, wait_s=0) as after:
                assert after.token > lease.token


def test_a_release_whose_answer_is_lost_while_a_successor_comes_is_known(server: DynamoAt, key: str) -> None:
    with (
        Wire(server.port) as wire,
        open_provider(server.url(port=wire.port)) as locks,
        open_provider(server.url(), env=type(SYSTEM)()) as next_,
    ):
        lease = locks.acquire(key, wait_s=10)
        taken: list[Any] = []
        events = locks._backend._table._connected().meta.events  # type: ignore[attr-defined]
        wire.lose_next_reply()

        def before_the_second_try(**_: Any) -> None:
            count.append(1)
            if len(count) == 2:
                taken.append(next_.acquire(key, wait_s=0))

        count: list[int] = []
        events.register("before-send.dynamodb", before_the_second_try)
        assert lease.release() is Release.RELEASED
        taken[0].ensure_held(fresh=True)
        taken[0].release()


def answer(
    locks: LockProvider, code: str, *, times: int = 10**9, status: int = 400, message: str = "injected"
) -> list[int]:
    """Have the next requests answered so, without the server; the returned list grows with each."""
    seen: list[int] = []

    def respond(request: Any, **_: Any) -> AWSResponse | None:
        if len(seen) >= times:
            return None
        seen.append(1)
        response = AWSResponse(request.url, status, {}, None)
        response._content = f'{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "{message}"}}'.encode()
        return response

    events = locks._backend._table._connected().meta.events  # type: ignore[attr-defined]
    events.register("before-send.dynamodb", respond)
    return seen


def test_the_limit_of_leases_follows_from_how_long_writes_take(world: World) -> None:
    def slow(**_: Any) -> None:
        world.env.advance(0.25)

    world.us._backend._table._connected().meta.events.register("before-send.dynamodb", slow)  # type: ignore[attr-defined]
    for _ in range(16):
        world.us.acquire(world.key, wait_s=10).release()
    assert world.us.max_leases == 20  # type: ignore[attr-defined]  # of 30 s


THROTTLED = ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"]


@pytest.mark.parametrize("code", THROTTLED)
def test_throttling_is_waited_out(world: World, code: str) -> None:
    world.us.acquire(world.key, wait_s=0).release()
    seen = answer(world.us, code, times=4)
    begin = world.env.monotonic()
    with world.us.acquire(world.key, wait_s=0) as lease:
        assert len(seen) == 4
        assert lease.deadline <= begin + 30
        seen += answer(world.us, code, times=3)
        world.env.advance(20)  # renewals are throttled, too
        lease.ensure_held()


def test_throttling_without_end_uses_the_callers_time_and_says_so(world: World) -> None:
    answer(world.us, THROTTLED[0])
    begin = world.env.monotonic()
    with pytest.raises(LockUnavailableError, match="no capacity left") as caught:
        world.us.acquire(world.key, wait_s=40)
    assert 39 < world.env.monotonic() - begin < 55
    assert caught.value.throttled
    begin = world.env.monotonic()
    with pytest.raises(LockUnavailableError, match="Nothing is held"):
        world.us.try_acquire(world.key)
    assert world.env.monotonic() - begin < 10
    assert world.them.try_acquire(world.key) is not None


def test_server_errors_are_tried_again(world: World) -> None:
    answer(world.us, "InternalServerError", times=2, status=500)
    with world.us.acquire(world.key, wait_s=0) as lease:
        lease.ensure_held(fresh=True)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("AccessDeniedException", "dynamodb:UpdateItem"),
        ("UnrecognizedClientException", "AWS_ACCESS_KEY_ID"),
        ("InvalidSignatureException", "clock"),
        ("ExpiredTokenException", "new credentials"),
    ],
)
def test_a_refusal_says_what_to_do(world: World, code: str, says: str) -> None:
    answer(world.us, code, times=1)
    with pytest.raises(ConfigError, match=says):
        world.us.try_acquire(world.key)
    world.us.acquire(world.key, wait_s=0).release()


def test_without_credentials(server: DynamoAt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with open_provider(server.url()) as locks, pytest.raises(ConfigError, match="no AWS credentials"):
        locks.try_acquire("x")


def test_a_missing_table_is_made_unless_that_is_forbidden(server: DynamoAt, world: World) -> None:
    with (
        open_provider(server.url("missing", more="&create=0")) as locks,
        pytest.raises(ConfigError, match="create=0 forbids"),
    ):
        locks.try_acquire("x")
    with open_provider(server.url("fresh")) as locks:
        locks.acquire("x", wait_s=0).release()
    table = world.client.describe_table(TableName="fresh")["Table"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


@pytest.mark.parametrize(("code", "status"), [(THROTTLED[0], 400), ("InternalServerError", 500), ("", 0)])
@pytest.mark.parametrize("looks", [1, 2], ids=["while it is made", "at its key"])
def test_a_server_that_is_busy_while_a_table_is_made_is_told_as_any_other(
    server: DynamoAt, looks: int, code: str, status: int
) -> None:
    """It had lost the table with its disk, and throttled everybody who asked (weather)."""
    with open_provider(server.url(f"busy-{looks}-{code}{status}"), env=type(SYSTEM)()) as locks:
        table, count = locks._backend._table, []  # type: ignore[attr-defined]
        describe = table._connected().describe_table

        def busy(**given: Any) -> Any:
            count.append(1)
            if len(count) != looks:
                return describe(**given)
            if not code:
                raise ReadTimeoutError(endpoint_url="x")
            said = {"Error": {"Code": code, "Message": "injected"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(said, "DescribeTable")  # type: ignore[arg-type]

        table._connected().describe_table = busy
        with pytest.raises(LockUnavailableError, match="Nothing is held") as caught:
            locks.try_acquire("x")
        assert bool(caught.value.throttled) == (code in THROTTLED)
        locks.acquire("x", wait_s=60).release()


@pytest.mark.parametrize("emulator", ["local", LITE])
def test_eight_at_once_make_a_missing_table(emulator: str, request: pytest.FixtureRequest) -> None:
    server: Dynamo = request.getfixturevalue(emulator)
    errors: list[Exception] = []

    def take() -> None:
        try:
            with open_provider(server.url("crowd"), env=type(SYSTEM)()) as locks:
                locks.acquire("x", wait_s=60).release()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert errors == []


def test_a_table_with_another_key_is_refused(server: DynamoAt, world: World) -> None:
    world.client.create_table(
        TableName="foreign",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}, {"AttributeName": "sort", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("key", "sort")],
        BillingMode="PAY_PER_REQUEST",
    )
    with open_provider(server.url("foreign")) as locks, pytest.raises(ConfigError, match=r"sort \(RANGE, type S\)"):
        locks.try_acquire("x")


def test_a_waiter_sits_out_an_outage(local: Dynamo, key: str) -> None:
    sits_out_an_outage(local, local.url(more="&lease=6s"), key)


def test_an_unreachable_host_is_named_in_bounded_time() -> None:
    port, threads = free_port(), threading.active_count()
    url = f"dynamodb://eu-west-1/locks?endpoint=http://127.0.0.1:{port}&lease=3s"
    with open_provider(url) as locks:
        begin = time.monotonic()
        with pytest.raises(LockUnavailableError, match=f"127.0.0.1:{port}"):
            locks.acquire("x", wait_s=100)
        assert time.monotonic() - begin < 50
    assert threading.active_count() <= threads + 1  # the process's renewer, which other tests may have started


def test_a_password_of_the_environments_endpoint_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://user:hunter2@127.0.0.1:1")
    with (
        open_provider("dynamodb://eu-west-1/locks?lease=3s") as locks,
        pytest.raises(LockUnavailableError, match=r"127\.0\.0\.1:1") as caught,
    ):
        locks.acquire("x", wait_s=0)
    assert "hunter2" not in str(caught.value) + repr(vars(caught.value))


def test_a_server_that_hangs_is_given_up_and_grants_nothing_later(local: Dynamo, key: str) -> None:
    with open_provider(local.url(more="&lease=3s")) as locks, open_provider(local.url(), env=type(SYSTEM)()) as rival:
        rival.acquire(key, wait_s=10).release()
        locks.acquire(key, wait_s=10).release()
        local.signal(signal.SIGSTOP)
        try:
            with pytest.raises(LockUnavailableError, match="gives no answer"):
                locks.acquire(key, wait_s=60)
        finally:
            local.signal(signal.SIGCONT)
        with rival.acquire(key, wait_s=60):  # the request may have been granted later; that grant ends with its lease
            pass


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://eu-west-1", "names no DynamoDB table"),
        ("dynamodb:///table", "names no DynamoDB table"),
        ("dynamodb://eu-west-1/a/b", "names no DynamoDB table"),
        ("dynamodb://eu-west-1/t?create=maybe", "must be 0 or 1"),
        ("dynamodb://eu-west-1/t?endpoint=localhost:8000", "must begin with http"),
        ("dynamodb://eu-west-1/t?region=x", "unknown settings"),
    ],
)
def test_a_senseless_url_is_refused_when_it_is_opened(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_provider(url)


def test_a_region_that_does_not_exist_is_refused() -> None:
    with open_provider("dynamodb://atlantis/locks") as locks, pytest.raises(ConfigError, match="no AWS region"):
        locks.try_acquire("x")


def test_keys_become_items_without_meeting() -> None:
    assert item_key("s3://bücket/表") == "s3://bücket/表"
    odd = ["a" * 1900, "a" * 1901, "a" * 1902, "ü" * 1000, "x#lakelatch-fence", second_key(item_key("a" * 1901))]
    names = [name for key in odd for name in (item_key(key), second_key(item_key(key)))]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 2048 for name in names)


# Real processes.


@pytest.mark.process
def test_a_killed_holder_is_followed_after_its_lease(local: Dynamo, key: str) -> None:
    with holding(local.url(more="&lease=6s"), key) as holder, open_provider(local.url()) as locks:
        holder.kill()
        with locks.acquire(key, wait_s=60) as lease:
            assert lease.token == holder.token + 1


@pytest.mark.process
def test_a_stopped_holder_is_followed_and_notices_by_itself(local: Dynamo, key: str) -> None:
    with holding(local.url(more="&lease=6s"), key) as holder, open_provider(local.url()) as locks:
        holder.stop()
        with locks.acquire(key, wait_s=60) as lease:
            assert lease.token == holder.token + 1
            holder.go_on()
            assert holder.says() == f"expired {Release.WAS_LOST.value}"
            lease.ensure_held(fresh=True)


def test_a_lease_that_a_jvm_writer_took_over_is_lost(world: World) -> None:
    lease = world.us.acquire(world.key, wait_s=0)
    world.client.put_item(
        TableName="locks", Item={"key": {"S": world.key}, "ownerName": {"S": "j"}, "leaseDuration": {"S": "1"}}
    )
    with pytest.raises(LockLostError, match="somebody else"):
        lease.ensure_held(fresh=True)
    assert lease.release() is Release.WAS_LOST
    assert world.item()["ownerName"] == "j"
