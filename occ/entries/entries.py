"""The kinds of log entries, and how each is written as JSON and read back. Pure.

The log is the history of transactions. A transaction is open from its begin entry to its commit, rollback or abort.
Slot numbers continue across epochs, so that two slots always compare.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ...conflict import NOWHERE, Claim, Region, Reservation
from ...environment import Process
from ...errors import CorruptTableError, UnsupportedTableError
from ...hudi.timeline import COMMIT_ACTIONS, CommitMetadata, Instant, file_name
from .batches import Batch, Landed
from .entry_rules import refuse_strange
from .losses import Loss
from .settings import VERSION, Settings


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a transaction; everything before its slot is its snapshot.

    ``plan``: the work of a table service that any process may execute (`service_content.held`). A plan has no heartbeat
    until it is executed, and silence does not end it, unless its maker ``executes`` it at once: then it lives as
    long as an executor does. ``planned_at`` is the slot that the plan was computed at.
    ``reserved``: its reservation while it is open. ``first``: slot of the first attempt, if that is another one.
    ``asked``: the id of its requests to be begun by others, if it made any (`BeginRequest`).
    """

    instant: str
    action: str
    operation: str
    writer: str
    process: Process | None
    slot: int = -1
    priority: int = 0
    plan: dict[str, Any] | None = None
    planned_at: int = -1
    reserved: Reservation | None = None
    first: int | None = None
    executes: bool = False
    asked: str = ""

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

    def fields(self) -> dict[str, Any]:
        return (
            {
                "T": self.instant,
                "action": self.action,
                "op": self.operation,
                "writer": self.writer,
                "process": self.process.to_json() if self.process else None,
            }
            | ({"priority": self.priority} if self.priority else {})
            | self._planned()
            | self._reserves()
        )

    def _planned(self) -> dict[str, Any]:
        more = {"executes": True} if self.executes else {}
        return {} if self.plan is None else {"plan": self.plan, "planned_at": self.planned_at} | more

    def _reserves(self) -> dict[str, Any]:
        age = {} if self.first is None else {"first": self.first}
        asked = {"asked": self.asked} if self.asked else {}
        return age | asked | ({} if self.reserved is None else {"reserved": self.reserved.to_json()})


@dataclass(frozen=True, slots=True)
class GroupBegin:
    """The begin of several transactions by one entry: that of its writer, and those of requests.

    The snapshot of each is the state before the entry, and its slot that of the entry; T grows from member to member. A
    kind of its own, so that earlier versions stop at it.
    """

    members: tuple[Begin, ...]
    slot: int = -1

    kind = "begins"

    @property
    def instant(self) -> str:
        """T of the first, whose writer appended it for all."""
        return self.members[0].instant

    def fields(self) -> dict[str, Any]:
        return {"members": [each.fields() for each in self.members]}


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a transaction: this entry alone makes it committed.

    ``metadata`` is the plain form of `CommitMetadata` without its schema, or ``side`` names the object that holds it
    and its hash. ``schema`` is the table's from here on (Avro JSON of the data columns). ``blind``: nothing was read.
    ``undone``: names of instants that leave the timeline with this one. ``named``: T on the timeline if it differs from
    ours, as a savepoint bears the time of the commit that it keeps. ``echo``: the name of an empty instant that
    repeats ``schema``, for readers that take that of the largest T (`placed`). ``batch``: the batch that it commits.
    ``standing``: of a restore, the batches that become the newest of their sources again.
    ``recent``: the metadata, while its writer has it in memory; no part of the entry. ``place``: its index in a
    `GroupCommit`. ``imported``: it stands in an `Import`.
    """

    instant: str
    completion: str
    action: str
    operation: str
    writer: str
    token: int
    region: Region = NOWHERE
    schema: str | None = None
    metadata: dict[str, Any] | None = None
    side: dict[str, str] | None = None
    slot: int = -1
    blind: bool = False
    undone: tuple[str, ...] = ()
    named: str = ""
    echo: str = ""
    batch: Batch | None = None
    standing: tuple[Landed, ...] = ()
    recent: Callable[[], CommitMetadata | None] | None = field(default=None, compare=False, repr=False)
    place: int = 0
    imported: bool = False

    kind = "commit"

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

    def placed(self, *, completion: str, token: int, schema: str | None, echo: str = "") -> Commit:
        """Fill in the values that are known only at the slot."""
        # A service changes no schema, and a restore brings back an earlier one.
        schema = schema if self.action in COMMIT_ACTIONS else None
        return replace(self, completion=completion, token=token, schema=schema, echo=echo if schema else "")

    @property
    def schema_under(self) -> str:
        """The T under which readers find its schema."""
        return self.echo.partition("_")[0] or self.instant

    def fields(self) -> dict[str, Any]:
        return {
            "T": self.instant,
            "C": self.completion,
            "action": self.action,
            "op": self.operation,
            "writer": self.writer,
            "token": self.token,
            "region": self.region.to_json() if self.region else None,
            "schema": self.schema,
            "metadata": self.metadata,
            "side": self.side,
        } | {key: value for key, value in self._rare() if value}

    def _rare(self) -> tuple[tuple[str, Any], ...]:
        batch = [self.batch.source, self.batch.number] if self.batch else None
        return (
            ("blind", self.blind),
            ("undone", list(self.undone)),
            ("named", self.named),
            ("echo", self.echo),
            ("batch", batch),
            ("standing", [each.to_json() for each in self.standing]),
        )


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The commits of several transactions by one entry, in the order of ``members``.

    Each of them counts like a `Commit` in a slot of its own, right behind the one before it. All have the slot of
    the entry, and differ in their ``place``. A kind of its own, so that earlier versions stop at it.
    """

    members: tuple[Commit, ...]
    slot: int = -1

    kind = "commits"

    @property
    def instant(self) -> str:
        """T of the first, whose writer appended it for all."""
        return self.members[0].instant

    def fields(self) -> dict[str, Any]:
        return {"members": [each.fields() for each in self.members]}


