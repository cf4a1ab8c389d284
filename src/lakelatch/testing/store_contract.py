"""The promises of every store, as tests that need one fixture.

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStore(...)          # empty, and of a kind that pickles
"""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..errors import InputError, StorageError
from ..storage import Durable, Outcome, Store
from ..storage.probe import Racers, probe

__all__ = ["StoreContract"]

LARGE_BYTES = 256 * 1024
PAGE = 1000  # objects that S3 lists in one answer


class StoreContract:
    """The promises of a store; subclass it and provide the fixture ``store``."""

    # One write ---------------------------------------------------------------------------------------------------

    def test_it_has_every_operation(self, store: Store) -> None:
        assert isinstance(store, Store)

    @pytest.mark.parametrize("body", [b"", b"x", b"\x00\xff" * LARGE_BYTES], ids=["empty", "byte", "large"])
    def test_what_was_written_is_read_back(self, store: Store, body: bytes) -> None:
        put = store.put_if_absent("folder/object", body)
        assert put.done
        found = store.get("folder/object")
        assert found is not None
        assert (found.body, found.tag) == (body, put.tag)
        assert store.body("folder/object") == body
        entry = store.head("folder/object")
        assert entry is not None
        assert (entry.path, entry.name, entry.size) == ("folder/object", "object", len(body))
        assert entry.mtime > 1_500_000_000
        assert [each.path for each in store.list("folder")] == ["folder/object"]

    @pytest.mark.parametrize("size", [100, 300_000, 3_000_000])
    def test_no_more_is_read_than_is_wanted(self, store: Store, size: int) -> None:
        body = os.urandom(size)
        put = store.put_if_absent("a", body)
        for bytes_max in (10, 200_000, size, size + 1):
            found = store.get("a", bytes_max=bytes_max)
            assert found is not None
            assert (found.body, found.tag) == (body[:bytes_max], put.tag)

    @pytest.mark.parametrize("durable", [True, False])
    def test_a_taken_path_is_lost_and_keeps_its_bytes(self, store: Store, durable: bool) -> None:
        assert store.put_if_absent("a", b"first", durable=durable).done
        assert store.put_if_absent("a", b"second", durable=durable).outcome is Outcome.LOST
        assert _body(store, "a") == b"first"

    @pytest.mark.parametrize("durable", [True, False, "bytes"])
    def test_settled_bytes_are_put_as_any_others(self, store: Store, durable: Durable) -> None:
        with store.settled("folder", b"first") as body:
            put = store.put_if_absent("folder/a", body, durable=durable)
            assert put.done
            found = store.get("folder/a")
            assert found is not None
            assert (found.body, found.tag) == (b"first", put.tag)
        with store.settled("folder", b"second") as body:
            assert store.put_if_absent("folder/a", body, durable=durable).outcome is Outcome.LOST
            assert store.put_if_absent("folder/b", body, durable=durable).done
        assert (_body(store, "folder/a"), _body(store, "folder/b")) == (b"first", b"second")
        assert [each.path for each in store.list("folder")] == ["folder/a", "folder/b"]

    @pytest.mark.parametrize("durable", [True, False])
    def test_put_overwrites_whoever_wrote_before(self, store: Store, durable: bool) -> None:
        for body in (b"first", b"second, longer", b"3"):
            put = store.put("deep/down/object", body, durable=durable)
            found = store.get("deep/down/object")
            assert found is not None
            assert (put.outcome, put.tag, body) == (Outcome.DONE, found.tag, found.body)

    def test_what_is_not_there_is_none(self, store: Store) -> None:
        store.put("a/b", b"x")
        for path in ("none", "a", "a/none", "a/b/below"):
            assert store.get(path) is None
            assert store.body(path) is None
            assert store.head(path) is None
        assert store.list("none") == []
        assert store.folders("none") == []

    def test_only_the_present_tag_replaces(self, store: Store) -> None:
        first = store.put_if_absent("a", b"first")
        assert first.tag
        second = store.replace_if_match("a", b"second", first.tag)
        assert second.done
        assert second.tag
        assert store.replace_if_match("a", b"stale", first.tag).outcome is Outcome.LOST
        assert _body(store, "a") == b"second"
        assert store.replace_if_match("a", b"third", second.tag).done
        assert _body(store, "a") == b"third"

    def test_replacing_what_is_not_there_is_lost(self, store: Store) -> None:
        tag = store.put_if_absent("a", b"first").tag
        assert tag
        store.delete("a")
        assert store.replace_if_match("a", b"second", tag).outcome is Outcome.LOST
        assert store.replace_if_match("none/a", b"second", tag).outcome is Outcome.LOST
        assert store.list("", recursive=True) == []

    def test_what_is_secured_stays_as_it_is(self, store: Store) -> None:
        store.put_if_absent("folder/a", b"x" * 100_000)
        assert store.secure("folder/a").done
        assert _body(store, "folder/a") == b"x" * 100_000
        assert store.secure("folder/b").outcome is Outcome.LOST
        assert store.secure("none/b").outcome is Outcome.LOST
        assert [each.path for each in store.list("", recursive=True)] == ["folder/a"]

    def test_delete_is_done_whether_it_was_there_or_not(self, store: Store) -> None:
        store.put("folder/a", b"x")
        store.put("folder/b", b"x")
        assert store.delete("folder/a") is Outcome.DONE
        assert store.delete("folder/a") is Outcome.DONE
        assert store.delete("never/was") is Outcome.DONE
        assert [entry.path for entry in store.list("", recursive=True)] == ["folder/b"]
        assert store.put_if_absent("folder/a", b"again").done

    @pytest.mark.parametrize("path", ["", "/abs", "a/../b", "..", "a//b", "./a", "a/", "nul\0"])
    def test_a_path_that_could_leave_the_root_is_refused(self, store: Store, path: str) -> None:
        for write in (store.put, store.put_if_absent):
            with pytest.raises(InputError):
                write(path, b"x")
        with pytest.raises(InputError):
            store.replace_if_match(path, b"x", "tag")
        with pytest.raises(InputError):
            store.delete(path)
        with pytest.raises(InputError):
            store.get(path)
        with pytest.raises(InputError), store.create(path):
            pass
        assert store.list("", recursive=True) == []

    def test_names_are_kept_to_the_letter(self, store: Store) -> None:
        names = ["origin=J%2FK", "100%", "sp ace", "ümlaut-日本", "#?[x]{y}~", "a+b&c=d", ".hidden", "'q'"]
        for name in names:
            assert store.put_if_absent(f"p/{name}", name.encode()).done
        assert [entry.name for entry in store.list("p")] == sorted(names)
        assert {name: _body(store, f"p/{name}") for name in names} == {name: name.encode() for name in names}
        assert store.uri("p/origin=J%2FK").endswith("/p/origin=J%2FK")

    # Listing -----------------------------------------------------------------------------------------------------

    def test_a_listing_is_sorted_and_begins_after_a_name(self, store: Store) -> None:
        for name in ("b", "d", "c", "folder/x", "a-b/y", "a/z"):
            store.put(f"f/{name}", b"x")
        assert _paths(store, "f") == ["b", "c", "d"]
        assert _paths(store, "f", after="b") == ["c", "d"]
        assert _paths(store, "f", after="bb") == ["c", "d"]
        assert _paths(store, "f", after="d") == []
        assert _paths(store, "f", recursive=True) == ["a-b/y", "a/z", "b", "c", "d", "folder/x"]
        assert _paths(store, "f", after="b", recursive=True) == ["c", "d", "folder/x"]
        assert store.list("f/") == store.list("f")

    def test_a_listing_leaves_hidden_folders_out(self, store: Store) -> None:
        for folder in (".hidden/deep", ".zzzz", "a", "-", "a/.b"):
            for number in range(3):
                store.put(f"{folder}/{number}", b"x")
        for name in (".file", "file", ".zzzz/zzzzz"):
            store.put(name, b"x")
        found = [each.path for each in store.list("", recursive=True, hidden=False)]
        assert found == sorted([".file", "file", *(f"{folder}/{n}" for folder in ("-", "a", "a/.b") for n in range(3))])
        assert [each.path for each in store.list("a", recursive=True, hidden=False)] == [f"a/{n}" for n in range(3)]
        assert store.list("", hidden=False) == store.list("")

    def test_folders_are_those_that_hold_something(self, store: Store) -> None:
        for path in ("one", "b/x", "a/deep/y", "gone/z"):
            store.put(path, b"x")
        store.delete("gone/z")
        assert store.folders("") == ["a", "b"]
        assert store.folders("a") == store.folders("a/") == ["deep"]
        assert store.folders("a/deep") == []

    def test_a_listing_longer_than_a_page_is_whole(self, store: Store) -> None:
        names = [f"{number:020d}" for number in range(PAGE + 5)]
        with ThreadPoolExecutor(8) as pool:
            puts = list(pool.map(lambda name: store.put_if_absent(f"log/{name}", b"x", durable=False), names))
        assert all(put.done for put in puts)
        assert _paths(store, "log") == names
        assert _paths(store, "log", recursive=True) == names
        assert _paths(store, "log", after=names[-4]) == names[-3:]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.delete(f"log/{name}"), names))
        assert store.list("log") == []

    # Large objects -----------------------------------------------------------------------------------------------

    def test_a_stream_appears_whole_when_it_is_published(self, store: Store) -> None:
        with store.create("part/large") as new:
            for number in range(64):
                new.stream.write(bytes([number]) * 16384)
            assert store.head("part/large") is None
            assert store.list("", recursive=True) == []
            put = new.publish()
            assert put.done
        found = store.get("part/large")
        assert found is not None
        assert found.body == b"".join(bytes([number]) * 16384 for number in range(64))
        assert found.tag == put.tag

    def test_a_stream_that_its_writer_closed_can_be_published(self, store: Store) -> None:
        with store.create("a") as new:
            new.stream.write(b"whole")
            new.stream.close()
            assert new.publish().done
        assert _body(store, "a") == b"whole"

    def test_a_stream_is_lost_when_the_path_was_taken_meanwhile(self, store: Store) -> None:
        with store.create("a") as new:
            new.stream.write(b"late")
            assert store.put_if_absent("a", b"early").done
            assert new.publish().outcome is Outcome.LOST
        assert _body(store, "a") == b"early"
        assert _paths(store, "", recursive=True) == ["a"]

    def test_a_stream_that_is_not_published_leaves_nothing(self, store: Store) -> None:
        with store.create("p/a") as new:
            new.stream.write(b"x" * LARGE_BYTES)
        with pytest.raises(ZeroDivisionError), store.create("p/b") as new:
            new.stream.write(bytes(LARGE_BYTES // 0))
        assert store.list("", recursive=True) == []

    def test_an_object_is_read_from_anywhere(self, store: Store) -> None:
        body = bytes(range(256)) * 8192  # two megabytes: more than is read ahead
        store.put("a", body)
        with store.open("a") as stream:
            assert stream.seekable()
            assert stream.seek(-300, os.SEEK_END) == len(body) - 300
            assert stream.read() == body[-300:]
            assert stream.seek(1_500_001) == 1_500_001
            assert stream.read(7) == body[1_500_001:1_500_008]
            assert stream.tell() == 1_500_008
            stream.seek(0)
            assert stream.read() == body

    def test_an_object_whose_size_is_known_is_read_from_anywhere(self, store: Store) -> None:
        for length in (300, 300 << 10):  # one that may be fetched whole, and one that is not
            body = bytes(range(256)) * (length // 256 + 1)
            store.put(f"{length}", body)
            with store.open(f"{length}", size=len(body)) as stream:
                assert stream.seek(-9, os.SEEK_END) == len(body) - 9
                assert stream.read() == body[-9:]
                assert stream.seek(200) == 200
                assert stream.read(50) == body[200:250]
                stream.seek(7)
                assert stream.read() == body[7:]
                assert stream.read() == b""
                stream.seek(0)
                assert stream.read() == body

    def test_opening_what_is_not_there_says_so(self, store: Store) -> None:
        with pytest.raises(StorageError, match="not read"), store.open("none"):
            pass
        with pytest.raises(StorageError, match="not read"), store.open("none", size=9) as stream:
            stream.read()

    # Races -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("size", "keys"), [(64, 25), (LARGE_BYTES, 5)], ids=["small", "large"])
    def test_one_of_sixteen_processes_wins_each_path(self, store: Store, size: int, keys: int) -> None:
        with Racers(store, 16) as racers:
            for key in range(keys):
                for act in ("create", "replace"):
                    answers = Counter(answer.outcome for answer in racers.race(act, f"race/{key:05d}", size))
                    assert answers == {Outcome.DONE: 1, Outcome.LOST: 15}

    def test_a_counter_of_eight_processes_loses_nothing(self, store: Store) -> None:
        store.put("counter", b"0")
        with Racers(store, 8) as racers:
            told = [value for each in racers.count("counter", 12) for value in each]
        assert sorted(told) == list(range(1, 8 * 12 + 1))
        assert _body(store, "counter") == b"96"

    def test_nobody_reads_a_torn_body(self, store: Store) -> None:
        store.put("a", b"a" * LARGE_BYTES)

        def write(letter: bytes) -> set[bytes]:
            for _ in range(30):
                store.put("a", letter * LARGE_BYTES)
            return set()

        def look(_: bytes) -> set[bytes]:
            return {_body(store, "a") for _ in range(60)}

        with ThreadPoolExecutor(4) as pool:
            seen = set().union(
                *pool.map(lambda call, letter: call(letter), (write, write, look, look), (b"b", b"c", b"", b""))
            )
        assert seen <= {letter * LARGE_BYTES for letter in (b"a", b"b", b"c")}

    def test_the_probe_accepts_it(self, store: Store) -> None:
        report = probe(store, writers=8, keys=6)
        assert (report.rounds, report.unanswered) == (24, 0)
        assert store.list("", recursive=True) == []

    # Processes ---------------------------------------------------------------------------------------------------

    def test_a_pickled_store_is_the_same_place(self, store: Store) -> None:
        store.put("a", b"x")
        copy = pickle.loads(pickle.dumps(store))
        assert copy.url == store.url
        assert _body(copy, "a") == b"x"

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_uses_the_store_of_its_parent(self, store: Store) -> None:
        store.put("a", b"parent")
        # A thread of the client may hold a lock at the moment of the fork, which the child would wait for. That is luck;
        # a child that goes on with its parent's connections hangs each time.
        for number in range(3):
            child, name = os.fork(), f"b/{number}"
            if child == 0:
                # A handler in Python would not run in a child that hangs.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(30)
                right = False
                try:
                    with store.open("a") as stream:
                        right = stream.read() == b"parent" and _body(store, "a") == b"parent"
                    right = right and store.put_if_absent("a", b"x").outcome is Outcome.LOST
                    right = right and store.put_if_absent(name, b"child").done
                    before = ["a", *(f"b/{each}" for each in range(number))]  # one that hung may have put its own
                    listed = _paths(store, "", recursive=True)
                    right = right and listed[-1] == name and listed[:1] == ["a"] and {*listed[:-1]} <= {*before}
                finally:
                    os._exit(0 if right else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != -signal.SIGALRM:
                break
        assert code == 0, code
        assert _body(store, name) == b"child"


def _body(store: Store, path: str) -> bytes:
    found = store.get(path)
    assert found is not None
    return found.body


def _paths(store: Store, folder: str, *, after: str = "", recursive: bool = False) -> list[str]:
    """Return paths relative to the folder, after checking that both ways of listing agree."""
    start = len(folder) + 1 if folder else 0
    found = [entry.path[start:] for entry in store.list(folder, after=after, recursive=recursive)]
    assert store.names(folder, after=after, recursive=recursive) == found
    return found
