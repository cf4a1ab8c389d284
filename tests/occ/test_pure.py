"""Laws of the parts that only compute: the log's state, settings, time labels, errors."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch import errors
from lakelatch.conflict.write_set import Region
from lakelatch.environment import Process
from lakelatch.errors import ConfigError, CorruptTableError, LakeLatchError, UnsupportedTableError
from lakelatch.hudi.timeline.instant import ACTIONS, EARLIEST, from_epoch_ms, is_time, next_label, to_epoch_ms
from lakelatch.occ.entries.entries import (
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    Open,
    Setting,
    at_slot,
    decode,
    encode,
    singly,
)
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.log.state import LogState
from lakelatch.plain_text import visible

# --- the log ----------------------------------------------------------------------------------------------------

labels = st.integers(0, 2**41).map(from_epoch_ms)
words = st.text(max_size=12)
processes = st.none() | st.builds(Process, words, words, st.integers(0, 2**22), words)
settings = st.builds(
    Settings,
    lock=words,
    bucket_count=st.none() | st.integers(1, 99_999_999),
    lease_s=st.floats(0.1, 1e6),
    lock_wait_s=st.floats(0.1, 1e6),
    heartbeat_interval_s=st.floats(0.1, 1e3),
    heartbeat_timeout_s=st.floats(2e3, 1e6),
)
plain = st.dictionaries(words, st.none() | st.integers() | words | st.lists(words), max_size=3)
slots = st.integers(0, 10**15)
actions = st.sampled_from(sorted(ACTIONS))
sides = words.map(lambda word: f"{SIDES}/{word.replace('/', '')}.json")
asked = st.just("") | st.uuids().map(lambda each: each.hex)
begins = st.builds(Begin, labels, actions, words, words, processes, slots, asked=asked)
commits = st.builds(
    Commit,
    labels,
    labels,
    actions,
    words,
    words,
    st.integers(0, 2**60),
    st.builds(Region, st.frozensets(words, max_size=3), st.booleans()),
    st.none() | words,
    plain,
    st.none() | st.fixed_dictionaries({"path": sides, "sha256": words}),
    slots,
)
ends = st.builds(End, st.sampled_from(["rollback", "abort"]), labels, words, words, slots)
opens = st.builds(
    Open, labels, st.integers(0, 2**60), settings, st.lists(begins, max_size=3).map(tuple), st.none() | commits, slots
)
groups = st.builds(
    lambda members, slot: at_slot(GroupCommit(tuple(members)), slot), st.lists(commits, min_size=1), slots
)
several_begins = st.builds(
    lambda members, slot: at_slot(GroupBegin(tuple(members)), slot), st.lists(begins, min_size=1), slots
)
entries = st.one_of(
    begins,
    several_begins,
    commits,
    groups,
    ends,
    st.builds(Setting, settings, words, slots),
    st.builds(Close, slots),
    opens,
)


@given(entries, st.integers(0, 10**13), words)
def test_an_entry_survives_its_bytes(entry, epoch, nonce):
    body = encode(entry, epoch, entry.slot, nonce)
    assert decode(body, "x") == entry
    assert encode(decode(body, "x"), epoch, entry.slot, nonce) == body


@given(begins, st.text(min_size=1), st.text(min_size=1))
def test_two_writers_of_the_same_words_write_different_bytes(entry, one, other):
    same = encode(entry, 1, entry.slot, one) == encode(entry, 1, entry.slot, other)
    assert same == (one == other)


@given(entries, st.data())
def test_a_torn_entry_is_refused_in_a_sentence(entry, data):
    body = encode(entry, 1, entry.slot, "n")
    torn = body[: data.draw(st.integers(0, len(body) - 1))]
    for damaged in (torn, body + b"\0", body + body):
        with pytest.raises(CorruptTableError, match="torn"):
            decode(damaged, "log/7")


@given(entries)
def test_an_entry_of_a_newer_version_asks_for_an_upgrade(entry):
    body = encode(entry, 1, entry.slot, "n").replace(b'{"v":1,', b'{"v":2,', 1)
    with pytest.raises(UnsupportedTableError, match="upgrade lakelatch"):
        decode(body, "log/7")


@st.composite
def histories(draw):
    """A log as writers make it: labels grow, and only open transactions are ended, but for entries of zombies."""
    log: list[Begin | Commit | End | Setting] = []
    top, opened = EARLIEST, []
    for slot in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["begin", "begin", "commit", "end", "zombie", "setting"]))
        if kind in ("commit", "end") and not opened:
            kind = "begin"
        if kind == "begin":
            top = next_label(0, top)
            opened.append(top)
            log.append(Begin(top, "commit", "UPSERT", "w", None, slot))
        elif kind == "commit":
            top = next_label(0, top)
            ended = opened.pop(draw(st.integers(0, len(opened) - 1)))
            log.append(Commit(ended, top, "commit", "UPSERT", "w", slot, metadata={}, slot=slot))
        elif kind == "end":
            ended = opened.pop(draw(st.integers(0, len(opened) - 1)))
            log.append(End(draw(st.sampled_from(["rollback", "abort"])), ended, "w", "r", slot))
        elif kind == "zombie":
            gone = [e.instant for e in log if isinstance(e, Begin) and e.instant not in opened]
            if gone:
                log.append(
                    Commit(draw(st.sampled_from(gone)), next_label(0, top), "commit", "UPSERT", "w", slot, slot=slot)
                )
        else:
            log.append(Setting(Settings(lease_s=slot + 1.0), "w", slot))
    return log


def replayed(log) -> LogState:
    state = LogState()
    for entry in log:
        state.apply(entry)
    return state


@given(histories(), st.data())
def test_several_commits_of_one_entry_count_as_in_slots_of_their_own(log, data):
    """Also where some of them count for nothing, or a fork has tried them before."""
    opened = replayed(log).open
    some = data.draw(st.lists(st.sampled_from([*opened, "20200101000000000"]), min_size=1, max_size=4))
    tops, top = [], replayed(log).top
    for _ in some:
        top = next_label(0, top)
        tops.append(top)
    members = [Commit(t, c, "commit", "UPSERT", "w", 99, metadata={}) for t, c in zip(some, tops, strict=True)]
    slot = len(log)
    alone = replayed(log)
    for number, each in enumerate(members):
        alone.apply(dataclasses.replace(each, slot=slot + number))
    state = replayed(log)
    before = essence(state)
    state.fork().apply(at_slot(GroupCommit(tuple(members)), slot))
    assert essence(state) == before
    state.apply(at_slot(GroupCommit(tuple(members)), slot))
    one, other = essence(state), essence(alone)
    assert one[:4] == other[:4]
    assert state.ended == alone.ended
    counted = [t for t in dict.fromkeys(some) if t in opened]
    if counted:
        assert [each.instant for each in state.newest] == counted
        assert [each.slot for each in state.newest] == [slot] * len(counted)
        assert state.last is not None
        assert state.last.instant == alone.last.instant
    assert singly(at_slot(GroupCommit(tuple(members)), slot))[-1].place == len(members) - 1


def essence(state: LogState):
    return state.settings, state.top, state.token, state.open, state.last


@given(histories(), st.data())
def test_a_state_carried_over_an_epoch_is_the_state_replayed(log, data):
    cut = data.draw(st.integers(0, len(log)))
    before = replayed(log[:cut])
    carried = decode(encode(before.carried(cut), 2, cut, ""), "x")
    after = LogState()
    for entry in [carried, *log[cut:]]:
        after.apply(entry)
    assert essence(after) == essence(replayed(log))
    assert not after.closed


@given(histories())
def test_every_writer_proposes_the_same_opening(log):
    one, other = replayed(log), replayed(log)
    other.open = dict(reversed(other.open.items()))
    assert encode(one.carried(9), 2, 9, "") == encode(other.carried(9), 2, 9, "")


T, C = "20260101000000001", "20260101000000009"
BEGUN_IN_7 = Begin(T, "commit", "UPSERT", "w", None, 7)


@pytest.mark.parametrize(("slot", "counts"), [(7, True), (6, False)])
def test_a_begin_of_an_earlier_epoch_counts_only_when_it_is_the_one_that_is_open(slot, counts):
    """A writer whose clock was behind may have begun with the same T since: its folder is not ours."""
    newest = replayed([BEGUN_IN_7])
    assert newest.counts(dataclasses.replace(BEGUN_IN_7, slot=slot), lambda _: None) is counts


@pytest.mark.parametrize(
    ("landed_at", "counts"),
    [(C, True), ("20260101000000008", False), (None, False)],
    ids=["by it", "by another", "not"],
)
def test_a_commit_of_an_earlier_epoch_counts_only_when_t_landed_by_that_very_entry(landed_at, counts):
    """Of two who execute one plan both have its T; the other's commit is not ours."""
    entry = Commit(T, C, "commit", "UPSERT", "w", 1, metadata={}, slot=8)
    assert LogState().counts(entry, lambda _: landed_at) is counts
    assert not replayed([BEGUN_IN_7]).counts(entry, lambda _: landed_at), "T is open in the newest epoch"


