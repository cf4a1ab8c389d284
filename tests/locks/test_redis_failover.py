"""Redis with more than one server: what a fail-over may do to the lock, and that it does nothing to a table."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import lakelatch
from lakelatch.environment import SYSTEM
from lakelatch.errors import ConflictError, LockUnavailableError
from lakelatch.locks import Lease, open_provider
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import Call, FaultStore, Pause

from ..occ.world import BEGUN, add, check_sound, content, make, writes
from ..servers.redis_server import RedisServer, redis_cluster, redis_sentinel, redis_server, replicate, until

pytestmark = pytest.mark.server


class Link:
    """A relay that a replica reaches its master through. Cut, it keeps what the master says for itself: a network that
    fails loses what was on its way. (A stopped replica would still find it in its socket.)"""

    def __init__(self, port: int) -> None:
        self._target = port
        self._cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
                for source, sink, down in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._copy, args=(source, sink, down), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        with suppress(OSError):
            while body := source.recv(1 << 16):
                if not (down and self._cut.is_set()):
                    sink.sendall(body)

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def pair(folder: Path) -> Iterator[tuple[RedisServer, RedisServer, Link]]:
    """A master and its replica, each durable, with a link between that can be cut."""
    durable = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
    with ExitStack() as stack:
        master, replica = (stack.enter_context(redis_server(folder / name, *durable)) for name in ("master", "replica"))
        link = Link(master.port)
        stack.callback(link.close)
        replicate(master, replica, port=link.port)
        yield master, replica, link


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer, Link, str]]:
    """The pair under a sentinel, and the lock URL. The sentinel promotes when it is told to."""
    with pair(tmp_path) as (master, replica, link), redis_sentinel(tmp_path / "sentinel", master, "main") as port:
        asked = RedisServer(tmp_path, port).client
        # Through the relay the sentinel sees the replica's own address, since the replica tells its port.
        until(lambda: asked.sentinel_master("main")["num-slaves"] == 1, "the sentinel knows the replica")
        yield master, replica, link, f"redis+sentinel://127.0.0.1:{port}/main"


def fail_over(master: RedisServer, replica: RedisServer, url: str) -> None:
    """The master dies, and the sentinel notices and makes the replica the master."""
    master.kill()
    until(lambda: replica.client.info("replication")["role"] == "master", "the sentinel promotes the replica")
    port = int(url.rpartition(":")[2].partition("/")[0])
    asked = RedisServer(Path(), port).client
    until(lambda: asked.sentinel_master("main")["port"] == replica.port, "the sentinel names the new master")


def test_locks_go_on_after_a_real_fail_over(service: tuple[RedisServer, RedisServer, Link, str]) -> None:
    master, replica, _, url = service
    with open_provider(url) as locks:
        lease = locks.acquire("k", wait_s=0, lease_s=120)
        assert locks.url == url
        until(lambda: replica.client.exists("lakelatch:{k}"), "the grant has reached the replica")
        fail_over(master, replica, url)
        lease.ensure_held(fresh=True)  # at the new master
        assert lease.release().value == "released"
        with locks.acquire("k", wait_s=0) as second:
            assert second.token == lease.token + 1


@pytest.mark.parametrize("part", ["a", "b"])
def test_a_fail_over_behind_a_cut_link_gives_two_holders_but_no_second_commit(
    service: tuple[RedisServer, RedisServer, Link, str], tmp_path: Path, part: str
) -> None:
    master, replica, link, url = service
    folder, tokens = tmp_path / "table", []
    make(folder, lock=url, lease_s=60.0)
    wait_for_replica(master)

    def overtake() -> None:
        """The first writer holds the lock and is about to append its commit. The server that knows that dies."""
        (lock,) = master.client.keys("lakelatch:*}")
        tokens.append(int(master.client.get(lock).split(b"\n")[1]))
        fail_over(master, replica, url)
        with lakelatch.open(str(folder), writer="second", env=type(SYSTEM)()) as theirs:
            with theirs.transaction() as txn:
                add(txn, "a", 10)
            tokens.append(writes(theirs)[-1].token)

    store = FaultStore(LocalStore(folder))
    with Table(store, writer="first") as ours:
        txn = ours.transaction()
        add(txn, part, 1)
        store.add(Pause(first_entry(), call=overtake))
        link.cut()
        if part == "a":
            with pytest.raises(ConflictError) as caught:
                txn.commit()
            assert caught.value.landed is False
            assert content(ours) == BEGUN | {"a0": 10, "a1": 10}
        else:
            txn.commit()
            assert content(ours) == {"a0": 10, "a1": 10, "b0": 1, "b1": 1}
        assert tokens[0] == tokens[1], "two holders, and even one token"
        numbers = [commit.token for commit in writes(ours)]
        assert numbers == sorted(set(numbers)), "but not in the log"
        check_sound(ours)


def first_entry() -> Callable[[Call], bool]:
    """True for the first attempt to append to the log."""
    seen: list[Call] = []

    def match(call: Call) -> bool:
        if call.op == "put_if_absent" and "/log/" in call.path and not seen:
            seen.append(call)
            return True
        return False

    return match


def wait_for_replica(master: RedisServer) -> None:
    """What was written before this has reached the replica."""
    with master.client as client:
        until(lambda: client.set("mark", 1) and client.wait(1, 1000) >= 1, "the replica has it all")


def test_wait_replicas_refuses_a_grant_that_has_not_spread(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, replica, link):
        wait_for_replica(master)  # it has just written all of it again
        url = f"{master.url}?wait_replicas=1&lease=18s"  # a twelfth of that may pass until it confirms
        with open_provider(url) as locks, open_provider(url, env=type(SYSTEM)()) as rival:
            taken: list[BaseException | Lease] = []

            def take() -> None:
                try:
                    taken.append(rival.acquire("k", wait_s=30))
                except LockUnavailableError as e:
                    taken.append(e)

            lease = locks.acquire("k", wait_s=0)
            assert replica.client.exists("lakelatch:{k}")
            thread = threading.Thread(target=take)
            thread.start()
            until(lambda: master.client.llen("lakelatch:{k}:queue"), "it stands in the line")
            link.cut()
            lease.release()
            thread.join(PATIENCE_S)
            assert isinstance(taken[0], LockUnavailableError)
            assert "reached 0 of the 1 replicas" in str(taken[0])
            with pytest.raises(LockUnavailableError, match="wait_replicas"):
                locks.acquire("k", wait_s=0)
            assert not master.client.exists("lakelatch:{k}")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture
def cluster(nodes: list[RedisServer]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes[:2])


def test_a_cluster_spreads_locks_and_keeps_each_together(nodes: list[RedisServer], cluster: str) -> None:
    with open_provider(cluster) as locks, open_provider(cluster, env=type(SYSTEM)()) as rival:
        assert locks.url == cluster
        leases = [locks.acquire(f"key {n}", wait_s=0) for n in range(30)]
        counts = [node.client.dbsize() for node in nodes]
        assert sum(counts) == 60
        assert min(counts) > 0
        grants = [lease._state.grant for lease in leases]  # type: ignore[attr-defined]
        nodes[0].client.script_flush()
        assert locks._backend.renew_many(grants) == [True] * 30  # type: ignore[attr-defined]
        taken = []
        threads = [
            threading.Thread(target=lambda n=n: taken.append(rival.acquire(f"key {n}", wait_s=60).release()))
            for n in range(30)
        ]
        for thread in threads:
            thread.start()
        until(lambda: all(locks.inspect(f"key {n}").queue for n in range(30)), "all stand in their lines")
        assert locks.break_lease("key 0", token=1, reason="test", who="me")
        for lease in leases:
            lease.release()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [each.value for each in taken] == ["released"] * 30
        assert [record.who for record in locks.breaks("key 0")] == ["me"]


def test_a_lock_moves_with_its_slot(nodes: list[RedisServer], cluster: str) -> None:
    with open_provider(cluster) as locks:
        lease = locks.acquire("moving", wait_s=0)
        slot = nodes[0].client.execute_command("CLUSTER KEYSLOT", "lakelatch:{moving}")
        names = [node.client.execute_command("CLUSTER MYID").decode() for node in nodes]
        here = next(n for n, node in enumerate(nodes) if node.client.execute_command("CLUSTER COUNTKEYSINSLOT", slot))
        there = (here + 1) % len(nodes)
        nodes[there].client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[here])
        nodes[here].client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[there])
        keys = nodes[here].client.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
        nodes[here].client.execute_command("MIGRATE", "127.0.0.1", nodes[there].port, "", 0, 5000, "KEYS", *keys)
        for node in (nodes[there], nodes[here], *nodes):
            node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[there])
        lease.ensure_held(fresh=True)
        assert locks._backend.renew_many([lease._state.grant]) == [True]  # type: ignore[attr-defined]
        assert lease.release().value == "released"
        with locks.acquire("moving", wait_s=0) as again:
            assert again.token == lease.token + 1


def test_a_cluster_that_is_away_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{bound.getsockname()[1]}"
        with open_provider(f"redis+cluster://{place}") as locks, pytest.raises(LockUnavailableError, match=place):
            locks.acquire("k", wait_s=60)


def test_a_service_that_no_sentinel_knows_is_named(service: tuple[RedisServer, RedisServer, Link, str]) -> None:
    *_, url = service
    with open_provider(url.replace("/main", "/other")) as locks, pytest.raises(LockUnavailableError, match="other"):
        locks.acquire("k", wait_s=60)
