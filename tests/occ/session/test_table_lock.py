"""The lock of a table: changing it under running writers, tokens that went back, and leases that do not count any more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import lakelatch
from lakelatch.environment import Environment
from lakelatch.errors import LockLostError, LockUnavailableError, TokenRegressedError
from lakelatch.locks import Holder, LockProvider, open_provider
from lakelatch.occ.entries.entries import Commit, Open, Setting
from lakelatch.occ.log.state import LogState
from lakelatch.occ.session.table_lock import TableLease, settled
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import Call, On, Pause

from ...locks.strangers import installed
from ..world import BEGUN, World, add, after, check_sound, commits, content, insert, make_empty

ENTRY = On("put_if_absent", "/log/")


@pytest.fixture
def other(folder: Path) -> str:
    """The URL of another lock."""
    return f"file://{folder}/other-locks"


def granted(table: Table) -> list[tuple[int, int]]:
    """(generation, token) of all commits, in slot order."""
    found, generation = [], 0
    for entry in table.session.log.entries():
        match entry:
            case Open() | Setting():
                generation = entry.settings.generation
            case Commit():
                found.append((generation, entry.token))
    return found


def check_tokens(table: Table) -> list[tuple[int, int]]:
    """No two commits under one lease, and none under an earlier one than the commit before."""
    found = granted(table)
    leased = [each for each in found if each[1]]
    assert leased == sorted(set(leased))
    assert found == sorted(found)
    return found


# --- setting it ---------------------------------------------------------------------------------------------------


def test_a_lock_that_is_set_is_stored_in_one_spelling_and_used_by_everybody(world: World, other: str):
    a, b = world.writer("A"), world.writer("B")
    generation = a.table.settings.generation
    a.table.set_lock(other + "/./?lease=20s")
    assert a.table.settings.lock == f"{other}?lease=20s"
    assert a.table.settings.generation == generation + 1
    held: list[Holder | None] = []
    with open_provider(other, env=b.env) as locks:
        txn = b.begin_add("a")
        b.store.add(Pause(ENTRY, call=lambda: held.append(locks.inspect(b.table.url))))
        txn.commit()
    assert held[0] is not None, "B committed, but did not hold the table's new lock"
    assert held[0].reason == "B: upsert"
    assert held[0].until is not None
    assert held[0].until - held[0].since == pytest.approx(20.0), "the lease of the URL is that of the table"
    assert b.table.settings.lock == a.table.settings.lock
    check_tokens(b.table)


def test_the_same_lock_under_another_url_is_taken_once(world: World, other: str):
    a = world.writer("A")
    a.table.set_lock(other)
    before = a.env.monotonic()
    a.table.set_lock(other + "?lease=20s")
    a.table.set_lock(a.table.store.uri(".hoodie/.lakelatch/locks"))
    assert a.env.monotonic() - before < 1.0, "it waited for itself"
    a.add("a")
    check_tokens(a.table)


def test_providers_of_earlier_locks_are_closed(world: World, folder: Path):
    a = world.writer("A")
    first = a.table.lock.provider()
    for number in range(5):
        a.table.set_lock(f"file://{folder}/locks-{number}")
    a.add("a")
    assert list(a.table.lock._open) == [(a.table.settings.lock, a.table.settings.lease_s)]
    assert first is not None
    with pytest.raises(lakelatch.LockError, match="closed"):
        first[0].try_acquire("x")


def test_setting_the_lock_that_is_in_force_changes_nothing(world: World):
    a = world.writer("A")
    before, slots = a.table.settings, a.table.session.log.next_slot
    assert a.table.set_lock("table") == before
    assert a.table.session.log.next_slot == slots


def test_other_settings_can_change_with_it(world: World, other: str):
    a = world.writer("A")
    after = a.table.change_settings(lock=other, lease_s=7.0)
    assert (after.lock, after.lease_s) == (other, 7.0)
    with pytest.raises(lakelatch.ConfigError, match="no such setting: generation"):
        a.table.change_settings(generation=1)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://me:secret@host/0", "holds a password"),
        ("theirs://me:secret@host/0", "holds a password"),
        ("nosuch://x", "known are"),
        ("file:///x?laese=1s", "unknown settings"),
        ("", "empty"),
        ("tabel", "is no lock"),
        ("none", "or none://"),
        ("redis:/host", "Write redis://"),
        ("rediss://me%3Asecret@host/0", "holds a password"),
        ("s3://bucket/locks?endpoint=http://me:secret@proxy", "holds a password"),
        ("theirs://host/0?endpoint=http://me:secret@proxy", "holds a password"),
    ],
)
def test_a_lock_that_cannot_work_is_refused_before_anything_is_written(world: World, folder: Path, url, message):
    a = world.writer("A")
    slots = a.table.session.log.next_slot
    with pytest.raises(lakelatch.ConfigError, match=message) as caught:
        a.table.set_lock(url)
    assert "secret" not in str(caught.value)
    assert a.table.session.log.next_slot == slots
    with pytest.raises(lakelatch.ConfigError, match=message):
        make_empty(folder / "new", lock=url)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    "stored", ["tabel", "hello world", "rediss://me%3Asecret@host/0", "s3://b/l?endpoint=http://me:secret@proxy"]
)
def test_a_stored_lock_that_nobody_can_open_is_named_and_can_be_changed(world: World, other: str, stored: str):
    """Earlier versions took such words for folders, and such passwords for names."""
    a = world.writer("A")
    a.add("a")
    log = a.table.session.log
    log.append(
        lambda state: Setting(replace(state.settings, lock=stored, generation=state.settings.generation + 1), "B")
    )
    b = world.writer("B")
    for call in (lambda: b.add("b"), b.table.lock.provider, lambda: b.table.session.lease("x")):
        with pytest.raises(
            lakelatch.ConfigError, match=r"cannot be opened by anybody: .* `lakelatch locks set`"
        ) as caught:
            call()
        assert "secret" not in str(caught.value) + repr(vars(caught.value))
    world.fresh().close()
    with pytest.raises(lakelatch.ConfigError) as caught:
        lakelatch.open(str(world.folder), lock=other, env=world.env)
    assert "secret" not in str(caught.value)
    b.table.set_lock(other)
    assert b.table.settings.lock == other
    assert (a.table.session.log.catch_up().settings.lock, a.add("a") is not None) == (other, True)
    check_tokens(a.table)


@pytest.mark.parametrize(
    ("written", "stored"), [("NONE://", "none://"), ("Table", "table"), ("MEMORY://x", "memory://x")]
)
def test_a_lock_may_be_written_in_capitals(world: World, written: str, stored: str):
    a = world.writer("A")
    a.table.set_lock(written)
    assert a.table.settings.lock == stored


def test_a_lock_that_cannot_be_taken_is_refused_before_anything_is_written(world: World, folder: Path):
    (folder / "file").touch()
    url = f"file://{folder}/file/locks"  # a folder cannot be made below a file
    a = world.writer("A")
    slots, token = a.table.session.log.next_slot, _token(a.table)
    with pytest.raises(lakelatch.LakeLatchError, match=str(folder)):
        a.table.set_lock(url)
    assert a.table.session.log.next_slot == slots
    assert _token(a.table) == token + 1, "writers were kept waiting for a lock that cannot be had"
    a.add("a")
    with pytest.raises(lakelatch.LakeLatchError, match=str(folder)):
        make_empty(folder / "new", lock=url)
    assert not (folder / "new/.hoodie").exists()


def _token(table: Table) -> int:
    with table.session.lease("to see its token") as lease:
        return lease.token


def test_a_lock_shared_with_jvm_writers_is_left_only_when_they_have_stopped(make_world, folder: Path, other: str):
    shared = f"file://{folder}/locks?key=trips"
    world = make_world(lock=shared)
    a = world.writer("A")
    with pytest.raises(lakelatch.InputError, match=r"shared with JVM writers \(key= in .*--jvm-writers-stopped"):
        a.table.set_lock(other)
    a.add("a")
    assert a.table.settings.lock == shared
    a.table.set_lock(other, jvm_writers_stopped=True)
    a.add("a")
    check_tokens(a.table)


# --- while others write -------------------------------------------------------------------------------------------


def test_a_holder_of_the_old_lock_does_not_land_under_it_alone(world: World, other: str, breaks):
    """Between A's decision and its entry the lock is changed by somebody who took A for dead."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    first = a.begin_add("a")

    def meanwhile() -> None:
        b.table.set_lock(other)  # waits for A's lease to end
        b.add("b", 10)

    a.store.add(Pause(ENTRY, call=meanwhile))
    # A's clock is the one that is wrong: by it the lease is held for ever.
    breaks(TableLease, "ensure_held", lambda *_, **__: None)
    first.commit()
    assert a.table.settings.lock == other
    with world.fresh() as table:
        generations = [generation for generation, _ in check_tokens(table)]
        assert generations[-2:] == [generations[0] + 1] * 2, "A landed in the generation of the lock that it had"
        assert content(table) == BEGUN | {"a0": 1, "a1": 1, "b0": 10, "b1": 10}
        check_sound(table)