@pytest.mark.parametrize(("landed_at", "counts"), [(C, False), (None, True)])
def test_an_end_of_an_earlier_epoch_counts_only_when_t_has_not_landed(landed_at, counts):
    entry = End("rollback", T, "w", "silent", 8)
    assert LogState().counts(entry, lambda _: landed_at) is counts
    assert not replayed([BEGUN_IN_7]).counts(entry, lambda _: landed_at), "T is open in the newest epoch"


@given(histories())
def test_no_transaction_ends_twice_and_labels_only_grow(log):
    state, top, tokens = LogState(), EARLIEST, 0
    landed: list[str] = []
    for entry in log:
        before = set(state.open)
        last = state.last
        state.apply(entry)
        assert state.top >= top
        assert state.token >= tokens
        top, tokens = state.top, state.token
        if state.last is not last:
            assert entry.instant in before
            landed.append(entry.instant)
    assert len(landed) == len(set(landed))
    assert state.open.keys().isdisjoint(state.ended)


# --- settings ---------------------------------------------------------------------------------------------------


@given(settings)
def test_settings_survive_json(value):
    assert Settings.from_json(value.to_json()) == value


@given(settings, st.text(min_size=1, max_size=8).filter(lambda s: s not in Settings().to_json()))
def test_unknown_settings_are_refused(value, name):
    with pytest.raises(ConfigError, match="upgrade"):
        Settings.from_json(value.to_json() | {name: 1})
    with pytest.raises(ConfigError, match="known: "):
        value.changed(**{name: 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_s": 0},
        {"lock_wait_s": -1},
        {"heartbeat_interval_s": 0},
        {"heartbeat_timeout_s": 15.0},
        {"bucket_count": 0},
        {"bucket_count": 100_000_000},
        {"strategy": "hopeful"},
        {"strategy": "bucket"},
        {"isolation": "dirty"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError):
        Settings().changed(**wrong)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Settings)])
