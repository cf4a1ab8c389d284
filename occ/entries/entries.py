"""The kinds of log entries, and how each is written as JSON and read back. Pure.

The log is the history of transactions. A transaction is open from its begin entry to its commit, rollback or abort.
Slot numbers continue across epochs, so that two slots always compare.

A field is declared once: `Stored` in its annotation says how, and its place among the others is its place on disk. Earlier
versions skip a field that they do not know: raise `VERSION` if they must not. A field that is left out at its default keeps
the bytes of entries that do not use it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from ...conflict import NOWHERE, Claim, Region, Reservation
from ...environment import Process
from ...errors import CorruptTableError, InputError, UnsupportedTableError
from ...hudi.timeline import COMMIT_ACTIONS, CommitMetadata, Instant, file_name, next_label
from .batches import Batch, Landed
from .entry_rules import (
    Form,
    Stored,
    are_batches,
    are_instants,
    are_objects,
    are_partners,
    are_times,
    is_action,
    is_aside,
    is_asked,
    is_batch,
    is_buckets,
    is_content,
    is_flag,
    is_instant_time,
    is_number,
    is_object,
    is_region,
    is_reservation,
    is_text,
    maybe,
    or_empty,
    refuse_begin,
    refuse_commit,
    refuse_prepare,
)
from .losses import Loss
from .settings import VERSION, Settings

_SETTINGS = Stored(load=Settings.from_json, dump=Settings.to_json)
_LANDED = Stored(
    are_batches,
    load=lambda raw: tuple(map(Landed.from_json, raw)),
    dump=lambda landed: [each.to_json() for each in landed],
)


_PENDING = Stored(are_times, load=tuple, dump=list)


class Partner(NamedTuple):
    """A table of a transaction over several, and the T of the transaction there."""

    url: str
    instant: str


_PARTNERS = Stored(
    are_partners, load=lambda raw: tuple(Partner(*each) for each in raw), dump=lambda all_: [[*each] for each in all_]
)


def _members(members: "Sequence[_Entry]") -> list[dict[str, Any]]:
    return [each.fields() for each in members]


class _Entry:
    __slots__ = ()

    def fields(self) -> dict[str, Any]:
        """Return the stored fields, as plain values."""
        return _FORMS[type(self)].write(self)


@dataclass(frozen=True, slots=True)
class Begin(_Entry):
    """The begin of a transaction; everything before its slot is its snapshot.

    ``plan``: the work of a table service that any process may execute (`service_content.held`). A plan has no heartbeat
    until it is executed, and silence does not end it, unless its maker ``executes`` it at once: then it lives as
    long as an executor does. ``planned_at`` is the slot that the plan was computed at.
    ``foreign``: the plan is another engine's, and has its T, which may be smaller than times before the entry.
    ``reserved``: its reservation while it is open. ``first``: slot of the first attempt, if that is another one.
    ``asked``: the id of its requests to be begun by others, if it made any (`BeginRequest`).
    """

    instant: Annotated[str, Stored(is_instant_time, "T")]
    action: Annotated[str, Stored(is_action, by_others=True)]
    operation: Annotated[str, Stored(is_text, "op", by_others=True)]
    writer: Annotated[str, Stored(is_text, by_others=True)]
    process: Annotated[
        Process | None, Stored(load=Process.from_json, dump=lambda each: each and each.to_json(), by_others=True)
    ]
    slot: int = -1
    priority: Annotated[int, Stored(is_number, by_others=True)] = 0
    plan: Annotated[dict[str, Any] | None, Stored(maybe(is_content))] = None
    planned_at: Annotated[int, Stored(is_number, beside="plan")] = -1
    executes: Annotated[bool, Stored(is_flag)] = False
    foreign: Annotated[bool, Stored(is_flag)] = False
    first: Annotated[int | None, Stored(maybe(is_number), by_others=True)] = None
    asked: Annotated[str, Stored(or_empty(is_asked))] = ""
    reserved: Annotated[
        Reservation | None, Stored(maybe(is_reservation), load=Reservation.from_json, dump=Reservation.to_json)
    ] = None

    kind = "begin"

    @property
    def waits(self) -> bool:
        """True for a plan that lives although nobody may be at work on it."""
        return self.plan is not None and not self.executes

    @property
    def age(self) -> int:
        """The slot of the first attempt of the same work."""
        return self.slot if self.first is None else self.first

    @property
    def claim(self) -> Claim:
        """The rank and reservation of this transaction."""
        return Claim(self.instant, self.age, self.priority, self.reserved)


@dataclass(frozen=True, slots=True)
class GroupBegin(_Entry):
    """The begin of several transactions by one entry: that of its writer, and those of requests.

    The snapshot of each is the state before the entry, and its slot that of the entry; T grows from member to member. A
    kind of its own, so that earlier versions stop at it.
    """

    members: Annotated[tuple[Begin, ...], Stored(are_objects, dump=_members)]
    slot: int = -1

    kind = "begins"

    @property
    def instant(self) -> str:
        """T of the first, whose writer appended it for all."""
        return self.members[0].instant


@dataclass(frozen=True, slots=True)
class Commit(_Entry):
    """The commit of a transaction: this entry alone makes it committed.

    ``metadata`` is the plain form of `CommitMetadata` without its schema, or ``side`` names the object that holds it
    and its hash. ``schema`` is the table's from here on (Avro JSON of the data columns). ``blind``: nothing was read.
    ``undone``: names of instants that leave the timeline with this one. ``named``: T on the timeline if it differs from
    ours, as a savepoint bears the time of the commit that it keeps. ``echo``: the name of an empty instant that
    repeats ``schema``, for readers that take that of the largest T (`placed`). ``batch``: the batch that it commits.
    ``standing``: of a restore, the batches that become the newest of their sources again. ``several``: all tables of its
    transaction, if it is one over several, in the order of their URLs; the last is the *home*, whose commit entry decides.
    ``buckets``: the table's ``bucket_count`` from here on, as its rows lie; 0: as before. Such an entry is of a kind of its
    own, so that earlier versions stop at it.
    ``recent``: the metadata, while its writer has it in memory; no part of the entry. ``place``: its index in a
    `GroupCommit`. ``imported``: it stands in an `Import`.
    """

    instant: Annotated[str, Stored(is_instant_time, "T")]
    completion: Annotated[str, Stored(is_instant_time, "C")]
    action: Annotated[str, Stored(is_action)]
    operation: Annotated[str, Stored(is_text, "op")]
    writer: Annotated[str, Stored(is_text)]
    token: Annotated[int, Stored(is_number)]
    region: Annotated[
        Region,
        Stored(
            maybe(is_region), always=True, load=Region.from_json, dump=lambda each: each.to_json() if each else None
        ),
    ] = NOWHERE
    schema: Annotated[str | None, Stored(maybe(is_text), always=True)] = None
    metadata: Annotated[dict[str, Any] | None, Stored(maybe(is_object), always=True)] = None
    side: Annotated[dict[str, str] | None, Stored(maybe(is_aside), always=True)] = None
    slot: int = -1
    blind: Annotated[bool, Stored(is_flag)] = False
    undone: Annotated[tuple[str, ...], Stored(are_instants, load=tuple, dump=list)] = ()
    named: Annotated[str, Stored(or_empty(is_instant_time))] = ""
    echo: Annotated[str, Stored(or_empty(lambda name: are_instants([name])))] = ""
    batch: Annotated[
        Batch | None,
        Stored(is_batch, load=lambda pair: Batch(*pair), dump=lambda batch: [batch.source, batch.number]),
    ] = None
    standing: Annotated[tuple[Landed, ...], _LANDED] = ()
    several: Annotated[tuple[Partner, ...], _PARTNERS] = ()
    buckets: Annotated[int, Stored(is_buckets)] = 0
    recent: Callable[[], CommitMetadata | None] | None = field(default=None, compare=False, repr=False)
    place: int = 0
    imported: bool = False

    @property
    def kind(self) -> str:
        """The kind of the entry."""
        return "buckets" if self.buckets else "commit"

    @property
    def empty(self) -> bool:
        """True if it changes no row and claims nothing, like the commit made with a table."""
        content = self.metadata
        return content is not None and not self.region and not content.get("stats") and not content.get("replaced")

    @property
    def shown(self) -> str:
        """The name of its instant; "" for a commit that only removes others."""
        if self.operation in ("SAVEPOINT_DELETE", "ARCHIVE"):
            return ""
        return file_name(Instant(self.named or self.instant, self.action, "completed", self.completion))

    @property
    def published(self) -> tuple[str, ...]:
        """The names of all its instants, in the order in which they appear, which is that of C."""
        return tuple(name for name in (self.echo, self.shown) if name)

    @property
    def restores(self) -> bool:
        """True if it takes commits back, so that no view before it leads to one after it."""
        return self.action == "restore"

    def placed(self, *, completion: str, token: int, schema: str | None, echo: str = "") -> Self:
        """Fill in the values that are known only at the slot."""
        # A service changes no schema, and a restore brings back an earlier one.
        schema = schema if self.action in COMMIT_ACTIONS else None
        return replace(self, completion=completion, token=token, schema=schema, echo=echo if schema else "")

    @property
    def schema_under(self) -> str:
        """The T under which readers find its schema."""
        return self.echo.partition("_")[0] or self.instant


@dataclass(frozen=True, slots=True)
class Prepare(_Entry):
    """A commit of a transaction over several tables in a table that is not its home: it counts if the home commits.

    Until this log has its outcome, no commit goes behind it (`CommitLog.append`). Its C is picked with the outcome.
    """

    commit: Annotated[Commit, Stored(is_object, load=lambda raw: _read(Commit, raw), dump=lambda each: _carried(each))]
    slot: int = -1

    kind = "prepare"

    @property
    def instant(self) -> str:
        """T of the transaction in this table."""
        return self.commit.instant

    @property
    def home(self) -> Partner:
        """The table whose log decides, and the transaction there."""
        return self.commit.several[-1]

    def decided(self, *, token: int, now_s: float, top: str) -> Commit:
        """Return the commit entry for a slot; ``top`` is the largest time before it."""
        commit, echo = self.commit, ""
        if commit.echo:
            echo, top = next_echo(now_s, top)
        completion = next_label(now_s, top)
        return replace(commit, completion=completion, token=token, echo=echo, slot=-1)


def next_echo(now_s: float, top: str) -> tuple[str, str]:
    """Return the name of the next echo (`echo_of`) and its C, which is the largest time from then on."""
    requested = next_label(now_s, top)
    # The commit takes its C after this one, so the echo completes first.
    completed = next_label(now_s, requested)
    return file_name(Instant(requested, "commit", "completed", completed)), completed


@dataclass(frozen=True, slots=True)
class GroupCommit(_Entry):
    """The commits of several transactions by one entry, in the order of ``members``.

    Each of them counts like a `Commit` in a slot of its own, right behind the one before it. All have the slot of
    the entry, and differ in their ``place``. A kind of its own, so that earlier versions stop at it.
    """

    members: Annotated[tuple[Commit, ...], Stored(are_objects, dump=_members)]
    slot: int = -1

    kind = "commits"

    @property
    def instant(self) -> str:
        """T of the first, whose writer appended it for all."""
        return self.members[0].instant


@dataclass(frozen=True, slots=True)
class Import(GroupCommit):
    """Commits that were completed on the timeline before the log had them, in the order of C.

    Of other engines, or of writers of ours that died before their own entry. They count whether their transaction is open
    or was never in the log. A kind of its own, so that earlier versions stop at it.
    """

    kind = "import"


@dataclass(frozen=True, slots=True)
class End(_Entry):
    """The end of a transaction without a commit: ``rollback`` by another process, ``abort`` by its own writer.

    ``lost``: details for `Table.why`, if another writer beat it.
    """

    kind: str
    instant: Annotated[str, Stored(is_instant_time, "T")]
    who: Annotated[str, Stored(is_text)]
    reason: Annotated[str, Stored(is_text)]
    slot: int = -1
    lost: Annotated[
        Loss | None,
        Stored(maybe(is_object), load=lambda raw: Loss.from_json(raw) if raw else None, dump=Loss.to_json),
    ] = None


@dataclass(frozen=True, slots=True)
class Setting(_Entry):
    """The table's settings from here on."""

    settings: Annotated[Settings, _SETTINGS]
    who: Annotated[str, Stored(is_text)]
    slot: int = -1

    kind = "setting"