def test_a_lease_counts_only_in_the_generation_that_it_was_taken_in(world: World, other: str):
    """Whatever its own clock says, and whatever the tokens of the new lock are."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    with a.table.session.lease("to outlive its lock") as lease:
        assert lease.token_at(a.table.session.log.state) == lease.token
        b.table.change_settings(lease_s=30.0)
        assert lease.token_at(a.table.session.log.catch_up()) == lease.token, "another setting is another matter"
        now = a.table.session.log.state.settings
        for later in (
            replace(now, lock=other, generation=now.generation + 1),
            replace(now, generation=now.generation + 1),
        ):
            with pytest.raises(LockLostError, match="was changed meanwhile") as caught:
                lease.token_at(LogState(settings=later))
            assert caught.value.reason == "moved"


@pytest.mark.parametrize("since", [0, 1])
def test_a_token_that_a_commit_bears_already_lands_no_other(world: World, since: int):
    """A lock server that went back to an older copy of itself grants a token twice."""
    a = world.writer("A")
    with a.table.session.lease("to be overtaken") as lease:
        state = a.table.session.log.catch_up()
        assert lease.token_at(replace(state, token=lease.token - 1)) == lease.token
        with pytest.raises(LockLostError, match="under a later lease") as caught:
            lease.token_at(replace(state, token=lease.token + since))
        assert caught.value.reason == "overtaken"


def test_who_holds_an_old_lock_waits_for_no_new_one(world: World, folder: Path, other: str):
    """Guards: nobody waits for a second lock while holding one that is not in force, or two could wait in a circle."""
    a, b, rival = world.writer("A"), world.writer("B", host="host-b"), world.writer("R", host="host-r")
    third, key = f"file://{folder}/third-locks", a.table.url
    looks: list[Call] = []
    holders: list[Holder | None] = []

    def when_it_has_the_old_lock(call: Call) -> bool:
        if On("get", "/log/")(call):
            looks.append(call)
        return len(looks) == 2

    with open_provider(third, env=rival.env) as thirds, open_provider(other, env=rival.env) as others:

        def meanwhile() -> None:
            b.table.set_lock(other)
            thirds.acquire(key, wait_s=0, lease_s=50.0)  # and not renewed
            after(a, 25.0, lambda: holders.append(others.inspect(key)))

        a.store.add(Pause(when_it_has_the_old_lock, call=meanwhile))
        a.table.set_lock(third)
    assert len(holders) == 1
    assert holders[0] is not None, "A waited for the third lock while the one in force was free"
    assert holders[0].reason == f"A: changing the lock to {third}"
    assert b.table.session.log.catch_up().settings.lock == third


def test_work_done_under_the_old_lock_is_validated_again(world: World, other: str):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    with a.table.transaction(lock_first=True) as txn:
        add(txn, "a")
        a.env.suspend(1000.0)
        b.table.set_lock(other)
        b.insert("a", "late")
    assert world.content() == BEGUN | {"a0": 1, "a1": 1, "late": 1}
    loser = a.table.transaction(lock_first=True)
    add(loser, "a")
    a.env.suspend(1000.0)
    b.table.set_lock("none://")
    b.add("a")
    with pytest.raises(lakelatch.ConflictError):
        loser.commit()


def test_a_writer_without_a_lock_goes_over_to_one(make_world, other: str):
    world = make_world(lock="none://")
    a, b = world.writer("A"), world.writer("B")
    first = a.begin_add("a")
    a.store.add(Pause(ENTRY, call=lambda: b.table.set_lock(other)))
    first.commit()
    assert granted(a.table)[-1][1] > 0, "A landed without the lock that the table has by now"
    check_tokens(a.table)
    b.table.set_lock("none://")
    a.add("b")
    assert granted(a.table)[-1][1] == 0


def test_a_writer_that_was_told_another_lock_is_refused_with_the_new_one(world: World, folder: Path, other: str):
    with lakelatch.open(str(world.folder), lock="table") as told, world.fresh() as table:
        with told.transaction("insert") as txn:
            insert(txn, "a", "one")
        late = told.transaction("insert")
        insert(late, "a", "two")
        table.set_lock(other)
        with pytest.raises(lakelatch.ConfigError, match=f"is {other} now, and this writer was opened for table"):
            late.commit()
    assert "two" not in world.content()
    with pytest.raises(lakelatch.ConfigError, match="lock='table'"):
        lakelatch.open(str(world.folder), lock="table")
    with lakelatch.open(str(world.folder), lock=f"{folder}/other-locks") as table:
        assert table.lock.expected == other


def test_the_new_lock_is_taken_before_it_is_in_force(world: World, other: str):
    a, rival = world.writer("A"), world.writer("R", host="host-r")
    before = a.env.monotonic()
    with open_provider(other, env=rival.env) as locks:
        held = locks.acquire(a.table.url, wait_s=0, lease_s=50.0)  # and not renewed: its environment stands still
        a.table.set_lock(other)
        assert a.env.monotonic() >= before + 50.0
        held.release()


def test_who_changes_it_while_somebody_else_does_takes_the_lock_that_is_in_force_by_then(
    world: World, folder: Path, other: str
):
    a, b, rival = world.writer("A"), world.writer("B", host="host-b"), world.writer("R", host="host-r")
    third = f"file://{folder}/third-locks"
    locks = open_provider(third, env=rival.env)

    def meanwhile() -> None:
        b.table.set_lock(third)  # waits for A's lease on the old lock to end; that on the new one lasts
        locks.acquire(a.table.url, wait_s=0, lease_s=50.0)

    a.store.add(Pause(ENTRY, call=meanwhile))
    a.table.set_lock(other + "?lease=1h")
    assert a.env.monotonic() >= 1000.0 + a.table.settings.lease_s + 50.0, "A did not wait for the lock in force"
    locks.close()
    a.add("a")
    b.add("b")
    assert b.table.settings.lock == other + "?lease=1h"
    check_tokens(a.table)


_WRITE = """
import sys, lakelatch
with lakelatch.open(sys.argv[1]) as table:
    print(table.settings.lock, flush=True)
    sys.stdin.readline()
    try:
        with table.transaction("insert") as txn:
            txn.allow_empty()
    except lakelatch.LakeLatchError as e:
        print(type(e).__name__, e, flush=True)
