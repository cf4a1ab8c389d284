"""The settings shared by all writers of one table. They are kept in the commit log, so all writers agree.

A setting is one field of `Settings`: its default, its meaning, and what values it takes. What is stored, refused and printed,
the options of the command line and the table in docs/configuration.md derive from that.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from urllib.parse import parse_qsl, urlsplit

from ...arguments import Isolation, Strategy, brief, encodable, meant
from ...conflict import refuse_contradiction, refuse_isolation
from ...errors import ConfigError, InputError, UnsupportedTableError
from ...hudi.table import refuse_no_columns
from ...locks import shown
from ...locks.lock_url import LEASE_S_MAX, LEASE_S_MIN
from ...streams import Stream

if TYPE_CHECKING:
    from ...hudi.table import TableConfig


VERSION = 1  # of the log's entries, and of the features a writer has to know
OFF, DIRECT = EARLY = ("off", "direct")  # early conflict detection
_EARLY_RETIRED = ("transactional", "async")  # values that earlier versions have stored; they mean ``direct``
_FILE_BYTES_MAX = 1 << 40
_SECONDS_MAX = 365 * 86400
_PARTIAL_UPDATE = {"*": "last_non_null"}  # of all columns
# Always in entries. Every later setting is left out at its default, so that earlier versions of this library, which refuse
# settings that they do not know, can read tables that do not use it.
_FIRST = frozenset((
    "lock", "strategy", "isolation", "bucket_count", "unique_keys", "unique_constraints", "statistics", "lease_s", "lock_wait_s",
    "yield_wait_s", "reservation_s", "early_conflict_detection", "rebase", "heartbeat_interval_s", "heartbeat_timeout_s",
    "log_epochs", "min_version", "generation",
))  # fmt: skip
_RETIRED = frozenset(("group_commit",))  # settings of earlier versions, which mean nothing any more
TABLE_KEYS = "table"  # of `Settings.unique_keys`
NO_NEIGHBOURS, HUDI = NEIGHBOURS = ("none", "hudi")
OWN_LOCK = "table"
NO_LOCK = "none://"
_SHARED_WITH_JVM = frozenset({"key", "jvm", "layout"})  # options of a lock URL that mean a lock shared with the JVM


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a setting.

    Attributes:
        told: its meaning, as the documents say it.
        fits, wanted: the rule for the type of a value, and its words. 2.5 buckets would be two for one writer and none for
            another.
        option: the type of its option of the command line; None: it has none, or one of another form.
        within, bounds: the rule for the range of a value, and its words.
        choice: people set it. Otherwise it changes with something else.
    """

    told: str
    fits: Callable[[Any], bool]
    wanted: str
    option: Any
    within: Callable[[Any], bool] | None = None
    bounds: str = ""
    choice: bool = True


def _setting(default: Any, told: str, *rules: Any, **more: Any) -> Any:
    return field(default=default, metadata={"declared": Declared(told, *rules, **more)})


def _whole(
    default: int | None,
    told: str,
    least: int | None = None,
    most: int | None = None,
    bounds: str = "",
    *,
    none: bool = False,
    choice: bool = True,
) -> Any:
    none = none or default is None
    within = None if least is None else lambda value: least <= value <= (math.inf if most is None else most)
    wanted = "a whole number, or None" if none else "a whole number"
    bounds = bounds or (f"at least {least}" if most is None else f"between {least} and {most}")

    def fits(value: Any) -> bool:
        return _is_whole(value) or (none and value is None)

    return _setting(default, told, fits, wanted, int, within, bounds, choice)


def _bytes(default: int | None, told: str, least: int) -> Any:
    return _whole(default, told, least, _FILE_BYTES_MAX, f"between {least} and {_FILE_BYTES_MAX} bytes, or None")


def _seconds(default: float, told: str) -> Any:
    return _setting(
        default,
        told,
        lambda value: _is_whole(value) or (isinstance(value, float) and math.isfinite(value)),
        "a number of seconds",
        float,
        lambda value: 0 < value <= _SECONDS_MAX,
        f"positive, and {_SECONDS_MAX} (a year) at most",
    )


def _flag(default: bool, told: str) -> Any:
    return _setting(default, told, lambda value: isinstance(value, bool), "True or False", bool)


