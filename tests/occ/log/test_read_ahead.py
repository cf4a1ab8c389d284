"""Entries that are asked for before they are needed: the log is read as one by one, in fewer rounds, and on far stores only.

Deterministic and without threads: a request that is sent ahead is carried out when its sender waits, in an order by lot.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import lakelatch
from lakelatch.errors import StorageError
from lakelatch.occ.entries.entries import Begin, Close, Commit, End, LogEntry, decode, encode
from lakelatch.occ.log import Follower
from lakelatch.occ.log import commit_log as commit_log_module
from lakelatch.occ.log import read_ahead as read_ahead_module
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.epochs import slot_path
from lakelatch.occ.log.read_ahead import ReadAhead
from lakelatch.occ.log.state import LogState
from lakelatch.storage import Outcome, Put, Stored
from lakelatch.testing import FakeEnvironment

from ...thorough import some
from ..test_traps import delete_epochs_before_the_newest, put_into_an_emptied_slot
from ..world import BEGUN, Writer, content

FIRST_EPOCH = 1_750_000_000_000


class ByLot(FakeEnvironment):
    """What was sent is carried out when somebody waits for it, in any order, as much as it takes or all that is on its way.

    ``rounds`` is how often somebody had to wait.
    """

    def __init__(self, luck: random.Random, *, whole_rounds: bool = False) -> None:
        super().__init__()
        self.luck, self.whole_rounds = luck, whole_rounds
        self.sent, self.rounds = list[Callable[[], None]](), 0

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        self.sent.append(call)

    def event(self):
        return _Ended(self)


class _Ended:
    def __init__(self, env: ByLot) -> None:
        self._env, self._set = env, False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        self._env.rounds += not self._set
        while not self._set or (self._env.whole_rounds and self._env.sent):
            self._env.sent.pop(self._env.luck.randrange(len(self._env.sent)))()
        return True


class Growing:
    """The log of a table with long ways, to which others append between any two requests."""

    def __init__(self, luck: random.Random, entries: int, *, url: str = "far://table", pace: float = 1.0) -> None:
        self.url, self.luck, self.pace = url, luck, pace
        self.there: dict[str, bytes] = {}
        self.coming = list(_history(luck, entries))
        self.written: list[tuple[int, LogEntry]] = []  # with their epochs
        self.asked: list[str] = []
        self.fails_at = 0

    def others_act(self) -> None:
        while self.coming and self.luck.random() < self.pace / (1 + self.pace):
            self.write()
        # As the pruner does: upwards, and only what is not of the newest epoch.
        epochs = sorted({path.split("/")[-2] for path in self.there})
        if len(epochs) > 1 and self.luck.random() < 0.3:
            for path in sorted(path for path in self.there if path.split("/")[-2] == epochs[0])[
                : self.luck.randrange(9)
            ]:
                del self.there[path]

    def write(self) -> None:
        epoch, entry = self.coming.pop(0)
        path = slot_path(epoch, entry.slot)
        self.there[path] = encode(entry, epoch, entry.slot, "")
        self.written.append((epoch, entry))

    def _request(self, path: str) -> None:
        self.others_act()
        self.asked.append(path)
        if len(self.asked) == self.fails_at:
            raise StorageError(f"no answer to {path}", path=path)

    def body(self, path: str) -> bytes | None:
        self._request(path)
        return self.there.get(path)

    def names(self, folder: str, *, after: str = "", recursive: bool = False) -> list[str]:
        self._request(folder)
        names = sorted(path.removeprefix(f"{folder}/") for path in self.there if path.startswith(f"{folder}/"))
        return [name for name in names if name > after]

    def put_if_absent(self, path: str, body: bytes, *, durable: object) -> Put:
        """A reader opens the epoch that others were about to open, or one that is gone."""
        self._request(path)
        if path in self.there:
            return Put(Outcome.LOST)
        if self.coming and slot_path(self.coming[0][0], self.coming[0][1].slot) == path:
            self.write()
        self.there[path] = body
        return Put(Outcome.DONE)

    def get(self, path: str, *, bytes_max: int | None = None) -> Stored | None:
        body = self.body(path)
        return None if body is None else Stored(body, "")

    def secure(self, path: str) -> Put:
        self._request(path)
        return Put(Outcome.DONE if path in self.there else Outcome.LOST)

    def folders(self, folder: str, *, after: str = "") -> list[str]:
        self._request(folder)
        return sorted({name for path in self.there if (name := path.split("/")[-2]) > after})


def _history(luck: random.Random, entries: int):
    """So many entries of transactions that begin and end, in epochs of a few entries."""
    state, epoch = LogState(closed=True), FIRST_EPOCH - 1
    for slot in range(entries):
        label = f"202601010000{slot:05d}"
        if state.closed:
            epoch += 1
            entry: LogEntry = state.carried(slot)
        elif luck.random() < 0.04 and slot < entries - 1:
            entry = Close(slot)
        elif state.open and luck.random() < 0.5:
            instant = luck.choice(sorted(state.open))
            ends = luck.random() < 0.2
            entry = (
                End("abort", instant, "w", "", slot)
                if ends
                else Commit(instant, label, "commit", "UPSERT", "w", 0, metadata={}, slot=slot)
            )
        else:
            entry = Begin(label, "commit", "UPSERT", "w", None, slot)
        entry = decode(encode(entry, epoch, slot, ""), slot_path(epoch, slot))  # as every reader gets it
        state.apply(entry)
        yield epoch, entry


def replayed(store: Growing, slot: int) -> LogState:
    """The state before that slot, of entries read one after the other."""
    state = LogState()
    for _, entry in store.written:
        if entry.slot < slot:
            state.apply(entry)
    return state


def told(state: LogState) -> tuple[object, ...]:
    """What every reader knows, also one that began at a later epoch."""
    return state.open, state.top, state.last, state.closed, state.undone


def reader(store: Growing, env: FakeEnvironment) -> CommitLog:
    return CommitLog(store, env, SimpleNamespace(since=None))


def followed_in_order(follower: Follower) -> bool:
    slots = [commit.slot for commit in follower.commits]
    return slots == sorted(set(slots))


@pytest.mark.parametrize("seed", some(range(150), 25))
def test_it_tells_what_reading_one_by_one_tells(seed: int):
    """Others append and prune between any two requests, answers come in any order, and each catch-up reads all there was."""
    luck = random.Random(seed)
    store = Growing(luck, 120, pace=luck.choice((0.2, 1.0, 3.0)))
    store.write()
    log, follower = reader(store, ByLot(luck)), Follower()
    log.catch_up()
    log._followers.append(follower)
    while store.coming:
        before = len(store.written)
        while luck.random() < 0.8 and store.coming:
            store.write()
        state = log.catch_up()
        assert before <= log.next_slot <= len(store.written)
        assert told(state) == told(replayed(store, log.next_slot))
        assert followed_in_order(follower)
        if follower.complete:
            there = [e.slot for _, e in store.written if isinstance(e, Commit) and e.slot < log.next_slot]
            assert [commit.slot for commit in follower.commits] == there[len(there) - len(follower.commits) :]


@pytest.mark.parametrize("seed", range(4))
def test_an_error_comes_in_its_turn_and_is_not_lost(seed: int):
    """One request after the other fails: what stands before its slot is applied, and the next look goes on from there."""
    fails_at, struck = 0, 0
    while True:
        luck = random.Random(seed)
        store = Growing(luck, 40, pace=0.0)  # so that the requests of every run are the same
        while store.coming:
            store.write()
        log = reader(store, ByLot(luck))
        fails_at += 1
        store.fails_at = fails_at
        try:
            log.catch_up()
        except StorageError as e:
            struck += 1
            path = str(e.details["path"])
            if path.startswith(slot_path(log.epoch, 0).rpartition("/")[0] + "/"):
                assert path == slot_path(log.epoch, log.next_slot)
        if len(store.asked) < fails_at:
            break
        assert told(log.catch_up()) == told(replayed(store, 40))
        assert log.next_slot == 40
    assert struck >= 5


def test_an_error_behind_a_free_slot_says_nothing():
    """Slot 3 is free. The answer for slot 4 never came; anyone who asks again gets it."""
    luck = random.Random(1)
    store = Growing(luck, 3, pace=0.0)
    while store.coming:
        store.write()
    slow: list[str] = []

    def body(path: str) -> bytes | None:
        if path == slot_path(FIRST_EPOCH, 4):
            slow.append(path)
            raise StorageError("no answer", path=path)
        return store.there.get(path)

    read = ReadAhead(SimpleNamespace(url=store.url, body=body), ByLot(luck))
    assert all(read.body(FIRST_EPOCH, slot) for slot in range(3))
    assert read.body(FIRST_EPOCH, 3) is None
    with pytest.raises(StorageError):
        read.body(FIRST_EPOCH, 4)
    assert slow


@pytest.mark.parametrize(("entries", "rounds"), [(1, 1), (3, 2), (7, 3), (15, 4), (31, 5), (62, 6)])
def test_who_is_behind_needs_about_log2_rounds(entries: int, rounds: int):
    """And one request for the first entry, alone."""
    env = ByLot(random.Random(1), whole_rounds=True)
    store = SimpleNamespace(url="far://table", body=lambda path: b"" if int(path[-20:]) < entries else None)
    read, slot = ReadAhead(store, env), 0
    while read.body(FIRST_EPOCH, slot) is not None:
        slot += 1
    assert (slot, env.rounds) == (entries, rounds)


@pytest.mark.parametrize("url", ["far://table", "file:///table"])
def test_nothing_is_asked_ahead_where_nothing_stands(url: str):
    asked: list[str] = []
    read = ReadAhead(SimpleNamespace(url=url, body=asked.append), ByLot(random.Random(1)))
    assert read.body(FIRST_EPOCH, 7) is None
    assert read.body(FIRST_EPOCH, 7) is None
    assert asked == [slot_path(FIRST_EPOCH, 7)] * 2


def test_a_local_disk_is_read_one_by_one():
    asked: list[str] = []

    def body(path: str) -> bytes:
        asked.append(path)
        return b""

    met = slot_path(FIRST_EPOCH, 0), b"what was met"
    read = ReadAhead(SimpleNamespace(url="file:///table", body=body), None, met)
    assert [read.body(FIRST_EPOCH, slot) for slot in range(20)] == [b""] * 20
    assert asked == [slot_path(FIRST_EPOCH, slot) for slot in range(20)]


def test_an_entry_that_took_our_slot_is_not_read_twice():
    asked: list[str] = []
    met = slot_path(FIRST_EPOCH, 7), b"what was met"
    read = ReadAhead(SimpleNamespace(url="far://table", body=asked.append), ByLot(random.Random(1)), met)
    assert read.body(FIRST_EPOCH, 7) == b"what was met"
    assert read.body(FIRST_EPOCH, 8) is None
    assert slot_path(FIRST_EPOCH, 7) not in asked


# --- with a table -------------------------------------------------------------------------------------------------


@pytest.fixture
def all_far(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commit_log_module, read_ahead_module):
        monkeypatch.setattr(module, "is_far", lambda url: True)


@pytest.mark.usefixtures("all_far")
def test_trap_18_an_entry_in_an_emptied_slot_counts_for_nothing_on_a_far_store(make_world):
    world = make_world(lock="none://")
    with pytest.raises(lakelatch.RolledBackError):
        put_into_an_emptied_slot(world)
    assert world.content() == BEGUN | {"b0": 2, "b1": 2}


def sleep_beside_a_zombie(world) -> tuple[Writer, str, int]:
    """W sleeps while Z is rolled back and its epoch goes; then Z's commit entry arrives, where W reads on.

    Returns W, the T of Z, and where its entry stands.
    """
    w, z, x = world.writer("W"), world.writer("Z"), world.writer("X", host="host-b")
    txn = z.begin_add("a")
    w.add("b")
    log = w.table.session.log
    epoch, slot, begun = log.epoch, log.next_slot, log.state.open[txn.instant]
    assert x.table.session.cleaner.roll_back(begun, reason="a test")
    x.table.session.log.close_epoch()
    x.add("b")
    delete_epochs_before_the_newest(world)
    late = Commit(txn.instant, x.table.session.log.state.top, "commit", "UPSERT", "Z", 0, metadata={}, slot=slot)
    x.store.put(slot_path(epoch, slot), encode(late, epoch, slot, "late"))
    return w, txn.instant, slot


@pytest.mark.usefixtures("all_far")
@pytest.mark.parametrize("answer", ["nothing", "an error", "an entry"])
def test_nothing_is_published_or_concluded_in_a_log_that_was_replaced(make_world, answer: str):
    """Guards: anyone who reads to a free slot looks up the newest epoch before it tells, or publishes, what it has read."""
    world = make_world(lock="none://")
    w, zombie, slot = sleep_beside_a_zombie(world)
    states: list[tuple[str | None, int]] = []

    def build(state: LogState) -> LogEntry | None:
        states.append((state.ended.get(zombie), w.table.session.log.next_slot))
        if answer == "an error":
            raise lakelatch.ConflictError("by what this state says", table="t")
        return None if answer == "nothing" else End("abort", "20260101000000000", "W", "")

    if answer == "an error":
        with pytest.raises(lakelatch.ConflictError):
            w.table.session.log.append(build)
    else:
        w.table.session.log.append(build)
    assert states[-1] == (None, states[-1][1])
    assert states[-1][1] > slot + 1
    assert not [name for name in w.store.names(".hoodie/timeline") if name.startswith(f"{zombie}_")]
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert content(table) == BEGUN | {"b0": 2, "b1": 2}


@pytest.mark.usefixtures("all_far")
def test_a_zombie_is_published_where_nobody_looks_up_the_newest_epoch(make_world, breaks):
    world = make_world(lock="none://")
    w, zombie, _ = sleep_beside_a_zombie(world)
    breaks(CommitLog, "_refuse_replaced", lambda self: None)
    w.table.session.log.append(lambda state: None)
    assert [name for name in w.store.names(".hoodie/timeline") if name.startswith(f"{zombie}_")]