"""


def test_a_writer_that_cannot_open_the_new_lock_is_told_which_it_is(folder: Path, strange_locks):
    table = folder / "table"
    make_empty(table).close()
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(table)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "table\n"
    with lakelatch.open(str(table)) as mine:
        slots = mine.session.log.next_slot
        mine.set_lock(f"rebuilt://{folder}/strange")  # a scheme that only this process knows
        told = child.communicate("go\n", timeout=PATIENCE_S)[0]
        assert told.startswith(
            f"ConfigError The lock of file://{table} was changed to rebuilt://{folder}/strange (it was "
        )
        assert "There is no lock provider for 'rebuilt'" in told
        assert [c.slot for c in commits(mine) if c.slot >= slots] == []


def test_an_unreachable_lock_is_a_time_out_and_never_a_fallback(world: World, folder: Path, strange_locks):
    a = world.writer("A")
    a.table.set_lock(f"rebuilt://{folder}/strange")
    a.add("a")
    (folder / "strange" / "down").touch()
    with pytest.raises(LockUnavailableError, match="does not answer"):
        a.add("a")

    def work(txn: Transaction) -> None:
        if runs:
            (folder / "strange" / "down").unlink()
        runs.append(add(txn, "a"))

    runs: list[None] = []
    assert a.table.run(work).attempts == 2, "an outage is over at the next attempt"
    assert world.content() == BEGUN | {"a0": 2, "a1": 2}


# --- tokens -------------------------------------------------------------------------------------------------------


class Perishable:
    """A lock service that forgets its counter when its folder is deleted, and cannot be told to lift it.

    Real file locks behind it; everything but tokens and reachability is theirs.
    """

    lifts_tokens = False
    stuck = False

    def __init__(self, url: str, env: Environment) -> None:
        self._folder = Path(urlsplit(url).path)
        self._locks = open_provider(f"file://{self._folder}", env=env)
        self.url = url

    def __getattr__(self, name: str) -> object:
        return getattr(self._locks, name)

    def __enter__(self) -> Perishable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, take: Callable[..., object], key: str, token_above: int, options: dict[str, object]) -> object:
        if (self._folder / "down").exists():
            raise LockUnavailableError(f"{self.url} does not answer; nothing is held, try again.", key=key)
        lease = take(key, **options)
        if lease is not None and lease.token <= token_above and not self.stuck:
            lease.release()
            raise TokenRegressedError(
                f"{self.url} would grant {lease.token}.", token=lease.token, token_above=token_above
            )
        return lease

    def acquire(self, key: str, *, token_above: int = 0, **options: object) -> object:
        return self._take(self._locks.acquire, key, token_above, options)

    def try_acquire(self, key: str, *, token_above: int = 0, **options: object) -> object:
        return self._take(self._locks.try_acquire, key, token_above, options)


class Tokenless(Perishable):
    """Its leases cannot be told apart."""

    stuck = True

    def acquire(self, key: str, *, token_above: int = 0, **options: object) -> object:
        lease = super().acquire(key, **options)
        lease.token = 0
        return lease


def open_rebuilt(url: str, *, env: Environment) -> LockProvider:
    return Perishable(url, env)  # type: ignore[return-value]


def open_tokenless(url: str, *, env: Environment) -> LockProvider:
    return Tokenless(url, env)  # type: ignore[return-value]


@pytest.fixture
def strange_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openers = {"rebuilt": f"{__name__}:open_rebuilt", "tokenless": f"{__name__}:open_tokenless"}
    monkeypatch.syspath_prepend(installed(tmp_path / "site", **openers))


def test_trap_12_tokens_that_went_back_begin_a_new_generation(world: World, folder: Path, strange_locks):
    """Guards: a rebuilt lock service that cannot lift its counter blocks nobody, and no zombie of the old one lands."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    a.table.set_lock(f"rebuilt://{folder}/strange")
    for _ in range(4):
        a.add("a")
    zombie = a.begin_add("b", operation="upsert")
    generation, token = granted(b.table)[-1]

    def meanwhile() -> None:
        shutil.rmtree(folder / "strange")
        b.insert("b", "first")
        b.insert("b", "second")

    a.store.add(Pause(ENTRY, call=meanwhile))
    zombie.commit()
    found = check_tokens(b.table)
    assert [g for g, _ in found[-3:]] == [generation + 1] * 3
    assert found[-3][1] < token, "the service was not rebuilt"
    assert world.content() == BEGUN | {"a0": 4, "a1": 4, "b0": 1, "b1": 1, "first": 1, "second": 1}
    with world.fresh() as table:
        check_sound(table)