@dataclass(frozen=True, slots=True)
class Close(_Entry):
    """The end of the epoch.

    ``pending``: with neighbours, T of the transactions of other engines that were not completed then. They may complete later
    with a C from before; all others with such a C are in the log.
    """

    slot: int = -1
    pending: Annotated[tuple[str, ...], _PENDING] = ()

    kind = "close"


@dataclass(frozen=True, slots=True)
class Open(_Entry):
    """The begin of the epoch, with the state that the one before it ended with.

    ``last``: the newest commit, which may still have to be published. ``schema``: the table's, if the log has it.
    ``batches``: the newest of each source. ``pending``: as in `Close`. ``prepared``: commits without an outcome.
    """

    top: Annotated[str, Stored(is_instant_time)]
    token: Annotated[int, Stored(is_number)]
    settings: Annotated[Settings, _SETTINGS]
    open: Annotated[
        tuple[Begin, ...],
        Stored(
            always=True,
            load=lambda raw: tuple(_read(Begin, each) for each in raw),
            dump=lambda all_: [_carried(each) for each in all_],
        ),
    ] = ()
    last: Annotated[
        Commit | None,
        Stored(
            always=True, load=lambda raw: _read(Commit, raw) if raw else None, dump=lambda each: each and _carried(each)
        ),
    ] = None
    slot: int = -1
    schema: Annotated[str | None, Stored(is_text)] = None
    batches: Annotated[tuple[Landed, ...], _LANDED] = ()
    pending: Annotated[tuple[str, ...], _PENDING] = ()
    prepared: Annotated[
        tuple[Prepare, ...],
        Stored(
            are_objects,
            load=lambda raw: tuple(_read(Prepare, each) for each in raw),
            dump=lambda all_: [_carried(each) for each in all_],
        ),
    ] = ()

    kind = "open"


