"""The contract on redis://, and what only a real Redis can show."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.errors import ConfigError, LockTimeoutError, LockUnavailableError
from lakelatch.locks import LockProvider, Release, open_provider
from lakelatch.locks.redis import backend as redis_locks
from lakelatch.locks.redis import client as redis_client
from lakelatch.locks.redis import scripts
from lakelatch.testing import LockProviderContract
from lakelatch.testing.contention import PATIENCE_S, threads_of

from ..servers import Wire
from ..servers.policies import policy
from ..servers.redis_server import RedisServer, redis_server, until
from .weather import StoppedServer

pytestmark = pytest.mark.server

_WAIT = """
import sys
from lakelatch.locks import open_provider
lease = open_provider(sys.argv[1]).acquire(sys.argv[2], wait_s=100)
print(lease.token, flush=True)
sys.stdin.readline()
print(lease.lost, lease.release().value, flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis"), "--appendonly", "yes") as server:
        yield server


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.url


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return request.node.name


@pytest.fixture
def locks(url: str) -> Iterator[LockProvider]:
    with open_provider(url) as locks:
        yield locks


@pytest.fixture
def rival(url: str) -> Iterator[LockProvider]:
    """As another process would have it: with a queue of its own."""
    with open_provider(url, env=type(SYSTEM)()) as locks:
        yield locks


def the_lock(key: str) -> str:
    return redis_locks._name(key)


class TestRedisLocks(StoppedServer, LockProviderContract):
    across_processes = True
    server_clock = True
    lease_s = 3.0

    @pytest.fixture
    def url(self, server: RedisServer) -> str:
        return f"{server.url}?lease=24s"  # a request waits four seconds for its answer

    @pytest.fixture(autouse=True)
    def remember(self, server: RedisServer) -> None:
        self.server = server


@contextlib.contextmanager
def waiter(url: str, key: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that takes KEY, waiting if need be, says its token, and holds until it is told."""
    child = subprocess.Popen(
        [sys.executable, "-c", _WAIT, url, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


# Requests and what is left behind.


def test_one_request_takes_and_one_gives_back(locks: LockProvider, server: RedisServer, key: str) -> None:
    locks.acquire(key, wait_s=0).release()  # the first one also looks at the server
    backend = locks._backend  # type: ignore[attr-defined]
    before, scripts = backend.requests, server.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    locks.acquire(key, wait_s=0).release()
    assert backend.requests - before == 2
    assert server.client.info("commandstats")["cmdstat_evalsha"]["calls"] - scripts == 2


def test_nothing_is_left_but_the_counter(
    locks: LockProvider, rival: LockProvider, server: RedisServer, key: str
) -> None:
    with locks.acquire(key, wait_s=0):
        with pytest.raises(LockTimeoutError, match="number 1 in line"):
            rival.acquire(key, wait_s=0.1)
        assert not server.client.exists(f"{the_lock(key)}:queue")
    left = set(server.client.scan_iter(the_lock(key).replace("[", "\\[") + "*"))
    assert left == {f"{the_lock(key)}:token".encode(), f"{the_lock(key)}:freed".encode()}
    assert server.client.ttl(f"{the_lock(key)}:token") == -1
    assert 0 < server.client.ttl(f"{the_lock(key)}:freed") <= 60


def test_processes_are_served_in_the_order_they_came(locks: LockProvider, url: str, key: str) -> None:
    with contextlib.ExitStack() as stack:
        lease = locks.acquire(key, wait_s=0)
        children = []
        for number in range(3):
            children.append(stack.enter_context(waiter(url, key)))
            until(lambda number=number: len(locks.inspect(key).queue) == number + 1, "it stands in the line")
        pids = [str(child.pid) for child in children]
        assert [owner.split(":")[1] for owner in locks.inspect(key).queue] == pids
        lease.release()
        for number, child in enumerate(children):
            assert line(child) == str(lease.token + number + 1)
            child.communicate("\n")


def test_a_lease_that_was_handed_over_runs_from_before_it_was(
    locks: LockProvider, rival: LockProvider, key: str
) -> None:
    lease = locks.acquire(key, wait_s=0)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(rival.acquire(key, wait_s=60)))
    thread.start()
    until(lambda: locks.inspect(key).queue, "it stands in the line")
    asked_before = time.monotonic()
    lease.release()
    thread.join(PATIENCE_S)
    assert taken[0].deadline < asked_before + 30
    taken[0].release()


# Holders and waiters that die or stop.


def test_a_killed_holder_is_followed_after_its_lease(locks: LockProvider, url: str, key: str) -> None:
    with waiter(f"{url}?lease=6s", key) as child:
        token = int(line(child))
        timer = threading.Timer(0.2, child.kill)  # while somebody waits already
        timer.start()
        with locks.acquire(key, wait_s=25) as lease:  # sooner than after the 30 s of its own lease
            assert lease.token == token + 1
        timer.join()


def test_a_stopped_holder_is_followed_and_notices_by_itself(locks: LockProvider, url: str, key: str) -> None:
    with waiter(f"{url}?lease=6s", key) as child:
        token = int(line(child))
        child.send_signal(signal.SIGSTOP)
        with locks.acquire(key, wait_s=30) as lease:
            assert lease.token == token + 1
            child.send_signal(signal.SIGCONT)
            told, _ = child.communicate("\n")
            assert told.strip() == f"expired {Release.WAS_LOST.value}"
            lease.ensure_held(fresh=True)


def test_a_dead_waiter_blocks_nobody(locks: LockProvider, rival: LockProvider, url: str, key: str) -> None:
    with waiter(f"{url}?lease=1h", key) as dead:
        lease = locks.acquire(key, wait_s=0)
        until(lambda: len(locks.inspect(key).queue) == 1, "the first waiter stands in the line")
        taken = []

        def take() -> None:
            with rival.acquire(key, wait_s=60) as second:
                taken.append(second.token)

        thread = threading.Thread(target=take)
        thread.start()
        until(lambda: len(locks.inspect(key).queue) == 2, "the second waiter stands in the line")
        dead.kill()
        dead.wait()
        lease.release()  # goes to the dead one, for an hour
        thread.join(PATIENCE_S)
        assert taken == [lease.token + 2]


def test_dead_waiters_are_passed_over_when_their_tickets_end(
    locks: LockProvider, server: RedisServer, key: str
) -> None:
    with locks.acquire(key, wait_s=0):
        server.client.rpush(f"{the_lock(key)}:queue", "long-gone:1:a", "long-gone:2:b")
        assert locks.inspect(key).queue == ()
    with locks.acquire(key, wait_s=0) as lease:
        assert lease.token == 2
    assert not server.client.exists(f"{the_lock(key)}:queue")


# Replies that are lost, late, or never come.


@pytest.fixture
def wire(server: RedisServer) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        yield wire


@pytest.fixture
def far(wire: Wire) -> Iterator[LockProvider]:
    with open_provider(f"redis://127.0.0.1:{wire.port}?lease=9s") as locks:
        locks.acquire("warm", wait_s=0).release()
        yield locks


def test_a_grant_whose_reply_was_lost_is_found_again(far: LockProvider, wire: Wire, key: str) -> None:
    wire.lose_next_reply()
    with far.acquire(key, wait_s=0) as lease:
        assert lease.token == 1
        lease.ensure_held(fresh=True)


def test_a_release_whose_reply_was_lost_is_known_to_be_one(
    far: LockProvider, wire: Wire, rival: LockProvider, key: str
) -> None:
    lease = far.acquire(key, wait_s=0)
    wire.lose_next_reply()
    assert lease.release() is Release.RELEASED
    rival.acquire(key, wait_s=0).release()


def test_a_break_whose_reply_was_lost_is_known_to_be_one(
    far: LockProvider, wire: Wire, locks: LockProvider, key: str
) -> None:
    lease = locks.acquire(key, wait_s=0)
    wire.lose_next_reply()
    assert far.break_lease(key, token=lease.token, reason="stuck", who="alice")
    assert len(far.breaks(key)) == 1
    assert lease.release() is Release.WAS_LOST


def test_a_renewal_whose_reply_was_lost_counts(far: LockProvider, wire: Wire, key: str) -> None:
    with far.acquire(key, wait_s=0, lease_s=9) as lease:
        deadline = lease.deadline
        wire.lose_next_reply()
        until(lambda: lease.deadline > deadline, "the renewer comes through")
        lease.ensure_held(fresh=True)


def test_a_hand_over_whose_news_was_lost_is_found_again(
    far: LockProvider, wire: Wire, locks: LockProvider, key: str
) -> None:
    lease = locks.acquire(key, wait_s=0)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(far.acquire(key, wait_s=30)))
    thread.start()
    until(lambda: len(locks.inspect(key).queue) == 1, "it stands in the line")
    wire.lose_next_reply()  # that of BLPOP, or of the next look
    lease.release()
    thread.join(PATIENCE_S)
    assert taken[0].token == lease.token + 1
    taken[0].ensure_held(fresh=True)
    taken[0].release()


def test_a_request_that_a_stopped_server_runs_late_takes_nothing(server: RedisServer, url: str, key: str) -> None:
    with open_provider(f"{url}?lease=6s") as locks:
        locks.acquire(key, wait_s=0).release()
        server.signal(signal.SIGSTOP)
        try:
            with pytest.raises(LockUnavailableError, match="trying again is safe"):
                locks.acquire(key, wait_s=0, lease_s=3600)
        finally:
            server.signal(signal.SIGCONT)
        locks.acquire(key, wait_s=5).release()


def test_a_request_that_comes_after_it_was_taken_back_finds_that(
    locks: LockProvider, server: RedisServer, key: str
) -> None:
    locks.acquire(key, wait_s=0).release()
    backend = locks._backend  # type: ignore[attr-defined]
    backend.leave(the_lock(key), "late:1:a", doubtful=True)
    for ticket_ms in (0, 1000):
        assert backend.run(redis_locks.ACQUIRE, the_lock(key), "late:1:a", 9_000_000, 0, "{}", ticket_ms) < 0
    assert not server.client.exists(the_lock(key), f"{the_lock(key)}:queue")


def test_a_waiter_outlives_a_restart(tmp_path: Path, key: str) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always"))
        locks = stack.enter_context(open_provider(server.url))
        rival = stack.enter_context(open_provider(server.url, env=type(SYSTEM)()))
        lease = locks.acquire(key, wait_s=0)
        taken = []
        thread = threading.Thread(target=lambda: taken.append(rival.acquire(key, wait_s=60)))
        thread.start()
        until(lambda: len(locks.inspect(key).queue) == 1, "it stands in the line")
        server.kill()
        server.start()
        lease.ensure_held(fresh=True)
        assert lease.release() is Release.RELEASED
        thread.join(PATIENCE_S)
        assert taken[0].token == lease.token + 1
        assert taken[0].release() is Release.RELEASED


def test_a_restart_without_append_only_file_ends_leases_and_above_lifts_the_counter(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, open_provider(server.url) as locks:
        for _ in range(5):
            last = locks.acquire("k", wait_s=0)
            if last.token < 5:
                last.release()
        server.kill()
        server.start()
        assert last.release() is Release.WAS_LOST
        with locks.acquire("k", wait_s=0) as lease:
            assert lease.token == 1
        with locks.acquire("k", wait_s=0, token_above=5) as lease:
            assert lease.token == 6
        with locks.acquire("k", wait_s=0) as lease:
            assert lease.token == 7


def test_scripts_come_back_after_a_flush(locks: LockProvider, server: RedisServer, key: str) -> None:
    lease = locks.acquire(key, wait_s=0)
    server.client.script_flush()
    assert locks._backend.renew_many([lease._state.grant] * 3) == [True] * 3  # type: ignore[attr-defined]
    server.client.script_flush()
    assert lease.release() is Release.RELEASED
    server.client.flushall()
    lease = locks.acquire(key, wait_s=0)
    server.client.flushall()
    assert lease.release() is Release.WAS_LOST


# What the server says of itself.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "a restart of the server takes them back"),
        (["--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"], "a full server drops"),
        (["--appendonly", "yes", "--maxmemory", "100mb"], ""),
    ],
)
def test_a_server_that_may_forget_is_named(
    tmp_path: Path, options: list[str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, *options) as server, open_provider(server.url) as locks:
        with locks.acquire("k", wait_s=0):
            holder = locks.inspect("k")
            assert holder is not None
            assert says in holder.details["tokens"]
        locks.acquire("k", wait_s=0).release()
        warned = [each.getMessage() for each in caplog.records if "tokens are" in each.getMessage()]
        assert len(warned) == bool(says)
        assert locks._backend.durable_tokens is not bool(says)  # type: ignore[attr-defined]


# Who may.


def test_a_user_needs_no_more_than_the_documented_commands(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = policy("locks/redis.md").replace("...", "secret").split()
    server.client.execute_command(*rules, "resetchannels", "-info", "-wait")
    monkeypatch.setenv("LAKELATCH_REDIS_PASSWORD", "secret")
    with open_provider(f"redis://writer@127.0.0.1:{server.port}") as locks:
        lease = locks.acquire(key, wait_s=0)
        assert "allow this user INFO" in locks.inspect(key).details["tokens"]
        with pytest.raises(LockTimeoutError):
            open_provider(locks.url, env=type(SYSTEM)()).acquire(key, wait_s=0.1)
        lease.ensure_held(fresh=True)
        assert locks._backend.renew_many([lease._state.grant]) == [True]  # type: ignore[attr-defined]
        assert locks.break_lease(key, token=lease.token, reason="test", who="me")
        assert lease.release() is Release.WAS_LOST
        assert len(locks.breaks(key)) == 1
        assert "secret" not in locks.url + repr(locks) + str(pickle.dumps(locks))
    server.client.execute_command("ACL", "SETUSER", "writer", "-incr")
    needs = r"forbids a command: .*docs/locks/redis\.md"
    with open_provider(f"redis://writer@127.0.0.1:{server.port}") as locks, pytest.raises(ConfigError, match=needs):
        locks.acquire(key, wait_s=0)
    monkeypatch.setenv("LAKELATCH_REDIS_PASSWORD", "wrong")
    needs = "LAKELATCH_REDIS_PASSWORD"
    with open_provider(f"redis://writer@127.0.0.1:{server.port}") as locks, pytest.raises(ConfigError, match=needs):
        locks.acquire(key, wait_s=0)


def test_every_documented_command_is_sent() -> None:
    sent = set(re.findall(r"redis\.call\('(\w+)'", inspect.getsource(scripts)))
    for module in (redis_locks, redis_client):
        sent |= {each.lower() for each in re.findall(r"\(\s*(?:[a-z.]+, )?\"([A-Z]{3,})\"", inspect.getsource(module))}
    assert sent == {each[1:] for each in policy("locks/redis.md").split() if each[0] == "+"}


def test_tls_with_the_clients_certificate(tmp_path: Path, key: str) -> None:
    certificate, private = tmp_path / "server.crt", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(private),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(private)]
    trust, proof = f"ca={certificate}", f"cert={certificate}&cert_key={private}"
    with redis_server(tmp_path / "server", *options, "--tls-ca-cert-file", str(certificate)) as server:
        with open_provider(f"rediss://localhost:{port}?{trust}&{proof}") as locks:
            with locks.acquire(key, wait_s=0) as lease:
                lease.ensure_held(fresh=True)
            assert open_provider(locks.url).url == locks.url
        # Its alert may come before or after the end of the connection.
        refused = pytest.raises((ConfigError, LockUnavailableError), match="cert=PATH")
        with open_provider(f"rediss://localhost:{port}?{trust}") as locks, refused:
            locks.acquire(key, wait_s=0)
        nowhere = f"{trust}&cert={tmp_path}/nowhere&cert_key={private}"
        with (
            open_provider(f"rediss://localhost:{port}?{nowhere}") as locks,
            pytest.raises(ConfigError, match="nowhere"),
        ):
            locks.acquire(key, wait_s=0)
        server.client.config_set("tls-auth-clients", "no")
        with open_provider(f"rediss://localhost:{port}?{trust}") as locks:
            locks.acquire(key, wait_s=0).release()
        with open_provider(f"rediss://localhost:{port}") as locks, pytest.raises(ConfigError, match="trust each other"):
            locks.acquire(key, wait_s=0)


# Where nobody answers.


def test_an_unreachable_server_is_named_soon_and_leaves_no_thread(key: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there
        place = f"127.0.0.1:{bound.getsockname()[1]}"
        found = threads_of(open_provider(f"redis://{place}"), key)
        assert place in found.error
        assert found.left == []
        with open_provider(f"redis://{place}") as locks, pytest.raises(LockUnavailableError, match=place) as caught:
            locks.acquire(key, wait_s=60)
    assert caught.value.retryable
    assert pickle.loads(pickle.dumps(caught.value)).host == place


def test_a_server_that_accepts_and_never_answers_is_given_up(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}?lease=1s"
        with open_provider(url) as locks, pytest.raises(LockUnavailableError):
            locks.acquire(key, wait_s=60)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names no server"),
        ("redis://a:0", "names no server"),
        ("redis://a,b", "several servers"),
        ("redis://a/x", "number of a database"),
        ("redis+cluster://a/1", "number of a database"),
        ("redis+sentinel://a", "names no service"),
        ("redis://u:secret@a", "holds a password"),
        ("redis://a?wait_replicas=all", "not a number"),
        ("redis://a?ca=/x", "certificates without TLS"),
        ("rediss://a?tls=off", "makes no sense"),
        ("redis://a?speed=9", "unknown settings"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        open_provider(url)
    assert "secret" not in str(caught.value)


def test_one_place_has_one_spelling() -> None:
    spellings = ["redis://HOST", "redis://host:6379", "redis://host/0", "redis://host:6379/?lease=30s"]
    assert {open_provider(each).url for each in spellings} == {"redis://host:6379"}
    assert open_provider("redis://me@[::1]/3").url == "redis://me@[::1]:6379/3"
    assert open_provider("redis+sentinel://B,a:1/main/2").url == "redis+sentinel://b:26379,a:1/main/2"


def test_no_two_keys_share_a_name() -> None:
    odd = ["a", "A", "{a}", "a}", "%7Ba%7D", "a:token", "a" * 500, "a" * 501, "#a", "表", "a b", "a\nb", "a\0b"]
    names = {the_lock(key) for key in odd}
    assert len(names) == len(odd)
    assert all(name.count("{") == name.count("}") == 1 for name in names)
