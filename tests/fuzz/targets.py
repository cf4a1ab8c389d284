"""Everything that reads bytes of others, with sound bytes to begin from. A target raises `LakeLatchError` or answers."""

from __future__ import annotations

import hashlib
import io
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from lakelatch.conflict.predicate import where_of
from lakelatch.conflict.reservation import Party
from lakelatch.conflict.write_set import EVERYWHERE, ReadSet, Scan, WriteSet, _overlap
from lakelatch.environment import SYSTEM, Process
from lakelatch.errors import LakeLatchError
from lakelatch.hudi.files import STREAM_NOTE
from lakelatch.hudi.files.file_names import FileGroupId, base_file_name, log_file_name, parse_base_name, parse_log_name
from lakelatch.hudi.files.footers import note_of
from lakelatch.hudi.files.listing import BaseFile, LogFile
from lakelatch.hudi.files.log_blocks import DELETE, Torn, read_blocks
from lakelatch.hudi.table.avro_schema import dropped_columns, from_avro, to_avro
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.partition_path import parse_partition_path
from lakelatch.hudi.timeline.archived import Archived, History
from lakelatch.hudi.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit,
    decode_container,
    encode_commit,
)
from lakelatch.hudi.timeline.instant import Instant, file_name, parse
from lakelatch.hudi.timeline.service_metadata import (
    encode_clean,
    encode_clean_plan,
    encode_clustering_plan,
    encode_compaction_plan,
    encode_restore,
    encode_savepoint,
)
from lakelatch.locks import open_provider
from lakelatch.locks.core import break_of, fields_of, time_text
from lakelatch.locks.dynamodb.item import parse_breaks, parse_item
from lakelatch.locks.file.generations import Record, generation_name
from lakelatch.locks.file.hudi_lock_file import Found
from lakelatch.locks.interface import BreakRecord
from lakelatch.locks.objects.record import LockObject, TokenObject, broken_of, to_json
from lakelatch.occ.check.footers import inspect
from lakelatch.occ.coordination.messages import Answer, Question
from lakelatch.occ.entries.batches import Batch
from lakelatch.occ.entries.column_statistics import decode_ranges, encode_ranges
from lakelatch.occ.entries.entries import (
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    Import,
    Open,
    Partner,
    Prepare,
    Setting,
    decode,
    encode,
)
from lakelatch.occ.entries.losses import Changed, Loss
from lakelatch.occ.entries.requests import BeginRequest, Request
from lakelatch.occ.entries.service_content import groups_of, held, paths_of
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.entries.write_sets import write_set_of
from lakelatch.occ.history.ways import Case, explained, ways
from lakelatch.occ.liveness.markers import MARKERS, delete_announced, list_markers
from lakelatch.occ.liveness.reader_leases import ReaderLease
from lakelatch.occ.log.creation import Creation
from lakelatch.occ.log.publisher import metadata_of
from lakelatch.occ.log.state import LogState
from lakelatch.storage.local.store import LocalStore
from lakelatch.streams.declaration import DECLARED_KEY, Stream, declared_in
from lakelatch.streams.events import FLOORS, BlockNote, floors_of, floors_to_footer

from ..occ.mor import data_block, delete_block, rollback_block, rows
from .bytes_of_others import mangled, mangled_json

T, C = "20260101000000000", "20260101000000001"
GROUP = "01234567-0000-4000-8000-000000000000-0"
BASE = f"{GROUP}_0-0-0_{T}.parquet"
STAT = WriteStat(GROUP, f"p=a/{BASE}", "p=a", T, 3, 1, 1, 1, 100, 100, log_files=(f".{GROUP}_{T}.log.1_0-0-0",))
SCHEMA = pa.schema([("id", pa.string()), ("d", pa.decimal128(9, 2)), ("l", pa.list_(pa.int64())), ("t", pa.date32())])
COMMIT = CommitMetadata("UPSERT", to_avro(SCHEMA, "t"), {"k": "v"}, (STAT,), {"p=a": (GROUP,)})
SLICES = {
    "slices": {"p=a": [BASE]},
    "earliest": {"T": T, "C": C, "action": "commit"},
    "last": T,
    "policy": "KEEP_LATEST_COMMITS",
    "groups": [
        {"partition": "p=a", "files": [BASE], "file_id": GROUP, "base": BASE, "logs": [], "log_bytes": 1, "instant": T}
    ],
    "by": "w",
    "comment": "c",
}