def _word(
    default: str,
    told: str,
    among: Sequence[str] = (),
    bounds: str = "",
    *,
    within: Callable[[str], bool] | None = None,
) -> Any:
    within = among.__contains__ if among else within
    bounds = bounds or f"one of {', '.join(among)}"
    return _setting(
        default,
        told,
        lambda value: isinstance(value, str) and encodable(value),
        "a word that UTF-8 can hold",
        str,
        within,
        bounds,
    )


def _is_server(value: str) -> bool:
    try:
        parts = urlsplit(value)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return not value or (parts.scheme in ("http", "https") and named and not ("@" in value or parts.query))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _constraints(value: Any) -> bool:
    return isinstance(value, Sequence) and all(_columns(each) for each in ([value] if _columns(value) else value))


def _merged(value: Any) -> bool:
    """Return whether `Settings.merge` accepts it; an entry of the log has pairs."""
    if isinstance(value, str):
        return value == "partial_update"
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    return isinstance(pairs, Sequence) and all(
        isinstance(each, Sequence) and len(each) == 2 and _columns(each) for each in pairs
    )


def _columns(value: Any) -> bool:
    """Return whether it is the name of a column, or a list of names."""
    names = [value] if isinstance(value, str) else value
    return isinstance(names, Sequence) and all(isinstance(each, str) and each for each in names)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a table. docs/configuration.md has the meaning of each."""

    lock: str = _word(
        OWN_LOCK,
        "URL of the lock provider; ``table`` is the filesystem lock in the table's own folder (local tables "
        "only), ``none://`` leaves the order of commits to the log alone.",
    )
    neighbours: str = _word(
        NO_NEIGHBOURS,
        "other engines that write the table beside ours: ``none``, or ``hudi`` for Hudi's JVM writers, which "
        "take the table's lock and read no log ([neighbours.md](neighbours.md)).",
        NEIGHBOURS,
    )
    strategy: str = _word(
        "simple",
        "which of two conflicting transactions yields: ``simple``, ``bucket``, ``prefer-writer`` or ``priority``.",
    )
    isolation: str = _word(
        "snapshot", "the isolation level of transactions: ``snapshot``, ``write-serializable`` or ``serializable``."
    )
    bucket_count: int | None = _whole(
        None,
        "number of buckets of the bucket index; None is the simple index.",
        1,
        99_999_999,
        "between 1 and 99999999 (8 digits of a file id)",
    )
    unique_keys: bool | str = _setting(
        True,
        "with the simple index, two writers that insert one new key at the same time conflict. ``table``: a key is unique in "
        "all partitions, and [moves](conflicts.md#keys-and-values-that-are-unique).",
        lambda value: isinstance(value, bool) or value == TABLE_KEYS,
        f"True, False or {TABLE_KEYS!r}",
        Literal["true", "false", TABLE_KEYS],
    )
    unique_constraints: tuple[tuple[str, ...], ...] = _setting(
        (),
        "columns, or lists of columns, whose values must be unique in the table.",
        _constraints,
        """columns or lists of columns: ["email", ["country", "number"]]""",
        None,
    )
    check: tuple[str, ...] = _setting(
        (),
        "conditions that no row may break, as ``amount >= 0`` ([conditions.md](conditions.md)); null passes.",
        lambda value: isinstance(value, Sequence) and _columns(value),
        """a condition as SQL text, or a list of them: ["amount >= 0", "end > begin"]""",
        None,
    )
    statistics: tuple[str, ...] | str | None = _setting(
        None,
        "columns whose smallest and largest values commits carry, or ``all``; None is the first 32 if the "
        "isolation level uses them.",
        lambda value: value is None or _columns(value),
        "a column, a list of columns, 'all' or None",
        str,
    )
    merge: tuple[tuple[str, str], ...] = _setting(
        (),
        'how the values of a column are merged when a row is upserted: ``{"clicks": "sum"}``, or ``partial_update``.',
        _merged,
        """'partial_update', or a merger for each column: {"clicks": "sum"}""",
        None,
    )
    ties: Literal["last", "first"] = _word(
        "last",
        "which of two rows with equal ordering values is newer: ``last`` to arrive, or ``first``.",
        ("last", "first"),
        "'last' or 'first'",
    )
    lease_s: float = _seconds(
        30.0,
        "how long a lock lease lasts unless renewed, where the lock's URL does not say (``?lease=10s``).",
    )
    lock_wait_s: float = _seconds(120.0, "how long a commit waits for the lock.")
    yield_wait_s: float = _seconds(
        300.0,
        "how long a transaction waits for others of higher rank: at its begin for their reservations, at its "
        "commit for their end.",
    )
    reservation_s: float = _seconds(900.0, "a reservation that a writer has seen for so long no longer counts for it.")
    early_conflict_detection: str = _word(
        OFF,
        "when a writer checks whether others are at work on its file groups, to wait or to yield before its "
        "commit: ``off``, or ``direct`` (before each file).",
        (*EARLY, *_EARLY_RETIRED),
        f"one of {', '.join(EARLY)}",
    )
    rebase: bool = _flag(
        True,
        "whether a transaction that lost only on file groups merges again. False: it fails; for tables whose "
        "readers replay spans of the past (docs/starvation.md).",
    )
    coordinator: str = _word(
        "",
        "URL of a ``lakelatch server --coordinate``, which begins and commits for the table's writers "
        "([server.md](server.md)); empty: there is none. Earlier versions of this library refuse such a table.",
        within=_is_server,
        bounds="a URL with http or https, without user and query",
    )
    coordinator_patience_s: float = _seconds(
        2.0, "how long a writer waits for an answer of its coordinator, before it goes on by itself."
    )
    publish_at_once: bool = _flag(
        False,
        "whether the instants of one log entry are put on the timeline at the same time, on a store that is no local disk. "
        "Quicker; but an incremental reader of another engine that reads just then may miss a commit, as it goes on "
        "from the largest completion time.",
    )
    heartbeat_interval_s: float = _seconds(
        10.0, "how often a writer shows that it lives. JVM writers on the same table judge by 120 s."
    )
    heartbeat_timeout_s: float = _seconds(
        60.0, "a writer whose heartbeat has not changed for so long may be rolled back."
    )
    archive_above: int | None = _whole(
        500,
        "with more commits than this on the active timeline the oldest are archived, down to half as many, "
        "by the writer that closes an epoch of the log, beside its work: every few hundred commits, so a "
        "smaller number archives more, and not sooner. None: only `Table.archive` archives.",
        2,
        None,
        "at least 2, or None: half of them stay",
        none=True,
    )
    log_epochs: int = _whole(
        10,
        "how many epochs of the commit log are kept at least, of a thousand entries each; older ones go when "
        "nothing needs them.",
        1,
    )
    min_version: int = _whole(
        1, "writers of a smaller version (`VERSION`) stop, and say so; readers go on. Only ever raised."
    )
    streams: tuple[Stream, ...] = _setting(
        (),
        "jobs that fill columns of their own ([streams.md](streams.md)); declared by `Table.stream`, cannot be set.",
        lambda value: isinstance(value, list | tuple),
        "a list of declarations",
        None,
        choice=False,
    )
    target_file_bytes: int | None = _bytes(
        None,
        "the target size of a file; a file of that size gets no new rows. None: the size in the table's "
        "properties (Hudi's ``hoodie.parquet.max.file.size``), else 120 MiB.",
        1024,
    )
    small_file_bytes: int | None = _bytes(
        None,
        "new rows of an upsert join a smaller file instead of beginning their own; 0: never. None: the size "
        "in the properties (``hoodie.parquet.small.file.limit``), else 4 MiB.",
        0,
    )
    generation: int = _whole(0, "counts changes of the lock and restarts of its tokens; cannot be set.", choice=False)

    def __post_init__(self) -> None:
        refuse_contradiction(self.strategy, bucket_count=self.bucket_count)
        refuse_isolation(self.isolation)
        self._settle_columns()
        for name, declared in _DECLARED.items():
            value = getattr(self, name)
            none = value is None and declared.fits(None)
            if declared.within and not none and not declared.within(value):
                raise ConfigError(f"{name} is {value!r}, must be {declared.bounds}")
        self._refuse_beside_streams()
        self._refuse_beside_neighbours()
        if self.unique_keys == TABLE_KEYS and (self.merge or self.ties != "last" or self.streams):
            raise ConfigError(
                f"unique_keys={TABLE_KEYS} moves rows as a whole, so it goes with no merge, ties or streams; leave these out"
            )
        if (self.small_file_bytes or 0) > (self.target_file_bytes or _FILE_BYTES_MAX):
            raise ConfigError(
                f"small_file_bytes is {self.small_file_bytes}, must not be larger than target_file_bytes "
                f"({self.target_file_bytes}), up to which small files are filled"
            )
        if self.heartbeat_timeout_s < 2 * self.heartbeat_interval_s:
            raise ConfigError(
                f"heartbeat_timeout_s is {self.heartbeat_timeout_s}, must be at least twice heartbeat_interval_s "
                f"({self.heartbeat_interval_s}): one late beat must not cost a writer its transaction"
            )

    def _refuse_beside_streams(self) -> None:
        others = (self.unique_constraints, self.check, self.merge, self.ties != "last", self.bucket_count is None)
        if self.streams and any(others):
            raise ConfigError(
                "a table with streams has a bucket index, and no unique_constraints, check, merge or ties of its own: each "
                "stream has its order and rules"
            )

    @property
    def timeline_first(self) -> bool:
        """True if a completed instant is the commit, and its log entry follows: other engines read the timeline only."""
        return self.neighbours != NO_NEIGHBOURS

    def _refuse_beside_neighbours(self) -> None:
        if self.neighbours == NO_NEIGHBOURS:
            return
        if not self.shared_with_jvm:
            raise ConfigError(
                f"neighbours={self.neighbours} needs a lock that Hudi's writers can take, and {shown(self.lock)} is none: give "
                "its URL the option that names their lock (jvm= for files, key= for ZooKeeper and DynamoDB, layout= for "
                "object stores), as docs/neighbours.md shows"
            )
        others = {
            "streams": bool(self.streams),
            "coordinator": bool(self.coordinator),
            "publish_at_once": self.publish_at_once,
            "merge": bool(self.merge),
            "ties": self.ties != "last",
            "check": bool(self.check),
            f"unique_keys={TABLE_KEYS}": self.unique_keys == TABLE_KEYS,
        }
        if wrong := [name for name, set_here in others.items() if set_here]:
            raise ConfigError(
                f"neighbours={self.neighbours} goes with no {', '.join(wrong)}: other engines know neither the log nor such "
                "rules"
            )

    def _settle_columns(self) -> None:
        """Normalize the column settings: a log entry and a caller give lists, or one name."""
        names = self.statistics
        if names is not None and names != "all":
            object.__setattr__(self, "statistics", (names,) if isinstance(names, str) else tuple(names))
        given = (self.unique_constraints,) if isinstance(self.unique_constraints, str) else self.unique_constraints
        unique = tuple((each,) if isinstance(each, str) else tuple(each) for each in given)
        if any(not each or len(set(each)) != len(each) for each in unique) or len(set(unique)) != len(unique):
            raise ConfigError(
                f"unique_constraints is {self.unique_constraints!r}, must be columns or lists of columns, each once: "
                '["email", ["country", "number"]]'
            )
        object.__setattr__(self, "unique_constraints", unique)
        checks = (self.check,) if isinstance(self.check, str) else tuple(self.check)
        if len(set(checks)) != len(checks):
            raise ConfigError(f"check is {brief(list(checks))}, which has a condition twice; name each once")
        object.__setattr__(self, "check", checks)
        rules: Any = self.merge
        merge: Any = _PARTIAL_UPDATE if rules == "partial_update" else rules
        pairs = merge.items() if isinstance(merge, Mapping) else merge
        object.__setattr__(self, "merge", tuple(sorted((column, merger) for column, merger in pairs)))

    @classmethod
    def declared(cls) -> Mapping[str, Declared]:
        """Return what is declared of each setting, by name."""
        return _DECLARED

    def plain(self) -> dict[str, Any]:
        """Return all settings as plain values."""
        return asdict(self) | {"streams": tuple(each.to_json() for each in self.streams)}

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry."""
        return {name: each for name, each in self.plain().items() if name in _FIRST or each != _DEFAULTS[name]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Settings:
        """The reverse of `to_json`. Unknown keys come from a newer writer and are refused."""
        value = {name: each for name, each in value.items() if name not in _RETIRED}
        if unknown := sorted(value.keys() - _DECLARED.keys()):
            raise ConfigError(
                f"the table has settings that this version does not know: {', '.join(unknown)}; upgrade lakelatch",
                settings=unknown,
            )
        _refuse_types(value)
        streams = value.get("streams", ())
        return cls(**value | {"streams": tuple(map(Stream.from_json, streams))})

    def changed(self, **changes: Any) -> Settings:
        """A copy with other values; `ConfigError` for names that do not exist."""
        known = {name for name, declared in _DECLARED.items() if declared.choice}
        if unknown := sorted(set(changes) - known):
            hint = f" ({hint})" if (hint := meant(unknown[0], known)) else ""
            raise ConfigError(f"no such setting: {', '.join(unknown)}{hint}; known: {', '.join(sorted(known))}")
        _refuse_types(changes)
        if "min_version" in changes and not self.min_version <= changes["min_version"] <= VERSION:
            raise ConfigError(
                f"min_version cannot go from {self.min_version} to {changes['min_version']}: it is never lowered, and "
                f"this writer's own version is {VERSION}"
            )
        if self.streams and changes.get("bucket_count", self.bucket_count) != self.bucket_count:
            raise ConfigError(
                "bucket_count stays as it is on a table with streams: their writers make the files of a bucket without asking "
                "each other"
            )
        made = replace(self, **changes)
        # Only the changed ones: a name stored by an earlier version must not block the change of another setting.
        made.refuse_names(changes)
        if changes.get("early_conflict_detection") in _EARLY_RETIRED:
            raise ConfigError(
                f"early_conflict_detection is {changes['early_conflict_detection']!r}, which is gone; set {DIRECT!r}, which "
                "ends work that cannot commit as soon or sooner"
            )
        if (
            "lease_s" in changes and not LEASE_S_MIN <= made.lease_s <= LEASE_S_MAX
        ):  # a stored value is refused by the lock instead
            raise ConfigError(
                f"lease_s is {made.lease_s:g}, must be between {LEASE_S_MIN:g} and {LEASE_S_MAX:g} (a day), as for every lock"
            )
        return made

    def uses_of(self, column: str) -> list[str]:
        """Return the settings and streams that need a column of the table, or the one around the field at a path."""
        from ...conditions import columns_of, parse

        column = column.partition(".")[0]
        named = {
            "unique_constraints": chain(*self.unique_constraints),
            "check": chain.from_iterable(columns_of(parse(sql)) for sql in self.check),
            "merge": (name for name, _ in self.merge),
            **{f"stream {each.name!r}": (*each.own, each.event_id) for each in self.streams},
        }
        return [what for what, names in named.items() if column in names]

    def refuse_names(self, changed: Collection[str]) -> None:
        """Raise `ConfigError` if one of these settings names a column that cannot exist."""
        columns = {
            "unique_constraints": chain(*self.unique_constraints),
            "statistics": () if isinstance(self.statistics, str) else self.statistics or (),
            "merge": (column for column, _ in self.merge if column not in _PARTIAL_UPDATE),
        }
        if "check" in changed:
            _refuse_conditions(self.check)
        for setting, named in columns.items():
            if setting in changed:
                try:
                    refuse_no_columns(named, setting)
                except InputError as e:
                    raise ConfigError(f"{e}", setting=setting, column=e.column) from None

    @property
    def shared_with_jvm(self) -> tuple[str, ...]:
        """The options of the lock's URL that mean that JVM writers, which do not read the log, take it as well."""
        return tuple(sorted(_SHARED_WITH_JVM & lock_options(self.lock)))

    def refuse_older_versions(self, table: str) -> None:
        """Raise `UnsupportedTableError` if the table requires newer writers than this one."""
        if self.min_version > VERSION:
            raise UnsupportedTableError(
                f"{table} may be written by version {self.min_version} of the log's format and later only, and this "
                f"lakelatch has {VERSION}; nothing was written. Upgrade lakelatch; reading goes on as before",
                table=table,
                version=self.min_version,
            )

    def refuse_others(self, table: str, **wanted: Any) -> None:
        """Raise `ConfigError` with both values if a writer's configuration differs from the table's."""
        for name, value in wanted.items():
            ours = shown(self.lock) if name == "lock" else getattr(self, name)
            if value is not None and value != getattr(self, name):
                raise ConfigError(
                    f"{table} is set to {name}={ours!r}, this writer to {name}={value!r}; writers that "
                    "disagree do not exclude each other. Leave it out here, or change the table's own setting first",
                    table=table,
                    setting=name,
                )


class AdoptedSettings(TypedDict, total=False):
    """The settings that `lakelatch.adopt` takes beside ``lock``, each as a caller may write it."""

    neighbours: Literal["none", "hudi"]
    strategy: Strategy
    isolation: Isolation
    bucket_count: int | None
    unique_keys: bool | Literal["table"]
    unique_constraints: str | Sequence[str | Sequence[str]]
    check: str | Sequence[str]
    statistics: str | Sequence[str] | None
    merge: Literal["partial_update"] | Mapping[str, str] | Sequence[tuple[str, str]]
    ties: Literal["last", "first"]
    lease_s: float
    lock_wait_s: float
    yield_wait_s: float
    reservation_s: float
    early_conflict_detection: Literal["off", "direct"]
    rebase: bool
    coordinator: str
    coordinator_patience_s: float
    publish_at_once: bool
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    archive_above: int | None
    log_epochs: int
    min_version: int
    target_file_bytes: int | None
    small_file_bytes: int | None


class SettingsDict(AdoptedSettings, total=False):
    """The settings that people choose, by name: `Settings` has their defaults, docs/configuration.md their meaning."""

    lock: str


def _refuse_conditions(checks: Iterable[str]) -> None:
    from ...conditions import parse  # sqlglot takes longer than all of this module

    for sql in checks:
        try:
            parse(sql)
        except InputError as e:
            raise ConfigError(f"check={sql!r} is no condition: {e}", setting="check") from None


def _refuse_types(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not _DECLARED[name].fits(value):
            held = " that UTF-8 can hold" if isinstance(value, str) and not encodable(value) else ""
            raise ConfigError(f"{name} is {brief(value)}, must be {_DECLARED[name].wanted}{held}", setting=name)


@functools.lru_cache(maxsize=64)  # asked several times for each commit
def lock_options(lock: str) -> frozenset[str]:
    """The names of the options of a lock URL."""
    return frozenset(name for name, _ in parse_qsl(lock.partition("?")[2]))


_DECLARED: dict[str, Declared] = {each.name: each.metadata["declared"] for each in fields(Settings)}
_DEFAULTS = {each.name: each.default for each in fields(Settings)}


TARGET_BYTES = 120 << 20  # Apache Hudi's hoodie.parquet.max.file.size
# Hudi's hoodie.parquet.small.file.limit is 100 MiB: each insert of a few rows then rewrites a file of up to that size.
# A file of 4 MiB is rewritten in a moment, and clustering joins larger ones.
SMALL_BYTES = 4 << 20
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TARGET, _SMALL = "hoodie.parquet.max.file.size", "hoodie.parquet.small.file.limit"


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes: new rows of an upsert join a file of less than ``small`` bytes, up to ``target`` bytes; 0: none."""

    target: int = TARGET_BYTES
    small: int = SMALL_BYTES

    @classmethod
    def of(cls, settings: Settings, config: TableConfig) -> FileSizes:
        """The sizes of a table.

        Raises:
            ConfigError: a property is no number, and no setting overrides it.
        """
        target = settings.target_file_bytes
        if target is None:
            target = _told(config, _TARGET, "target_file_bytes", TARGET_BYTES, least=1)
        small = settings.small_file_bytes
        if small is None:
            small = _told(config, _SMALL, "small_file_bytes", SMALL_BYTES, least=0)
        # A file of the target size must never count as small.
        return cls(target, min(small, target))


def _told(config: TableConfig, key: str, setting: str, default: int, *, least: int) -> int:
    text = config.raw.get(key)
    if text is None:
        return default
    found = int(text) if _NUMBER.fullmatch(text) else None
    if found is None or found < least > 0:
        raise ConfigError(
            f"the properties of table {config.name} say {key}={text!r:.80}, which is no size of a file; nothing was written. "
            f"Correct it, or set {setting}, which comes before it",
            setting=setting,
        )
    return max(found, 0)  # for Hudi every limit that is not positive means that no file is small