@dataclass(frozen=True, slots=True)
class Import(GroupCommit):
    """Commits that were completed on the timeline before the log had them, in the order of C.

    Of other engines, or of writers of ours that died before their own entry. They count whether their transaction is open
    or was never in the log. A kind of its own, so that earlier versions stop at it.
    """

    kind = "import"


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction without a commit: ``rollback`` by another process, ``abort`` by its own writer.

    ``lost``: details for `Table.why`, if another writer beat it.
    """

    kind: str
    instant: str
    who: str
    reason: str
    slot: int = -1
    lost: Loss | None = None

    def fields(self) -> dict[str, Any]:
        lost = {} if self.lost is None else {"lost": self.lost.to_json()}
        return {"T": self.instant, "who": self.who, "reason": self.reason} | lost


@dataclass(frozen=True, slots=True)
class Setting:
    """The table's settings from here on."""

    settings: Settings
    who: str
    slot: int = -1

    kind = "setting"

    def fields(self) -> dict[str, Any]:
        return {"settings": self.settings.to_json(), "who": self.who}


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the epoch."""

    slot: int = -1

    kind = "close"

    def fields(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Open:
    """The begin of the epoch, with the state that the one before it ended with.

    ``last``: the newest commit, which may still have to be published. ``schema``: the table's, if the log has it.
    ``batches``: the newest of each source.
    """

    top: str
    token: int
    settings: Settings
    open: tuple[Begin, ...] = ()
    last: Commit | None = None
    slot: int = -1
    schema: str | None = None
    batches: tuple[Landed, ...] = ()

    kind = "open"

    def fields(self) -> dict[str, Any]:
        rare = {"schema": self.schema, "batches": [each.to_json() for each in self.batches]}
        return {
            "top": self.top,
            "token": self.token,
            "settings": self.settings.to_json(),
            "open": [b.fields() | {"slot": b.slot} for b in self.open],
            "last": self.last.fields() | {"slot": self.last.slot} if self.last else None,
        } | {key: value for key, value in rare.items() if value}


LogEntry = Begin | GroupBegin | Commit | GroupCommit | End | Setting | Close | Open
Single = Begin | Commit | End | Setting | Close | Open


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
    """The entry's bytes at a slot. ``nonce`` distinguishes equal entries of two writers."""
    head = {"v": VERSION, "kind": entry.kind, "epoch": epoch, "slot": slot, "id": nonce}
    return json.dumps(head | entry.fields(), separators=(",", ":"), ensure_ascii=False).encode()


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
        decoded: LogEntry = _DECODERS[kind](raw)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        what = f"lacks {e}" if isinstance(e, KeyError) else f"cannot be understood ({e})"
        raise CorruptTableError(
            f"log entry {path} {what}; writers stop here. Restore it, or rebuild the log with `lakelatch adopt`",
            path=path,
        ) from e
    return decoded


