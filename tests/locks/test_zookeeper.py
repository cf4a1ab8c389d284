"""The contract on zk://, and what only a ZooKeeper server can show."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

import lakelatch
from lakelatch.environment import SystemEnvironment
from lakelatch.errors import ConfigError, LockError, LockTimeoutError, LockUnavailableError, TokenRegressedError
from lakelatch.locks import Lease, LockProvider, Release, open_provider
from lakelatch.locks.interface import BREAKS_KEPT
from lakelatch.locks.zookeeper.nodes import node_name
from lakelatch.testing import FakeEnvironment, LockProviderContract
from lakelatch.testing.contention import PATIENCE_S, threads_of, until

from ..servers import Wire, free_port
from ..servers.zookeeper_server import Node, Relay, zookeeper
from .weather import StoppedServer, holding

pytestmark = [pytest.mark.server, pytest.mark.process]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as node:
        yield node


def end_session(node: Node, locks: LockProvider) -> None:
    """Have the server end the session of ``locks``, as it does after a session time-out."""
    client = locks._backend._session().open()  # type: ignore[attr-defined]
    thief = KazooClient(f"127.0.0.1:{node.port}", client_id=(client._session_id, client._session_passwd))
    thief.start(timeout=PATIENCE_S)
    thief.stop()  # for everybody who has it
    thief.close()


@pytest.fixture
def relay(node: Node) -> Iterator[Relay]:
    relay = Relay(node.port)
    yield relay
    relay.close()


@pytest.fixture
def address(node: Node) -> str:
    return f"zk://127.0.0.1:{node.port}/tests?session=18s"


class TestZooKeeperLocks(StoppedServer, LockProviderContract):
    across_processes = True
    server_clock = True
    lease_s = 3.0

    @pytest.fixture(autouse=True)
    def _server(self, node: Node, relay: Relay) -> None:
        self.server, self.relay = node, relay

    @pytest.fixture
    def url(self, address: str) -> str:
        return address

    @pytest.fixture
    def provider(self, url: str, env: FakeEnvironment) -> Iterator[LockProvider]:
        with self.open(url.replace(f":{self.server.port}", f":{self.relay.port}"), env) as provider:
            self.silent = provider
            yield provider
            self.relay.heal()  # before the provider is closed

    @pytest.fixture
    def stopped(self, url: str, stopped_env: FakeEnvironment) -> Iterator[LockProvider]:
        with self.open(url, stopped_env) as provider:
            self.silent = provider
            yield provider

    def outlast(self, locks: LockProvider, key: str, env: FakeEnvironment) -> None:
        # The client sends signs of life by itself, so it takes a cut line to silence it.
        self.relay.silence()
        end_session(self.server, self.silent)
        self.let_pass(env, self.lease_s * 1.1)
        self.relay.heal()

    def test_a_waiter_gets_it_when_the_holder_goes_silent(
        self, provider: LockProvider, rival: LockProvider, key: str
    ) -> None:
        first = provider.acquire(key, wait_s=0)
        self.relay.silence()
        with rival.acquire(key, wait_s=60) as second:
            assert second.token > first.token
            assert first.lost == "expired"

    def restart(self) -> None:
        super().restart()
        self.server.wait_ready()


@pytest.fixture
def admin(node: Node) -> Iterator[KazooClient]:
    """Somebody who looks at the server without us."""
    client = KazooClient(f"127.0.0.1:{node.port}")
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def key() -> str:
    return f"k-{uuid4().hex}"


@pytest.fixture
def locks(address: str) -> Iterator[LockProvider]:
    with open_provider(address) as provider:
        yield provider


def line(admin: KazooClient, key: str) -> list[str]:
    return admin.get_children(f"/tests/{key}")


# Answers that are lost.


def test_a_node_whose_creation_was_not_answered_is_found_again(node: Node, admin: KazooClient, key: str) -> None:
    with Wire(node.port) as wire, open_provider(f"zk://127.0.0.1:{wire.port}/tests?session=20s") as locks:
        locks.acquire(key, wait_s=20).release()  # all is open now
        wire.lose_next_reply()
        with locks.acquire(key, wait_s=20) as lease:
            lease.ensure_held(fresh=True)
            assert len(line(admin, key)) == 1
        assert line(admin, key) == []


def test_a_release_that_was_not_answered_is_looked_up(node: Node, admin: KazooClient, key: str) -> None:
    with Wire(node.port) as wire, open_provider(f"zk://127.0.0.1:{wire.port}/tests?session=20s") as locks:
        lease = locks.acquire(key, wait_s=20)
        wire.lose_next_reply()
        assert lease.release() is Release.RELEASED
        assert line(admin, key) == []


def test_what_could_not_be_removed_is_removed_later(relay: Relay, admin: KazooClient, key: str) -> None:
    with open_provider(f"zk://127.0.0.1:{relay.port}/tests?session=12s") as locks:
        lease = locks.acquire(key, wait_s=20)
        relay.silence()
        assert lease.release() is Release.UNKNOWN
        relay.heal()
        until(lambda: line(admin, key) == [], "the node of an unknown release stays")


def test_a_waiter_that_gives_up_while_cut_off_leaves_nothing(
    relay: Relay, locks: LockProvider, admin: KazooClient, key: str
) -> None:
    with (
        open_provider(f"zk://127.0.0.1:{relay.port}/tests?session=12s", env=SystemEnvironment()) as waiter,
        locks.acquire(key, wait_s=20),
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(waiter.acquire, key, wait_s=8)
        until(lambda: len(line(admin, key)) == 2, "the waiter does not line up")
        relay.silence()
        with pytest.raises((LockTimeoutError, LockUnavailableError)):
            waiting.result()
        relay.heal()
        until(lambda: len(line(admin, key)) == 1, "the waiter's node stays")


# News of a loss.


def test_a_holder_is_told_at_once_when_its_session_ends(node: Node, address: str, key: str) -> None:
    told = Event()
    with open_provider(address.replace("session=18s", "session=40s")) as locks, locks.acquire(key, wait_s=20) as lease:
        lease.on_lost(lambda _: told.set())
        end_session(node, locks)
        assert told.wait(PATIENCE_S)
        assert lease.lost == "expired"
        assert lease.release() is Release.WAS_LOST


def listen_only(locks: LockProvider, key: str) -> tuple[Lease, Any, Event]:
    """A lease whose loss neither a renewal nor the clock will tell, its grant, and what is set when it is lost."""
    told = Event()
    lease = locks.acquire(key, wait_s=20)
    lease.on_lost(lambda _: told.set())
    hold = lease._state  # type: ignore[attr-defined]
    hold.next_at = hold.deadline = float("inf")
    return lease, hold.grant, told


def test_a_holder_is_told_when_somebody_removes_its_node(address: str, admin: KazooClient, key: str) -> None:
    with open_provider(address.replace("session=18s", "session=40s")) as locks:
        lease, grant, told = listen_only(locks, key)
        assert grant.renew()  # with it the holder begins to listen
        assert locks.inspect(key)  # answered after that
        admin.delete(f"/tests/{key}/{line(admin, key)[0]}")
        assert told.wait(PATIENCE_S)
        assert lease.lost == "stolen"
        assert lease.release() is Release.WAS_LOST


def test_a_holder_is_told_of_a_removal_just_before_it_began_to_listen(
    address: str, admin: KazooClient, key: str
) -> None:
    with open_provider(address.replace("session=18s", "session=40s")) as locks:
        lease, grant, told = listen_only(locks, key)
        admin.delete(f"/tests/{key}/{line(admin, key)[0]}")
        grant.watch()
        assert told.wait(PATIENCE_S)
        assert lease.lost == "stolen"


def test_a_holder_whose_wish_to_listen_was_not_answered_wishes_again(node: Node, admin: KazooClient, key: str) -> None:
    with Wire(node.port) as wire, open_provider(f"zk://127.0.0.1:{wire.port}/tests?session=40s") as locks:
        _, grant, told = listen_only(locks, key)
        wire.lose_next_reply()
        grant.watch()
        until(lambda: not grant._watched, "nobody notices that no answer came")
        until(lambda: locks._backend._session().connected, "no connection again")  # type: ignore[attr-defined]
        assert grant.renew()
        assert locks.inspect(key)  # answered after that
        admin.delete(f"/tests/{key}/{line(admin, key)[0]}")
        assert told.wait(PATIENCE_S)


def test_a_record_of_a_break_is_no_contender(address: str, locks: LockProvider, admin: KazooClient, key: str) -> None:
    for i in range(BREAKS_KEPT + 2):
        lease = locks.acquire(key, wait_s=20)
        assert locks.break_lease(key, token=lease.token, reason=f"round {i}", who="alice")
    assert line(admin, key) == []
    assert [record.reason for record in locks.breaks(key)] == [f"round {i}" for i in range(2, BREAKS_KEPT + 2)]
    assert len(admin.get_children(f"/tests/{key}~breaks")) == BREAKS_KEPT


def test_a_break_that_was_not_answered_is_looked_up(node: Node, locks: LockProvider, key: str) -> None:
    with Wire(node.port) as wire, open_provider(f"zk://127.0.0.1:{wire.port}/tests?session=20s") as breaker:
        first = locks.acquire(key, wait_s=20)
        assert breaker.break_lease(key, token=first.token, reason="makes the folder", who="alice")
        first.release()
        second = locks.acquire(key, wait_s=20)
        session = breaker._backend._session()  # type: ignore[attr-defined]
        ask = session.ask

        def lose(send: Any, *, proves: bool = False) -> Any:
            if proves:  # the transaction
                session.ask = ask
                wire.lose_next_reply()
            return ask(send, proves=proves)

        session.ask = lose
        assert breaker.break_lease(key, token=second.token, reason="again", who="alice")
        assert [record.token for record in breaker.breaks(key)] == [first.token, second.token]


# Processes.


def test_a_killed_holder_is_followed_when_its_session_ends(address: str, locks: LockProvider, key: str) -> None:
    with holding(address.replace("18s", "6s"), key) as holder:
        holder.kill()
        began = time.monotonic()
        with locks.acquire(key, wait_s=60):
            assert time.monotonic() - began > 0.5, (
                "the lock did not outlive the process, so the session was not its own"
            )


_HOLD_A_TABLE = """
import sys
import lakelatch
table = lakelatch.open(sys.argv[1])
lease = table.lock.lease("holding")
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_killed_holder_of_a_table_keeps_others_out_for_a_session_of_the_tables_lease(
    node: Node, tmp_path: Path, key: str
) -> None:
    """With the lease of 30 s that a URL has by default the session would be 60 s, and the wait in vain."""
    url = str(tmp_path / "t")
    lock = f"zk://127.0.0.1:{node.port}/{key}"
    with lakelatch.create(url, record_key="id", schema="id string", lock=lock, lease_s=2.0, lock_wait_s=20.0) as table:
        command = [sys.executable, "-c", _HOLD_A_TABLE, url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            assert table.lock.provider()[0].inspect(table.url) is not None
            holder.kill()
        with table.lock.lease("following") as lease:
            lease.ensure_held(fresh=True)
        first = table.lock.provider()[0]
        table.change_settings(lease_s=3.0)
        table.insert([{"id": "a"}])
        with table.lock.lease("as the settings are now") as lease:
            lease.ensure_held(fresh=True)
        assert table.lock.provider()[0]._backend.lease_s_max() == 3.0
        with pytest.raises(LockError, match="closed"):
            first.try_acquire(key)


def test_a_stopped_holder_is_followed_and_knows_it(address: str, locks: LockProvider, key: str) -> None:
    with holding(address.replace("18s", "6s"), key) as holder:
        holder.stop()
        with locks.acquire(key, wait_s=60) as lease:
            holder.go_on()
            assert holder.says() == "expired was lost"
            lease.ensure_held(fresh=True)


# The server.


def test_waiters_sit_out_a_restart(node: Node, address: str, key: str) -> None:
    url = address.replace("18s", "30s")
    with (
        open_provider(url) as first,
        open_provider(url, env=SystemEnvironment()) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = first.acquire(key, wait_s=20)
        waiting = pool.submit(second.acquire, key, wait_s=PATIENCE_S)
        until(lambda: len(_queue(first, key)) == 1, "the waiter does not line up")
        node.kill()
        node.start()
        node.wait_ready()
        lease.ensure_held(fresh=True)
        assert lease.release() is Release.RELEASED
        waiting.result().release()


def test_a_waiter_sits_out_an_outage_that_no_session_outlives(node: Node, address: str, key: str) -> None:
    class Counting(SystemEnvironment):
        sleeps = 0

        def sleep(self, seconds: float) -> None:  # between two tries at servers that do not answer
            self.sleeps += 1
            super().sleep(seconds)

    env, url = Counting(), address.replace("18s", "6s")
    with (
        open_provider(url) as first,
        open_provider(url, env=env) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        first.acquire(key, wait_s=20)
        waiting = pool.submit(second.acquire, key, wait_s=2 * PATIENCE_S)
        until(lambda: len(_queue(first, key)) == 1, "the waiter does not line up")
        node.kill()
        try:
            until(lambda: waiting.done() or env.sleeps > 1, "it does not try again")
            assert not waiting.done(), waiting.exception()
        finally:
            node.start()
            node.wait_ready()
        waiting.result().release()


def _queue(locks: LockProvider, key: str) -> tuple[str, ...]:
    holder = locks.inspect(key)
    return () if holder is None else holder.queue


def test_a_server_that_was_built_anew_grants_nothing_below_the_known_tokens(tmp_path: Path, key: str) -> None:
    with zookeeper(tmp_path) as node:
        url = f"zk://127.0.0.1:{node.port}"
        with open_provider(url) as locks:
            for _ in range(5):
                with locks.acquire(key, wait_s=20) as lease:
                    token = lease.token
            node.kill()
            node.wipe()
            node.start()
            node.wait_ready()
        with open_provider(url) as locks:
            with pytest.raises(TokenRegressedError) as caught:
                locks.acquire(key, wait_s=20, token_above=token)
            assert caught.value.token <= token
            assert locks.inspect(key) is None
            locks.acquire(key, wait_s=20).release()


def test_a_provider_that_stays_open_reaches_a_server_that_was_built_anew(tmp_path: Path, key: str) -> None:
    with zookeeper(tmp_path) as node, open_provider(f"zk://127.0.0.1:{node.port}?session=6s") as locks:
        for _ in range(5):  # the new server's zxid will be smaller than what this client has seen
            locks.acquire(key, wait_s=20).release()
        lost = locks.acquire(key, wait_s=20)
        node.kill()
        node.wipe()
        node.start()
        node.wait_ready()
        with locks.acquire(f"{key}-other", wait_s=60):
            assert lost.lost is not None


def test_an_unreachable_server_is_named_and_no_thread_stays() -> None:
    url = f"zk://127.0.0.1:{free_port()}/tests?session=1s"
    with open_provider(url, env=SystemEnvironment()) as locks:
        with pytest.raises(LockUnavailableError, match=r"No ZooKeeper server of 127\.0\.0\.1:\d+ answered") as caught:
            locks.try_acquire("k")
        assert caught.value.retryable
        threads = threads_of(locks, "k")
    assert "No ZooKeeper server of" in threads.error
    assert not threads.left, "\n".join(threads.left)


def test_kazoos_own_lock_is_waited_for(locks: LockProvider, admin: KazooClient, key: str) -> None:
    theirs = admin.Lock(f"/tests/{key}", "somebody")
    theirs.acquire()
    assert locks.try_acquire(key) is None
    holder = locks.inspect(key)
    assert holder is not None
    assert holder.owner == "somebody"
    theirs.release()
    locks.acquire(key, wait_s=20).release()


def test_what_a_lock_costs(locks: LockProvider, key: str) -> None:
    backend = locks._backend  # type: ignore[attr-defined]
    locks.acquire(key, wait_s=20).release()  # the folder is there

    def cost(call: Callable[[], Any]) -> tuple[int, Any]:
        before = backend.requests
        result = call()
        return backend.requests - before, result

    requests, lease = cost(lambda: locks.acquire(key, wait_s=20))
    assert requests == 2  # make the node, look at the line
    assert cost(lambda: lease.ensure_held(fresh=True))[0] == 1
    assert cost(lease.release)[0] == 1
    requests, lease = cost(lambda: locks.try_acquire(key))
    assert requests == 3  # first look whether it is free
    lease.release()


def test_many_leases_are_renewed_in_one_request(locks: LockProvider, key: str) -> None:
    leases = [locks.acquire(f"{key}/{i}", wait_s=20) for i in range(30)]
    backend = locks._backend  # type: ignore[attr-defined]
    grants = [lease._state.grant for lease in leases]  # type: ignore[attr-defined]
    before = backend.requests
    assert backend.renew_many(grants) == [True] * 30
    assert backend.requests - before <= 1 + 30  # and each is watched from now on
    assert leases[3].release() is Release.RELEASED
    assert backend.renew_many(grants) == [True] * 3 + [False] + [True] * 26
    for lease in leases:
        lease.release()


# Credentials.


def test_nodes_belong_to_the_user_of_the_environment(address: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{address.partition('?')[0]}/{uuid4().hex}?session=5s"  # a base that alice makes
    monkeypatch.setenv("LAKELATCH_ZK_AUTH", "digest:alice:secret")
    with open_provider(url) as alices, alices.acquire(key, wait_s=20):
        with open_provider(url, env=SystemEnvironment()) as also_alices:
            assert also_alices.try_acquire(key) is None
        for other in ("digest:alice:wrong", ""):
            monkeypatch.setenv("LAKELATCH_ZK_AUTH", other)
            with open_provider(url, env=SystemEnvironment()) as others:
                with pytest.raises(ConfigError, match="LAKELATCH_ZK_AUTH=digest:user:password"):
                    others.try_acquire(key)
                with pytest.raises(ConfigError):
                    others.acquire(key + "/new", wait_s=5)
    monkeypatch.setenv("LAKELATCH_ZK_AUTH", "alice:secret")
    with open_provider(url) as locks, pytest.raises(ConfigError, match="must read") as caught:
        locks.try_acquire(key)
    assert "secret" not in str(caught.value)


def test_tls_with_the_clients_certificate(tmp_path: Path, key: str) -> None:
    store, trusted, ca = tmp_path / "server.p12", tmp_path / "trusted.p12", tmp_path / "ca.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", "changeit", "-alias", "zk"]
    make = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=localhost", "-ext", "san=dns:localhost", "-validity", "2"]
    subprocess.run([*keytool, *make], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(ca)], check=True, capture_output=True)
    keytool[2] = str(trusted)
    subprocess.run([*keytool, "-importcert", "-noprompt", "-file", str(ca)], check=True, capture_output=True)
    own = tmp_path / "own.pem"  # the same key and certificate serve the client
    command = ["openssl", "pkcs12", "-in", str(store), "-passin", "pass:changeit", "-nodes", "-out", str(own)]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port()
    settings = [
        f"secureClientPort={port}", "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={store}", "ssl.keyStore.password=changeit", "ssl.clientAuth=need",
        f"ssl.trustStore.location={trusted}", "ssl.trustStore.password=changeit",
    ]  # fmt: skip
    trust, proof = f"ca={ca}", f"cert={own}&cert_key={own}"
    with zookeeper(tmp_path / "zk", *settings):
        for host, good in (("localhost", "tls=1"), ("127.0.0.1", "tls=chain")):
            take(f"zk://{host}:{port}/t?{good}&{trust}&{proof}", key)
        for host, bad in (("localhost", proof), ("127.0.0.1", f"{trust}&{proof}"), ("localhost", trust)):
            refuse(f"zk://{host}:{port}/t?session=1s&tls=1&{bad}", key)
        nowhere = f"zk://localhost:{port}/t?tls=1&{trust}&cert={tmp_path}/nowhere"
        with open_provider(nowhere) as locks, pytest.raises(ConfigError, match="nowhere"):
            locks.try_acquire(key)


def take(url: str, key: str) -> None:
    with open_provider(url) as locks, locks.acquire(key, wait_s=20) as lease:
        lease.ensure_held(fresh=True)


def refuse(url: str, key: str) -> None:
    with open_provider(url) as locks, pytest.raises(LockUnavailableError, match="answered within"):
        locks.try_acquire(key)


# URLs and names.


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("zk:///tests", "names no server"),
        ("zk://a/tests?session=5", "not a duration"),
        ("zk://a/tests?session=5ms", "cannot work"),
        ("zk://a/tests?tls=yes", "means nothing"),
        ("zk://a/tests?ca=x.pem", "add tls=1"),
        ("zk://a/tests?sesion=5s", "unknown settings: sesion"),
        ("zk://user:secret@a/tests", "holds a password"),
        ("zk://a/../tests", "not a path"),
        ("zk://a/tests?key=a//b", "not a path"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        open_provider(url)
    assert "secret" not in str(caught.value)


def test_one_place_has_one_spelling() -> None:
    assert open_provider("zk://a,b:2182/base/").url == open_provider("zk://a:2181,b:2182/base").url


def test_names_are_legible_and_never_the_same() -> None:
    assert node_name("flights") == "flights"
    assert node_name("s3://b/t") == "s3%3A%2F%2Fb%2Ft"
    odd = [".", "..", "~", "%7E", "a~breaks", "é", "e\u0301", "x" * 300, "x" * 301, "zookeeper"]
    names = [node_name(key) for key in odd]
    assert len(set(names)) == len(odd)
    assert not any("/" in name or len(name) > 200 or name.endswith("~breaks") or set(name) == {"."} for name in names)


def test_a_fixed_key_is_the_nodes_name(address: str, admin: KazooClient, key: str) -> None:
    with open_provider(f"{address}&key={key}%20x") as locks, locks.acquire("s3://any/table", wait_s=20):
        assert len(line(admin, f"{key} x")) == 1
