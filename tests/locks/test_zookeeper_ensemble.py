"""zk:// on three servers: the leader dies, a minority is cut off, a server hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT, SIGSTOP
from threading import Event
from uuid import uuid4

import pytest

from lakelatch.environment import SystemEnvironment
from lakelatch.errors import LockTimeoutError, LockUnavailableError
from lakelatch.locks import Lease, LockProvider, Release, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

from ..servers.zookeeper_server import Ensemble, ensemble

pytestmark = [pytest.mark.server, pytest.mark.process]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("ensemble")) as servers:
        yield servers


@pytest.fixture
def servers(started: Ensemble) -> Ensemble:
    started.mend()
    return started


@pytest.fixture
def key() -> str:
    return f"k-{uuid4().hex}"


def open_on(hosts: str, *, session: str = "12s") -> LockProvider:
    return open_provider(f"zk://{hosts}/tests?session={session}", env=SystemEnvironment())


def acquire(provider: LockProvider, key: str, unhang: Callable[[], None] = lambda: None) -> Lease:
    """In spite of an election, while which no server takes new sessions, and none ends: to try again is safe."""
    give_up = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            return provider.acquire(key, wait_s=PATIENCE_S)
        except (LockUnavailableError, LockTimeoutError):
            if time.monotonic() > give_up:
                raise
            unhang()


def test_tokens_grow_across_servers_and_elections(servers: Ensemble, key: str) -> None:
    tokens = []
    for round_ in range(2):
        for door in servers.doors:
            with open_on(f"127.0.0.1:{door.port}") as locks, acquire(locks, key) as lease:
                tokens.append(lease.token)
        if not round_:
            servers.restart_leader()
    assert tokens == sorted(set(tokens))
    assert tokens[-1] >> 32 > tokens[0] >> 32  # another leader, another epoch


def test_holder_and_waiter_survive_the_leaders_death(servers: Ensemble, key: str) -> None:
    with (
        open_on(servers.hosts, session="60s") as first,
        open_on(servers.hosts, session="60s") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = first.acquire(key, wait_s=PATIENCE_S)
        waiting = pool.submit(second.acquire, key, wait_s=PATIENCE_S)
        until(lambda: queue(first, key) == 1, "the waiter does not line up")
        servers.nodes[servers.leader()].kill()
        servers.leader()  # a new one
        lease.ensure_held(fresh=True)
        assert queue(first, key) == 1, "the waiter has lost its place"
        assert lease.release() is Release.RELEASED
        with waiting.result() as next_lease:
            assert next_lease.token > lease.token


def queue(locks: LockProvider, key: str) -> int:
    holder = locks.inspect(key)
    return 0 if holder is None else len(holder.queue)


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_holder_on_the_wrong_side_of_a_cut_loses_before_anybody_else_gets_it(
    servers: Ensemble, key: str, who: str
) -> None:
    leader = servers.leader()
    cut = leader if who == "leader" else (leader + 1) % 3
    told = Event()
    with (
        open_on(f"127.0.0.1:{servers.doors[cut].port}", session="3s") as minority,
        open_on(",".join(f"127.0.0.1:{servers.doors[i].port}" for i in range(3) if i != cut)) as majority,
    ):
        lease = acquire(minority, key)
        lease.on_lost(lambda _: told.set())
        acquire(majority, key + "/other").release()
        servers.isolate(cut)
        others = [node for i, node in enumerate(servers.nodes) if i != cut]
        with acquire(majority, key, lambda: servers.unhang(others)) as theirs:
            assert lease.lost is not None, "two holders"
            assert theirs.token > lease.token
        assert told.wait(PATIENCE_S)
        with pytest.raises(LockUnavailableError):
            minority.acquire(key, wait_s=1)
        servers.heal()
        minority_again = acquire(minority, key)
        assert minority_again.token > theirs.token
        minority_again.release()


def test_a_server_that_hangs_is_left_in_time(servers: Ensemble, key: str) -> None:
    """The client's own time-out would come too late for the lease."""
    hanging = (servers.leader() + 1) % 3
    doors = [servers.doors[hanging], servers.doors[servers.leader()]]
    with open_on(f"127.0.0.1:{doors[0].port}", session="40s") as locks:
        lease = locks.acquire(key, wait_s=PATIENCE_S)
        # kazoo picks servers at random; this one has to begin with the one that will hang.
        client = locks._backend._session().open()  # type: ignore[attr-defined]
        client.set_hosts(",".join(f"127.0.0.1:{door.port}" for door in doors))
        servers.nodes[hanging].signal(SIGSTOP)
        try:
            before = lease.deadline
            until(lambda: lease.lost is not None or lease.deadline > before, "neither renewed nor lost")
            lease.ensure_held(fresh=True)
        finally:
            servers.nodes[hanging].signal(SIGCONT)
        assert lease.release() is Release.RELEASED