def _begin(raw: dict[str, Any]) -> Begin:
    refuse_strange("begin", raw)
    process = Process.from_json(raw["process"])
    priority = raw.get("priority", 0)
    return Begin(
        raw["T"],
        raw["action"],
        raw["op"],
        raw["writer"],
        process,
        slot=raw["slot"],
        priority=priority,
        plan=raw.get("plan"),
        planned_at=raw.get("planned_at", -1),
        reserved=Reservation.from_json(raw.get("reserved")),
        first=raw.get("first"),
        executes=raw.get("executes", False),
        asked=raw.get("asked", ""),
    )


def asked_for(raw: dict[str, Any], *, instant: str) -> Begin:
    """Decode a requested begin, which has no slot yet (`Begin.fields`).

    Raises ValueError, KeyError, TypeError or AttributeError if it is invalid.
    """
    return _begin({**raw, "T": instant, "slot": 0})


def _begins(raw: dict[str, Any]) -> GroupBegin:
    refuse_strange("begins", raw)
    slot: int = raw["slot"]
    return GroupBegin(tuple(_begin({**each, "slot": slot}) for each in raw["members"]), slot)


def _commit(raw: dict[str, Any]) -> Commit:
    refuse_strange("commit", raw)
    return Commit(
        raw["T"],
        raw["C"],
        raw["action"],
        raw["op"],
        raw["writer"],
        raw["token"],
        Region.from_json(raw["region"]),
        raw["schema"],
        raw["metadata"],
        raw["side"],
        slot=raw["slot"],
        blind=raw.get("blind", False),
        undone=tuple(raw.get("undone", ())),
        named=raw.get("named", ""),
        echo=raw.get("echo", ""),
        batch=Batch(*raw["batch"]) if raw.get("batch") else None,
        standing=tuple(map(Landed.from_json, raw.get("standing", ()))),
    )


def prepared(raw: Any, *, instant: str, slot: int) -> Commit:
    """Decode a prepared commit, which has no slot yet (`Commit.fields`), of a transaction that began in ``slot``.

    Raises ValueError, KeyError, TypeError or AttributeError if it is invalid.
    """
    return _commit({**raw, "T": instant, "C": instant, "token": 0, "slot": slot})


def _commits(raw: dict[str, Any]) -> GroupCommit:
    refuse_strange("commits", raw)
    slot: int = raw["slot"]
    return GroupCommit(
        tuple(replace(_commit({**each, "slot": slot}), place=place) for place, each in enumerate(raw["members"])), slot
    )


def _import(raw: dict[str, Any]) -> Import:
    found = _commits(raw)
    return Import(tuple(replace(each, imported=True) for each in found.members), found.slot)


def _end(raw: dict[str, Any]) -> End:
    refuse_strange(raw["kind"], raw)
    lost = raw.get("lost")
    return End(
        raw["kind"], raw["T"], raw["who"], raw["reason"], slot=raw["slot"], lost=Loss.from_json(lost) if lost else None
    )


def _setting(raw: dict[str, Any]) -> Setting:
    refuse_strange("setting", raw)
    return Setting(Settings.from_json(raw["settings"]), raw["who"], slot=raw["slot"])


def _close(raw: dict[str, Any]) -> Close:
    refuse_strange("close", raw)
    return Close(slot=raw["slot"])


def _open(raw: dict[str, Any]) -> Open:
    refuse_strange("open", raw)
    return Open(
        raw["top"],
        raw["token"],
        Settings.from_json(raw["settings"]),
        tuple(_begin(b) for b in raw["open"]),
        _commit(raw["last"]) if raw["last"] else None,
        slot=raw["slot"],
        schema=raw.get("schema"),
        batches=tuple(map(Landed.from_json, raw.get("batches", ()))),
    )


_DECODERS: dict[str, Any] = {
    "begin": _begin,
    "begins": _begins,
    "commit": _commit,
    "commits": _commits,
    "import": _import,
    "rollback": _end,
    "abort": _end,
    "setting": _setting,
    "close": _close,
    "open": _open,
}