def test_two_who_notice_that_tokens_went_back_begin_one_generation(world: World, folder: Path, strange_locks):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    a.table.set_lock(f"rebuilt://{folder}/strange")
    for _ in range(4):
        a.add("a")
    first = a.table.settings.generation
    shutil.rmtree(folder / "strange")
    found = a.table.lock.provider()
    assert found is not None
    locks, real = found[0], found[0].acquire

    def acquire(*args: Any, **named: Any) -> Any:
        try:
            return real(*args, **named)
        except TokenRegressedError:
            locks.acquire = real  # type: ignore[method-assign]
            b.add("b")  # notices it, too, and is quicker
            raise

    locks.acquire = acquire  # type: ignore[method-assign]
    a.add("a")
    settings = [e for e in a.table.session.log.entries() if isinstance(e, Setting)]
    assert [e.settings.generation for e in settings[-2:]] == [first, first + 1]
    check_tokens(a.table)


def test_a_new_generation_outlives_its_epoch(world: World, folder: Path, strange_locks):
    a = world.writer("A", epoch_slots=6)
    a.table.set_lock(f"rebuilt://{folder}/strange")
    for _ in range(3):
        a.add("a")
        shutil.rmtree(folder / "strange")
        a.add("b")
    b = world.writer("B")
    assert b.table.settings == a.table.settings
    b.add("a")
    assert len({g for g, _ in check_tokens(b.table)}) == 5


