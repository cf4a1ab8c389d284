"""Making an object durable among others who do the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lakelatch.storage import Outcome, put_secured, secured
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore, On, Pause


def test_who_is_overtaken_by_another_one_tries_again(tmp_path):
    """Two find the object there and write it again at once; the later one took the other's for a loss."""
    store = LocalStore(str(tmp_path))
    store.put_if_absent("a", b"x")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: put_secured(store, "a", b"x").outcome, range(400)))
    assert set(found) == {Outcome.DONE}
    assert store.body("a") == b"x"


def test_what_is_not_there_is_lost(tmp_path):
    assert secured(LocalStore(str(tmp_path)), "a").outcome is Outcome.LOST


def test_what_is_deleted_meanwhile_is_lost(tmp_path):
    store = FaultStore(LocalStore(str(tmp_path)))
    store.put_if_absent("a", b"x")
    store.add(Pause(On("secure", "a"), call=lambda: store.inner.delete("a")))
    assert secured(store, "a").outcome is Outcome.LOST