def test_a_writer_set_otherwise_is_refused_with_both_values(field):
    value = getattr(Settings(), field)
    Settings().refuse_others("t", **{field: value})
    Settings().refuse_others("t", **{field: None})
    with pytest.raises(ConfigError) as told:
        Settings().refuse_others("t", **{field: "another"})
    assert repr(value) in str(told.value)
    assert "'another'" in str(told.value)


# --- time labels ------------------------------------------------------------------------------------------------

clocks = st.floats(0, 4e9)


@given(st.lists(clocks, min_size=1, max_size=20))
def test_labels_grow_whatever_the_clock_does(readings):
    top = EARLIEST
    for now in readings:
        label = next_label(now, top)
        assert label > top
        assert len(label) == 17
        assert is_time(label)
        top = label


@given(clocks, labels)
def test_a_label_is_the_clocks_own_or_the_next_after_the_top(now, top):
    label = next_label(now, top)
    assert label in (from_epoch_ms(int(now * 1000)), from_epoch_ms(to_epoch_ms(top) + 1))


@given(st.integers(0, 2**42), st.integers(0, 2**42))
def test_labels_compare_as_their_times(one, other):
    assert (from_epoch_ms(one) < from_epoch_ms(other)) == (one < other)
    assert to_epoch_ms(from_epoch_ms(one)) == one


# --- errors -----------------------------------------------------------------------------------------------------

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", CLASSES)
@given(message=words, details=st.dictionaries(st.sampled_from(["table", "instant", "path", "key", "url"]), words))
def test_errors_survive_pickling(kind, message, details):
    back = pickle.loads(pickle.dumps(kind(message, **details)))
    assert type(back) is kind
    assert str(back) == visible(message, lines=True)
    assert back.details == details
    for name, value in details.items():
        assert getattr(back, name) == value
    assert (back.landed, back.retryable) == (kind.landed, kind.retryable)


@pytest.mark.whole
@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_belongs_to_the_tree_and_says_what_it_means(kind):
    assert issubclass(kind, LakeLatchError)
    assert kind.__doc__
    assert kind.__name__ in errors.__doc__
    assert kind.landed in (True, False, None)
    with pytest.raises(AttributeError, match="has no 'unheard_of'"):
        _ = kind("x").unheard_of


def test_errors_with_notes_and_causes_keep_their_facts():
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError as e:
            raise errors.StorageError("no room", path="x", errno=e.errno) from e
    except errors.StorageError as e:
        back = pickle.loads(pickle.dumps(e))
    assert back.errno == 28
    assert back.path == "x"