def test_tokens_that_never_grow_are_the_providers_fault(world: World, folder: Path, strange_locks):
    a = world.writer("A")
    a.table.set_lock(f"tokenless://{folder}/strange")
    slots = a.table.session.log.next_slot
    with pytest.raises(lakelatch.LockError, match="tokens that do not grow, so its leases cannot be told apart"):
        a.add("a")
    assert a.table.session.log.next_slot < slots + 10
    assert world.content() == BEGUN


def test_a_rebuilt_log_is_a_later_generation(world: World):
    a = world.writer("A")
    a.add("a")
    before = granted(a.table)[-1]
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    world.env.advance(1)
    lakelatch.adopt(str(world.folder), env=world.env).close()
    b = world.writer("B")
    b.add("a")
    assert granted(b.table)[-1] > before


def test_a_lease_that_was_broken_does_not_count_although_its_holder_has_not_noticed(world: World):
    """Guards: a token that is not above the last commit's does not land."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    first = a.begin_add("a")

    def meanwhile() -> None:
        found = b.table.lock.provider()
        assert found is not None
        provider, key = found
        holder = provider.inspect(key)
        assert holder is not None
        assert provider.break_lease(key, token=holder.token, reason="looks stuck", who="B")
        b.add("b")

    a.store.add(Pause(ENTRY, call=meanwhile))
    first.commit()
    check_tokens(a.table)
    assert world.content() == dict.fromkeys(BEGUN, 1)


def test_settled_is_idempotent(other: str):
    for lock in ("table", "none://", settled(other + "//x/../?lease=2s&max_hold=1m")):
        assert settled(lock) == lock
