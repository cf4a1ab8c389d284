"""What a network can do to a write. The common promises are in test_store_contract.py."""

import logging
import os
import pickle
import re
import resource
import signal
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakelatch.errors import ConfigError, InputError, StorageError
from lakelatch.storage import Outcome, open_store
from lakelatch.storage.cloud.requests import Failure, Relay, Verdict, next_step
from lakelatch.testing.contention import PATIENCE_S

from ..servers import Wire, free_port

KEYS = {"access_key_id": "key", "secret_access_key": "hidden", "region": "us-east-1", "allow_http": "true"}


@pytest.fixture(params=["s3", "azure", "imitation"])
def bucket(request):
    return request.getfixturevalue(request.param)


def test_of_a_large_object_only_the_beginning_arrives_where_no_more_is_wanted(bucket):
    body = os.urandom(32 << 20)
    with Wire(bucket.port) as wire:
        store = bucket.store(str(uuid.uuid4()), port=wire.port)
        put = store.put_if_absent("a", body)
        before = wire.replied
        found = store.get("a", bytes_max=1000)
        assert (found.body, found.tag) == (body[:1000], put.tag)
        assert wire.replied - before < len(body) // 2
        assert store.replace_if_match("a", b"small", found.tag).done
        assert store.get("a", bytes_max=1000).body == b"small"


def test_a_reply_lost_after_the_write_is_unknown_and_repeating_shows_that_it_landed(bucket):
    with Wire(bucket.port) as wire:
        store = bucket.store(str(uuid.uuid4()), port=wire.port)
        assert store.get("warm") is None
        wire.lose_next_reply()
        put = store.put_if_absent("a", b"mine")
        assert put.outcome is Outcome.UNKNOWN
        assert put.cause
        assert store.put_if_absent("a", b"mine").outcome is Outcome.LOST
        found = store.get("a")
        assert found.body == b"mine"

        wire.lose_next_reply()
        assert store.replace_if_match("a", b"next", found.tag).outcome is Outcome.UNKNOWN
        assert store.replace_if_match("a", b"next", found.tag).outcome is Outcome.LOST
        assert store.get("a").body == b"next"

        with store.create("large") as new:
            new.stream.write(b"x" * 300_000)
            wire.lose_next_reply()
            assert new.publish().outcome is Outcome.UNKNOWN
        assert store.head("large").size == 300_000


def test_what_may_be_repeated_is_repeated_when_a_reply_is_lost(bucket):
    with Wire(bucket.port) as wire:
        store = bucket.store(str(uuid.uuid4()), port=wire.port)
        for call in (
            lambda: store.put("a", b"x").done,
            lambda: store.get("a").body == b"x",
            lambda: [entry.path for entry in store.list("")] == ["a"],
            lambda: store.delete("a") is Outcome.DONE,
        ):
            wire.lose_next_reply()
            assert call()


@pytest.mark.server
def test_a_missing_bucket_and_a_wrong_key_are_errors_that_say_nothing_was_written(s3):
    for store in (open_store("s3://missing/t", **s3.options), s3.store("t", secret_access_key="wrong")):
        for call in (
            lambda store=store: store.put_if_absent("a", b"x"),
            lambda store=store: store.replace_if_match("a", b"x", ' "tag"'),
            lambda store=store: store.put("a", b"x"),
        ):
            with pytest.raises(StorageError, match="was not written"):
                call()
        with pytest.raises(StorageError):
            store.get("a")


@contextmanager
def answering(status: int, code: str = "", *, silent: bool = False):
    """An S3 server that answers every request with one status, and counts them; or never answers."""
    seen: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.command)
            if silent:
                over.wait(PATIENCE_S)
                return
            body = f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.do_PUT()

        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield (
                open_store(
                    "s3://b/t",
                    endpoint=f"http://127.0.0.1:{server.server_port}",
                    timeout="1s" if silent else "30s",
                    **KEYS,
                ),
                seen,
            )
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (
            409,
            "ConditionalRequestConflict",
        ),  # real S3, when two conditional requests meet; obstore calls it AlreadyExists
        (500, "InternalError"),
        (503, "SlowDown"),
        (429, "TooManyRequests"),
    ],
)
def test_no_clear_answer_is_unknown_and_is_not_sent_again_by_us(status, code):
    with answering(status, code) as (store, seen):
        assert store.put_if_absent("a", b"x").outcome is Outcome.UNKNOWN
        assert store.replace_if_match("a", b"x", ' "tag"').outcome is Outcome.UNKNOWN
        assert seen == ["PUT", "PUT"]


def test_no_answer_in_time_is_unknown():
    with answering(200, silent=True) as (store, seen):
        put = store.put_if_absent("a", b"x")
        assert put.outcome is Outcome.UNKNOWN
        assert seen == ["PUT"]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_clear_refusal_is_an_error(status):
    with answering(status, "AccessDenied") as (store, _), pytest.raises(StorageError, match="was not written"):
        store.put_if_absent("a", b"x")


def test_a_precondition_that_failed_is_lost():
    with answering(412, "PreconditionFailed") as (store, _):
        assert store.put_if_absent("a", b"x").outcome is Outcome.LOST
        assert store.replace_if_match("a", b"x", ' "tag"').outcome is Outcome.LOST


def test_a_server_that_is_not_there_is_an_error_because_nothing_was_sent():
    store = open_store("s3://b/t", endpoint=f"http://127.0.0.1:{free_port()}", **KEYS)
    with pytest.raises(StorageError, match="was not written") as caught:
        store.put_if_absent("a", b"x")
    assert "hidden" not in str(caught.value)