def _carried(entry: Begin | Commit | Prepare) -> dict[str, Any]:
    return entry.fields() | {"slot": entry.slot}


_E = TypeVar("_E", bound=_Entry)
LogEntry = Begin | GroupBegin | Commit | Prepare | GroupCommit | End | Setting | Close | Open
Single = Begin | Commit | Prepare | End | Setting | Close | Open


def at_slot(entry: LogEntry, slot: int) -> LogEntry:
    """The entry with its slot filled in."""
    if isinstance(entry, GroupCommit):
        placed = (replace(each, slot=slot, place=place) for place, each in enumerate(entry.members))
        return replace(entry, members=tuple(placed), slot=slot)
    if isinstance(entry, GroupBegin):
        return GroupBegin(tuple(replace(each, slot=slot) for each in entry.members), slot)
    return replace(entry, slot=slot)


def singly(entry: LogEntry) -> tuple[Single, ...]:
    """The members of a group entry; any other entry alone."""
    return entry.members if isinstance(entry, GroupCommit | GroupBegin) else (entry,)


def encode(entry: LogEntry, epoch: int, slot: int, nonce: str) -> bytes:
    """Return the entry's bytes at a slot. ``nonce`` distinguishes equal entries of two writers.

    Raises `InputError` for an entry that `decode` would refuse.
    """
    head = {"v": VERSION, "kind": entry.kind, "epoch": epoch, "slot": slot, "id": nonce}
    # One entry that nobody can decode stops every writer for good, so a value that slipped through must stop here.
    try:
        body = json.dumps(head | entry.fields(), separators=(",", ":"), ensure_ascii=False).encode()
        decode(body, f"{epoch}/{slot}")
    except (TypeError, ValueError, CorruptTableError) as e:
        raise InputError(
            f"the commit log cannot hold this {entry.kind}: {e.__cause__ or e}; nothing was written"
        ) from e
    return body