@dataclass(frozen=True)
class Target:
    """``run`` gets what ``given`` makes."""

    given: st.SearchStrategy[Any]
    run: Callable[[Any], object]

    def __call__(self, value: Any) -> None:
        try:
            self.run(value)
        except LakeLatchError as e:
            str(e)


@contextmanager
def _store() -> Iterator[LocalStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield LocalStore(folder)


# --- instants ----------------------------------------------------------------------------------------------------

_uri = "file:///t/{}".format
_INSTANTS = [
    encode_commit(COMMIT, replace=True),
    encode_clean_plan(SLICES, uri=_uri),
    encode_clean(SLICES, started=T, took_ms=1),
    encode_savepoint(SLICES, at_ms=1),
    encode_restore([Instant(T, "commit", "completed", C)], started=T, took_ms=1),
    encode_clustering_plan(SLICES, uri=_uri),
    encode_compaction_plan(SLICES),
]
_LAYOUT_1 = {
    "partitionToWriteStats": {"p=a": [{"fileId": GROUP, "path": STAT.path, "numWrites": 3, "logFiles": ["a"]}]},
    "partitionToReplaceFileIds": {"p=a": [GROUP]},
    "extraMetadata": {"schema": COMMIT.schema, "k": "v"},
    "operationType": "UPSERT",
    "compacted": False,
}


def _layout_2(body: bytes) -> None:
    for read in (lambda: decode_container(body, name="x"), lambda: decode_commit(body, name="x", layout=2).to_json()):
        try:
            read()
        except LakeLatchError as e:
            str(e)


def _layout_1(body: bytes) -> None:
    json.dumps(decode_commit(body, name="x", layout=1).to_json())


# --- log files, properties, schemas ------------------------------------------------------------------------------

_ROWS = rows("a", {"k": 1, "l": 2})
_BLOCKS = data_block(T, _ROWS) + delete_block(T, ["k", ("l", ("LongWrapper", 4))]) + rollback_block(C, T)
_PROPERTIES = (
    b"#x\nhoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=8\nhoodie.timeline.layout.version=2\n"
    b"hoodie.table.recordkey.fields=id\\\n  ,k\nhoodie.table.partition.fields=p:SIMPLE\nhoodie.database.name=d\\u00e4\n"
)


def _log_file(body: bytes) -> None:
    for block in read_blocks(body, "log"):
        if not isinstance(block, Torn):
            _ = (block.instant, block.rolls_back)
            list(block.deletes()) if block.kind == DELETE else block.rows()


def _properties(body: bytes) -> None:
    config = TableConfig.from_bytes(body)
    config.refuse_writing()
    assert TableConfig.from_bytes(config.to_bytes()).record_key_fields == config.record_key_fields


_SCHEMAS = [str(COMMIT.schema), to_avro(SCHEMA, "t", dropped=("gone", "l.element.x", "\U0001f600"))]


def _schema(text: str) -> None:
    dropped, found = dropped_columns(text), from_avro(text)
    assert dropped_columns(to_avro(found, "t", dropped=dropped)) == tuple(sorted(dropped))


# --- the log -----------------------------------------------------------------------------------------------------

NOTHING = LocalStore(tempfile.gettempdir() + "/lakelatch-fuzz-no-table")
_TOLD = {"columns": {"rows": 3, "columns": {"id": ["a", "b", 0]}}}
_UNIQUE = {"": {"spans": {"p=a": ["a", "b"]}, "hashes": "AAEAAAAAAAAA"}}
_METADATA = COMMIT.to_json() | {"unique": _UNIQUE}
_METADATA["stats"][0] |= _TOLD
_BEGIN = Begin(T, "commit", "UPSERT", "w", Process("h", "b", 1, "2"), 3, plan={"content": SLICES}, planned_at=2)
_LANDED = Commit(
    T, C, "commit", "UPSERT", "w", 7, EVERYWHERE, COMMIT.schema, _METADATA, slot=4, undone=(f"{T}_{C}.commit",)
)
_SERVED = Commit(T, C, "clean", "CLEAN", "w", 7, metadata={"operation": "CLEAN", "held": {"content": SLICES}}, slot=4)
_PREPARED = Prepare(replace(_LANDED, several=(Partner("file:///t/a", T), Partner("file:///t/b", T))), 3)
_OPEN = Open(T, 7, Settings(), (_BEGIN,), _LANDED, 0, COMMIT.schema, pending=(T,), prepared=(_PREPARED,))
_GROUP = FileGroupId("p=a", GROUP)
_SCAN = Scan(EVERYWHERE, where_of([("n", ">", 1), ("d", "in", (date(2026, 1, 2), "x"))]), frozenset({_GROUP}))
_LOSS = Loss(
    T, "UPSERT", "w", "both", ("p=a/f",), WriteSet(frozenset({_GROUP}), EVERYWHERE),
    ReadSet(EVERYWHERE, condition=(_SCAN,), scans=(_SCAN,)), {_GROUP: Changed(1, 2, 3, 4)},
)  # fmt: skip
_ENTRIES = [
    json.loads(encode(each, 1, 3, "x"))
    for each in (
        _BEGIN,
        _LANDED,
        _SERVED,
        _PREPARED,
        _PREPARED.commit,
        GroupCommit((_LANDED, _SERVED), 4),
        GroupBegin((replace(_BEGIN, plan=None, planned_at=-1, asked="0" * 32), _BEGIN), 3),
        End("abort", T, "w", "why", 3, _LOSS),
        Setting(Settings(), "w", 3),
        Close(3),
        Close(3, (T,)),
        Import((replace(_LANDED, imported=True),), 4),
        replace(_LANDED, action="replacecommit", operation="CLUSTER", buckets=4),
        _OPEN,
    )
]


def _entry(body: bytes) -> None:
    entry = decode(body, "slot")
    state = LogState()
    state.apply(_OPEN)
    state.apply(entry)
    encode(entry, 1, 2, "x")
    encode(state.carried(9), 1, 9, "x")
    match entry:
        case Commit():
            _ = (entry.published, entry.empty, entry.restores)
            if entry.metadata is not None:
                writes = write_set_of(NOTHING, entry, entry.metadata)
                _ = [writes.statistics.get(group) for group in writes.groups]
                _ = [
                    (_overlap(each, ("a", "b")), values.hashes())
                    for values in writes.unique.values()
                    for each in values.spans.values()
                ]
        case Prepare():
            _ = (entry.home, entry.instant, entry.decided(token=1, now_s=0.0, top=T))
        case Begin():
            _ = (entry.claim, str(entry.reserved or ""))
        case End() if entry.lost is not None:
            _why(entry.lost)


_RANGES = encode_ranges(
    "p=a", {BASE: (700, b"a", "\U0001f600".encode()), "x": (1, "\U0001f600".encode(), "\ufb01".encode())}
)


def _ranges(text: bytes) -> None:
    """Whatever is understood is kept as it was."""
    found = decode_ranges("p=a", hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    if found is not None:
        for size, low, high in found.values():
            assert size > 0
            assert low <= high or low.decode().encode("utf-16-be") <= high.decode().encode("utf-16-be")
        short = {name: each for name, each in found.items() if max(map(len, each[1:])) <= 512}
        assert decode_ranges("p=a", encode_ranges("p=a", short)) == short


_REQUEST = Request(replace(_LANDED, undone=(), completion=""), 3, 3, _LOSS.reads, "serializable", COMMIT.schema, None)


def _request(text: bytes) -> None:
    """With a checksum that is right, so that what is mangled is read."""
    found = Request.from_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    if found is not None:
        encode(GroupCommit((found.commit, found.commit), 4), 1, 4, "x")
        writes = write_set_of(NOTHING, found.commit, found.commit.metadata or {})
        _ = (writes.groups, found.reads.scans)
        assert Request.from_bytes(found.to_bytes()) == replace(found, size=len(found.to_bytes()))


_BEGIN_REQUEST = BeginRequest(7, 4, replace(_BEGIN, plan=None, planned_at=-1, asked="0" * 32))


def _begin_request(body: bytes) -> None:
    found = BeginRequest.from_bytes(body)
    if found is not None:
        encode(GroupBegin((found.begin,), 4), 1, 4, "x")
        assert BeginRequest.from_bytes(found.to_bytes()) == found


def _why(loss: Loss) -> None:
    """What `Table.why` makes of a loss."""
    landed = Party(T, C, "UPSERT", "w", WriteSet(frozenset({_GROUP}), EVERYWHERE))
    ours = Party("20260101000000002", "", "UPSERT", "w", loss.writes)
    for merges in (False, True):
        case = Case(ours, loss.reads, (landed,), T, isolation=loss.isolation, merges=merges)
        _ = [(way.how, way.lands) for way in ways(explained(case, loss.rule))]


def _side(body: bytes) -> None:
    digest = hashlib.sha256(body).hexdigest()
    with _store() as store:
        path = ".hoodie/.lakelatch/sides/x.json"
        store.put(path, body)
        for read in (
            lambda: metadata_of(store, Commit(T, C, "commit", "UPSERT", "w", 1, side={"path": path, "sha256": digest})),
            lambda: groups_of(held(store, {"side": path, "sha256": digest})),
        ):
            try:
                read()
            except LakeLatchError as e:
                str(e)


def _held(body: bytes) -> None:
    content = json.loads(body)
    entry = _ENTRIES[0] | {"plan": {"content": content}}
    begin = decode(json.dumps(entry).encode(), "slot")
    assert isinstance(begin, Begin)
    assert begin.plan is not None
    for path in (
        *paths_of({"slices": {}} | begin.plan["content"]),
        *(g.partition for g in groups_of(begin.plan["content"])),
    ):
        assert ".." not in path.split("/")
        assert not path.startswith("/")


# --- files of the table ------------------------------------------------------------------------------------------


def _markers(names: list[str]) -> None:
    """Whatever they are called, nothing goes but data files of their own transaction."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "table")
        kept = [".hoodie/hoodie.properties", f"p=a/{GROUP}_0-0-0_{C}.parquet", "p=a/x", ".hoodie_partition_metadata"]
        for name in [*kept, f"p=a/{BASE}"]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")
        store = LocalStore(root)
        for name in names:
            try:
                store.put(f"{MARKERS}/{T}/{name}", b"")
            except LakeLatchError:
                continue  # no name that there can be
        delete_announced(store, list_markers(store, T))
        assert all((root / name).exists() for name in kept)


_MARKER_NAMES = [
    f"p=a/{BASE}",
    ".hoodie/hoodie.properties",
    f"p=a/{GROUP}_0-0-0_{C}.parquet",
    "p=a/x",
    f".hoodie/{BASE}",
    BASE,
]


def _names(name: str) -> None:
    if (base := parse_base_name(name)) is not None:
        assert base_file_name(base) == name
    if (log := parse_log_name(name)) is not None and str(log.version) == name.split(".log.")[1].partition("_")[0]:
        assert log_file_name(log).removesuffix(".cdc") == name.removesuffix(".cdc")
    for layout in (1, 2):
        if (instant := parse(name, layout=layout)) is not None:
            assert parse(file_name(instant, layout=layout), layout=layout) == instant
    for path in (name, f"p=a/{name}"):
        _ = (BaseFile.at(path, 0), LogFile.at(path, 0))


_CONFIGS = [
    TableConfig("t", "COPY_ON_WRITE", 8, 2, partition_fields=fields, hive_style=hive, url_encode=encoded)
    for fields in ((), ("p",), ("p", "q"))
    for hive in (True, False)
    for encoded in (True, False)
]


def _partition(given: tuple[str, TableConfig]) -> None:
    path, config = given
    parse_partition_path(path, config)


def _footer(notes: list[tuple[str, bytes]]) -> None:
    out = io.BytesIO()
    meta = {key: [T] for key in ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key")}
    table = pa.table(meta | {"_hoodie_partition_path": [""], "_hoodie_file_name": [BASE]})
    pq.write_table(table.replace_schema_metadata({key.encode(): value for key, value in notes}), out)
    with _store() as store:
        store.put(BASE, out.getvalue())
        note_of(pq.read_metadata(io.BytesIO(out.getvalue()))).get("key")
        base = BaseFile.at(BASE, 1)
        assert base is not None
        assert inspect(store, _CONFIGS[0], base, None).rows == 1


def _data_file(body: bytes) -> None:
    with _store() as store:
        store.put(BASE, body)
        base = BaseFile.at(BASE, 1)
        assert base is not None
        inspect(store, _CONFIGS[0], base, None)


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"_hoodie_record_key": ["a", "b"], "v": [1, 2]}), out)
    return out.getvalue()


_FOOTER_KEYS = st.sampled_from(
    ["lakelatch.file", "hoodie_min_record_key", "hoodie_max_record_key", "parquet.avro.schema"]
)
_NOTES = [b'{"digest":1,"inserts":1,"updates":0,"deletes":0,"key":"id","checksums":true}', b"[" * 3000, b"7"]


def _history_files() -> dict[str, bytes]:
    with _store() as store:
        History(store, ".hoodie/timeline").add([Archived(Instant(T, "commit", "completed", C), _INSTANTS[0])])
        return {each.name: store.get(each.path).body for each in store.list(".hoodie/timeline/history")}  # type: ignore[union-attr]


_HISTORY = _history_files()


def _history(given: tuple[str, bytes]) -> None:
    name, body = given
    with _store() as store:
        for each, sound in _HISTORY.items():
            store.put(f".hoodie/timeline/history/{each}", body if each == name else sound)
        history = History(store, ".hoodie/timeline")
        for instant in history.instants().values():
            history.metadata(instant)
        history.newest_completion()


# --- locks -------------------------------------------------------------------------------------------------------

_BREAK = BreakRecord("k", 7, "why", "who", 1.5)
_OURS = {
    "token": 7, "who": "w", "since": 1.0, "reason": "r", "host": "h", "pid": 1, "turn": 2, "line": ["a"],
    "broken": to_json(_BREAK),
}  # fmt: skip
_LOCKS = [{"validUntil": 1, "expired": False, "owner": "o", "lakelatch": _OURS}]
_TOKENS = [{"v": 1, "limit": 5, "breaks": [to_json(_BREAK)]}]
_GENERATION = [
    {
        "key": "k", "owner": "o", "process": {"host": "h", "boot": "b", "pid": 1, "started": "2"}, "lease_s": 3.0, "since": 1.0,
        "until": 2.0, "reason": "r",
    }
]  # fmt: skip


def _lock_object(body: bytes) -> None:
    found = LockObject.decode(body, "here")
    _ = (found.holder("k"), found.turn, found.line, found.token, broken_of("k", found))
    LockObject.decode(found.encode(), "here")


def _generation(body: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, generation_name(7)).write_bytes(body)
        record = Record.read(folder, 7)
    assert record.lease_s is None or math.isfinite(record.lease_s)
    _ = Found(1, 1, body).token
    broken = break_of("k", fields_of(body))
    for at in (record.since, record.until or 0.0, *([broken.at] if broken else ())):
        assert time_text(at)


_ITEM = {
    "ownerName": {"S": "o"}, "recordVersionNumber": {"S": "v"}, "leaseDuration": {"S": "1000"}, "lakelatchFence": {"N": "7"},
    "lakelatchHolder": {"S": json.dumps({"since": 1, "until": 2, "reason": "r", "host": "h", "pid": 3})},
    "lakelatchLimit": {"N": "9"}, "lakelatchReleased": {"N": "6"},
}  # fmt: skip


def _item(body: bytes) -> None:
    """DynamoDB keeps the kinds of its values apart; what is in a text may be anything."""
    value = json.loads(body)
    texts = value if isinstance(value, list) else [value]
    item = _ITEM | {
        "lakelatchHolder": {"S": json.dumps(value)},
        "leaseDuration": {"S": str(value)},
        "ownerName": {"S": str(value)},
    }
    found = parse_item(item)
    found.as_holder("k")
    parse_breaks("k", [json.dumps(each) for each in texts])


_NUMBER = st.integers(-(10**37), 10**37) | st.decimals(allow_nan=False, allow_infinity=False, places=3)
_ODD_ITEM = st.dictionaries(
    st.sampled_from([*_ITEM, "lakelatchQueue", "lakelatchOvertaken", "lakelatchBroken", "isReleased"]),
    st.builds(
        lambda text: {"S": text},
        st.sampled_from(["nan", "inf", "-1", "1e400", "{}", "[]", "null"]) | st.text(max_size=20),
    )
    | st.builds(lambda number: {"N": str(number)}, _NUMBER)
    | st.builds(lambda texts: {"L": [{"S": each} for each in texts]}, st.lists(st.text(max_size=5), max_size=3))
    | st.sampled_from([{"BOOL": True}, {"NULL": True}, {"L": [{"N": "1"}]}, {"M": {}}, {"SS": ["a"]}]),
)


def _odd_item(values: dict[str, Any]) -> None:
    """Attributes of any kind, as whoever may write to the table can leave them; the lock must not be held for ever by them."""
    found = parse_item(_ITEM | values)
    holder = found.as_holder("k")
    assert holder is None or time_text(holder.since)
    assert found.lease_s is None or 0 <= found.lease_s < math.inf
    assert min(found.limit, found.last_released, found.overtaken, found.fence or 0) >= 0
    assert all(isinstance(each, str) for each in found.queue)


class _Nodes:
    """A session with a server that has these nodes."""

    def __init__(self, names: list[str], body: bytes) -> None:
        self._names, self._body = names, body

    def ask(self, send: Callable[[Any], Any], *, proves: bool = False) -> Any:
        return send(self)

    def sync_async(self, path: str) -> None: ...

    def get_children_async(self, path: str) -> list[str]:
        return self._names

    def get_async(self, path: str) -> tuple[bytes, Any]:
        return self._body, SimpleNamespace(czxid=7, ctime=1000)


def _node(given: tuple[list[str], bytes]) -> None:
    """What a ZooKeeper shows of a lock: contenders of any name, holding anything."""
    locks = open_provider("zk://nowhere/locks")
    backend = locks._backend  # type: ignore[attr-defined]
    backend._sessions[SYSTEM.process()] = _Nodes(*given)
    holder = backend.inspect("k")
    if holder is not None:
        assert time_text(holder.since)
        assert isinstance(holder.pid, int)
        assert {type(each) for each in (holder.owner, holder.host, holder.reason, *holder.queue)} == {str}
        _ = holder.since - 1.0
    for each in backend.breaks("k"):
        assert time_text(each.at)


_NODE = {"owner": "o", "host": "h", "pid": 1, "since": 1.5, "reason": "r"}
_NODE_NAMES = st.lists(
    st.sampled_from([f"_c_0-lock-{n:010}" for n in range(3)] + ["x", "-1234567890", "b-0000000001"])
    | st.text(max_size=12),
    max_size=4,
)


def _redis_lock(body: bytes) -> None:
    locks = open_provider("redis://nowhere")
    backend = locks._backend  # type: ignore[attr-defined]
    backend.run = lambda *_: (body, 5, b"9", [body])
    holder = backend.inspect("k")
    assert time_text(holder.since)


_REDIS_LOCK = b"owner\n7\n1000\n" + json.dumps({"reason": "r", "host": "h", "pid": 1}).encode()

# --- a coordinator's messages --------------------------------------------------------------------------------------

_QUESTIONS = [Question(4, _REQUEST).to_bytes(), Question(4, _BEGIN_REQUEST).to_bytes()]
_ANSWERS = [Answer((("a/1", b"{}"), ("a/2", b"x")), published=False).to_bytes(), Answer(alone=True).to_bytes()]


def _question(body: bytes) -> None:
    found = Question.from_bytes(body)
    assert found is None or Question.from_bytes(found.to_bytes()) is not None


def _answer(body: bytes) -> None:
    found = Answer.from_bytes(body)
    assert found is None or Answer.from_bytes(found.to_bytes()) == found


def _answer_head(body: bytes) -> None:
    _answer(body + b"\n{}x")


# --- streams -------------------------------------------------------------------------------------------------------

_STREAM = Stream("s", ("n",), "at")
_FLOORS = floors_to_footer(pa.table({"id": ["a"], "s": pa.array([7], pa.int64())}))[FLOORS].encode()


def _stream_note(body: bytes) -> None:
    BlockNote.of({STREAM_NOTE.encode(): body}, "x")


def _floors(body: bytes) -> None:
    floors_of({FLOORS.encode(): body}, "x")


def _declared(body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return  # properties are text
    declared_in(replace(_CONFIGS[0], raw={DECLARED_KEY: text}))


_CREATION = Creation(_PROPERTIES.decode("ascii").encode(), 1, encode(_OPEN, 1, 0, "x"))


def _creation(body: bytes) -> None:
    assert Creation.from_bytes(Creation.from_bytes(body, "t").to_bytes(), "t")


def _batch(body: bytes) -> None:
    """The number of a batch in a commit on the timeline, which may be a JVM's."""
    Batch.told_in({key: body.decode("utf-8", "replace") for key in Batch("a", 1).extra})


_DECLARED_JSON = {"streams": [_STREAM.to_json()], "bucket_count": 8, "since": T}

_HOLDER = [
    {"since": 1, "until": 2, "reason": "r", "host": "h", "pid": 3},
    {"token": 7, "reason": "r", "who": "w", "at": 1},
]
_LEASE = ReaderLease("r", "w", T, True, Process("h", "b", 1, "2"))


def _lease(body: bytes) -> None:
    lease = ReaderLease.from_bytes("r", body)
    lease.moments([T, C])
    lease.to_bytes(1)


_TEXT = st.text(max_size=40)
TARGETS: dict[str, Target] = {
    "Avro instants": Target(mangled(_INSTANTS), _layout_2),
    "JSON instants": Target(mangled_json([_LAYOUT_1]), _layout_1),
    "JSON instants, torn": Target(mangled([json.dumps(_LAYOUT_1).encode()]), _layout_1),
    "schemas": Target(mangled([each.encode() for each in _SCHEMAS]).map(lambda body: body.decode("latin-1")), _schema),
    "schemas of other types": Target(mangled_json([json.loads(each) for each in _SCHEMAS]).map(bytes.decode), _schema),
    "log files": Target(mangled([_BLOCKS]), _log_file),
    "properties": Target(mangled([_PROPERTIES]), _properties),
    "log entries": Target(mangled_json(_ENTRIES), _entry),
    "log entries, torn": Target(mangled([json.dumps(each).encode() for each in _ENTRIES]), _entry),
    "requests": Target(mangled_json([json.loads(_REQUEST.to_bytes().partition(b"\n")[2])]), _request),
    "requests, torn": Target(mangled([_REQUEST.to_bytes()]), Request.from_bytes),
    "requests to begin": Target(mangled_json([json.loads(_BEGIN_REQUEST.to_bytes())]), _begin_request),
    "key ranges": Target(mangled_json([json.loads(_RANGES.partition(b"\n")[2])]), _ranges),
    "key ranges, torn": Target(mangled([_RANGES]), lambda body: decode_ranges("p=a", body)),
    "plans": Target(mangled_json([SLICES]), _held),
    "side objects": Target(mangled_json([COMMIT.to_json(), SLICES]), _side),
    "side objects, torn": Target(mangled([json.dumps(COMMIT.to_json()).encode()]), _side),
    "leases of readers": Target(mangled_json([json.loads(_LEASE.to_bytes(1))]), _lease),
    "leases of readers, torn": Target(mangled([_LEASE.to_bytes(1)]), _lease),
    "markers": Target(
        st.lists(
            st.builds("{}.marker.{}".format, st.sampled_from(_MARKER_NAMES) | _TEXT, st.just("CREATE") | _TEXT),
            max_size=4,
        ),
        _markers,
    ),
    "file names": Target(
        mangled(
            [
                BASE.encode(),
                f".{GROUP}_{T}.log.1_0-0-0.cdc".encode(),
                f"{T}_{C}.commit".encode(),
                f"{T}.inflight".encode(),
            ]
        ).map(lambda body: body.decode("utf-8", "replace")),
        _names,
    ),
    "partition paths": Target(
        st.tuples(
            _TEXT | st.sampled_from(["p=a", "p=a/q=%2F", "2026/01/17", "p=", "..", "p=%"]), st.sampled_from(_CONFIGS)
        ),
        _partition,
    ),
    "Parquet footers": Target(st.lists(st.tuples(_FOOTER_KEYS, mangled(_NOTES)), max_size=4), _footer),
    "Parquet files": Target(mangled([_parquet()]), _data_file),
    "archived history": Target(
        st.sampled_from(sorted(_HISTORY)).flatmap(lambda name: st.tuples(st.just(name), mangled([_HISTORY[name]]))),
        _history,
    ),
    "lock objects": Target(mangled_json(_LOCKS), _lock_object),
    "token objects": Target(mangled_json(_TOKENS), lambda body: TokenObject.decode(body, "k", "here").encode()),
    "lock files": Target(mangled_json(_GENERATION), _generation),
    "lock files, torn": Target(mangled([json.dumps(_GENERATION[0]).encode()]), _generation),
    "DynamoDB items": Target(mangled_json(_HOLDER), _item),
    "DynamoDB items of any kind": Target(_ODD_ITEM, _odd_item),
    "ZooKeeper nodes": Target(st.tuples(_NODE_NAMES, mangled_json([_NODE, _HOLDER[1]])), _node),
    "ZooKeeper nodes, torn": Target(st.tuples(_NODE_NAMES, mangled([json.dumps(_NODE).encode()])), _node),
    "Redis locks": Target(mangled([_REDIS_LOCK]), _redis_lock),
    "a coordinator's questions": Target(mangled(_QUESTIONS), _question),
    "a coordinator's answers": Target(mangled(_ANSWERS), _answer),
    "a coordinator's answers, other values": Target(
        mangled_json([json.loads(each.partition(b"\n")[0]) for each in _ANSWERS]), _answer_head
    ),
    "notes of streams": Target(mangled_json([{"stream": "s", "kind": "upsert", "columns": ["n"]}]), _stream_note),
    "notes of streams, torn": Target(mangled([b'{"stream": "s", "kind": "upsert", "columns": ["n"]}']), _stream_note),
    "floors of streams": Target(mangled([_FLOORS]), _floors),
    "creations": Target(mangled_json([json.loads(_CREATION.to_bytes())]), _creation),
    "creations, torn": Target(mangled([_CREATION.to_bytes()]), _creation),
    "numbers of batches": Target(mangled([b'["a", 1]']), _batch),
    "declared streams": Target(mangled_json([_DECLARED_JSON]), _declared),
    "declared streams, torn": Target(mangled([json.dumps(_DECLARED_JSON).encode()]), _declared),
}