def test_plain_http_has_to_be_allowed_and_the_message_says_so():
    store = open_store("s3://b/t", endpoint="http://127.0.0.1:1", **(KEYS | {"allow_http": "false"}))
    with pytest.raises(StorageError, match="allow_http=true"):
        store.put_if_absent("a", b"x")


def test_the_environment_allows_plain_http_whatever_options_are_given(monkeypatch):
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with answering(412) as (store, _):
        told = {key: value for key, value in store._place.options.items() if key != "allow_http"}
        place = f"s3://b/t?timeout=1s&endpoint={told.pop('endpoint')}"
        assert open_store(place, **told).put_if_absent("a", b"x").outcome is Outcome.LOST


def test_a_store_shows_no_keys():
    store = open_store("s3://b/t?secret_access_key=hidden", access_key_id="hidden")
    assert "hidden" not in f"{store!r} {store.url} {store.uri('x')} {store._place!r}"


def test_a_store_that_was_used_pickles_without_its_connection():
    with answering(412) as (store, _):
        store.put_if_absent("a", b"x")
        copy = pickle.loads(pickle.dumps(store))
        assert copy._live is None
        assert copy.put_if_absent("a", b"x").outcome is Outcome.LOST


def test_a_helper_that_was_killed_leaves_one_write_unknown_and_is_replaced():
    """After a fork, requests are made by a helper process."""
    with answering(412) as (store, _):
        relay = Relay(store._place)
        store._live = (os.getpid(), relay)
        assert store.put_if_absent("a", b"x").outcome is Outcome.LOST
        os.kill(relay._helper.pid, signal.SIGKILL)
        assert store.put_if_absent("a", b"x").outcome is Outcome.UNKNOWN
        assert store.put_if_absent("a", b"x").outcome is Outcome.LOST
        relay._helper.close()


def test_addresses_are_spelled_as_spark_reads_them(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert open_store("s3://b/t able").uri("p=a%2Fb/x") == "s3a://b/t able/p=a%2Fb/x"
    assert open_store("gs://b/t").uri("") == "gs://b/t"
    assert open_store("az://c/t", account_name="a123").uri("x") == "abfss://c@a123.dfs.core.windows.net/t/x"


def test_gcs_sends_its_generation_with_a_replacement():
    """There is no test server that takes obstore's writes; this is what we hand over."""
    store = open_store("gs://b/t")
    handed = []

    class Recorder:
        def put(self, path, body, mode):
            handed.append((path, body, mode))
            return "43 etag2"

    store._live = (os.getpid(), Recorder())
    assert store.replace_if_match("a", b"x", '42 "etag"').tag == "43 etag2"
    assert handed == [("a", b"x", {"e_tag": '"etag"', "version": "42"})]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b/t?endpoint=http://user:hunter2@127.0.0.1:1", {}),
        ("s3://b/t?endpoint=http%3A%2F%2Fuser%3Ahunter2%40127.0.0.1:1", {}),
        ("s3://b/t", {"endpoint": "http://hunter2@127.0.0.1:1"}),
        ("s3://user:hunter2@b/t", {}),
        ("s3://user:a/hunter2@b/t", {}),
        ("s3a://user%3Ahunter2@b/t", {}),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_shown(url, options):
    with pytest.raises((ConfigError, InputError)) as caught:
        open_store(url, **options)
    assert "hunter2" not in str(caught.value) + repr(vars(caught.value))


def test_a_password_of_the_environments_endpoint_is_not_shown(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT", "http://user:hunter2@127.0.0.1:1")
    store = open_store("s3://b/t", **KEYS, timeout="1s", retry_s=0.5)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1") as caught:
        store.get("x")
    assert "hunter2" not in str(caught.value)


def test_a_listing_without_hidden_folders_goes_past_them(imitation, caplog):
    """A table's own folder comes before its partitions, and may be more than they are."""
    store = imitation.store(str(uuid.uuid4()))
    for number in range(1000):
        store.put(f".hoodie/{number:03}", b"")
    store.put("day=1/file", b"x")
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        assert [each.path for each in store.list("", recursive=True, hidden=False)] == ["day=1/file"]
    asked = [record.getMessage() for record in caplog.records if "list-type=2" in record.getMessage()]
    assert ["start-after" in each and ".hoodie/zzzz" in each for each in asked] == [False, True]


def test_a_disk_too_full_for_the_bytes_on_their_way_is_told_with_the_host_and_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = open_store("s3://bucket/t", **KEYS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))

    def write(at_once):
        with store.create("p/f") as new:
            new.stream.writelines([bytes(at_once)] * ((1 << 20) // at_once))
            new.publish()

    try:
        for at_once in (1 << 20, 1 << 10):  # a write that does not fit, and one that the flush of a buffer brings out
            with pytest.raises(StorageError, match=f"File too large in {tmp_path} of .* set TMPDIR") as caught:
                write(at_once)
            assert caught.value.path == "p/f"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("403 Forbidden (RequestTimeTooSkewed)", "The clock of .* differs from the server's; set it right"),
        ("PUT http://169.254.169.254/latest/api/token: 403", "was given no keys, and found none"),
        ("403 Forbidden (InvalidAccessKeyId)", "wrong or have expired"),
        ("404 Not Found (NoSuchBucket)", "Check that the bucket exists"),
    ],
)
def test_a_refusal_says_what_to_do_about_it(said, step):
    assert re.search(step, next_step(Failure(Verdict.REFUSED, said)))