_JSON = json.JSONDecoder()


def decode(body: bytes, path: str) -> LogEntry:
    """Decode an entry. Raises `CorruptTableError` for a torn one, `UnsupportedTableError` for a newer one."""
    try:
        text = body.decode()
        raw, end = _JSON.raw_decode(text)  # `json.loads` would first search for blanks around it
        if end != len(text):
            raise ValueError("more follows")
        if "\\u" in text:  # half a surrogate pair could not be carried into the next epoch
            json.dumps(raw, ensure_ascii=False).encode()
        version, kind = raw["v"], raw["kind"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise CorruptTableError(
            f"log entry {path} is torn or not ours ({len(body)} bytes); writers stop here. Restore it, or rebuild the log "
            "with `lakelatch adopt`",
            path=path,
        ) from e
    # Before the fields, which a newer version may have changed.
    if version != VERSION or not isinstance(kind, str) or kind not in _DECODERS:
        raise UnsupportedTableError(
            f"log entry {path} was written by a newer version (v {version}, kind {kind!r}); upgrade lakelatch",
            path=path,
        )
    try:
        return _DECODERS[kind](raw)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        what = f"lacks {e}" if isinstance(e, KeyError) else f"cannot be understood ({e})"
        raise CorruptTableError(
            f"log entry {path} {what}; writers stop here. Restore it, or rebuild the log with `lakelatch adopt`",
            path=path,
        ) from e


_FORMS: dict[type[_Entry], Form] = {
    Begin: Form(Begin, refuse_begin),
    Commit: Form(Commit, refuse_commit),
    Prepare: Form(Prepare, refuse_prepare),
    **{each: Form(each) for each in (GroupBegin, GroupCommit, Import, End, Setting, Close, Open)},
}
BEGUN_BY_OTHERS = _FORMS[Begin].by_others


def _read(of: type[_E], raw: Mapping[str, Any], /, **more: Any) -> _E:
    return of(**_FORMS[of].read(raw), **more)


def asked_for(raw: Mapping[str, Any], *, instant: str) -> Begin:
    """Decode a requested begin, which has no slot yet (`Begin.fields`).

    Raises ValueError, KeyError, TypeError or AttributeError if it is invalid.
    """
    return _read(Begin, {**raw, "T": instant, "slot": 0})


def prepared(raw: Any, *, instant: str, slot: int) -> Commit:
    """Decode a prepared commit, which has no slot yet (`Commit.fields`), of a transaction that began in ``slot``.

    Raises ValueError, KeyError, TypeError or AttributeError if it is invalid.
    """
    if "buckets" in raw:
        raise ValueError("a request sets no number of buckets")
    return _read(Commit, {**raw, "T": instant, "C": instant, "token": 0, "slot": slot})


def _begins(raw: Mapping[str, Any]) -> GroupBegin:
    found = _FORMS[GroupBegin].read(raw)
    slot = found["slot"]
    return GroupBegin(tuple(_read(Begin, {**each, "slot": slot}) for each in found["members"]), slot)


def _commits(raw: Mapping[str, Any], kind: type[GroupCommit] = GroupCommit, **more: Any) -> GroupCommit:
    found = _FORMS[kind].read(raw)
    slot, members = found["slot"], enumerate(found["members"])
    return kind(tuple(_read(Commit, {**each, "slot": slot}, place=place, **more) for place, each in members), slot)


_DECODERS: dict[str, Callable[[dict[str, Any]], LogEntry]] = {
    "begin": partial(_read, Begin),
    "begins": _begins,
    "commit": partial(_read, Commit),
    "buckets": partial(_read, Commit),
    "prepare": partial(_read, Prepare),
    "commits": _commits,
    "import": partial(_commits, kind=Import, imported=True),
    "rollback": partial(_read, End, kind="rollback"),
    "abort": partial(_read, End, kind="abort"),
    "setting": partial(_read, Setting),
    "close": partial(_read, Close),
    "open": partial(_read, Open),
}
