"""The settings shared by all writers of one table. They are kept in the commit log, so all writers agree."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from typing import Any, Literal
from urllib.parse import parse_qsl

from ...arguments import brief, meant
from ...conflict import refuse_contradiction, refuse_isolation
from ...errors import ConfigError, InputError, UnsupportedTableError
from ...hudi.table import refuse_no_columns
from ...locks import shown
from ...locks.lock_url import LEASE_S_MAX, LEASE_S_MIN
from ...streams import Stream

VERSION = 1  # of the log's entries, and of the features a writer has to know
OFF, DIRECT, TRANSACTIONAL, ASYNC = EARLY = ("off", "direct", "transactional", "async")  # early conflict detection
_FILE_BYTES = {"target_file_bytes": 1024, "small_file_bytes": 0}  # the smallest allowed
_FILE_BYTES_MAX = 1 << 40
_WHOLE, _YES_NO = ("log_epochs", "min_version", "generation"), ("unique_keys", "rebase", "group_commit")
_WORDS = ("lock", "neighbours", "strategy", "isolation", "early_conflict_detection", "ties")
_SECONDS = ("lease_s", "lock_wait_s", "yield_wait_s", "reservation_s", "heartbeat_interval_s", "heartbeat_timeout_s")
_SECONDS_MAX = 365 * 86400
_PARTIAL_UPDATE = {"*": "last_non_null"}  # of all columns
_ARCHIVE_ABOVE = 500
# Left out of entries at their defaults, so that earlier versions of this library can read tables that do not use them.
_NEW: dict[str, Any] = {
    "neighbours": "none",
    "merge": (),
    "ties": "last",
    "streams": (),
    "group_commit": False,
    "archive_above": _ARCHIVE_ABOVE,
    "target_file_bytes": None,
    "small_file_bytes": None,
}
NO_NEIGHBOURS, HUDI = NEIGHBOURS = ("none", "hudi")
OWN_LOCK = "table"
NO_LOCK = "none://"
_SHARED_WITH_JVM = frozenset({"key", "jvm", "layout"})  # options of a lock URL that mean a lock shared with the JVM


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is declared once: name, default, unit in the name.

    Attributes:
        lock: URL of the lock provider; ``table`` is the filesystem lock in the table's own folder (local tables
            only), ``none://`` leaves the order of commits to the log alone.
        neighbours: other engines that write the table beside ours: ``none``, or ``hudi`` for Hudi's JVM writers, which take
            the table's lock and read no log ([neighbours.md](neighbours.md)). Experimental.
        strategy: which of two conflicting transactions yields: ``simple``, ``bucket``, ``prefer-writer`` or ``priority``.
        isolation: the isolation level of transactions: ``snapshot``, ``write-serializable`` or ``serializable``.
        bucket_count: number of buckets of the bucket index; None is the simple index.
        unique_keys: with the simple index, two writers that insert one new key at the same time conflict.
        unique_constraints: columns, or lists of columns, whose values must be unique in the table.
        statistics: columns whose smallest and largest values commits carry, or ``all``; None is the first 32 if
            the isolation level uses them.
        merge: how the values of a column are merged when a row is upserted: ``{"clicks": "sum"}``, or ``partial_update``.
        ties: which of two rows with equal ordering values is newer: ``last`` to arrive, or ``first``.
        lease_s: how long a lock lease lasts unless renewed, where the lock's URL does not say (``?lease=10s``).
        lock_wait_s: how long a commit waits for the lock.
        yield_wait_s: how long a transaction waits for others of higher rank: at its begin for their reservations, at
            its commit for their end.
        rebase: whether a transaction that lost only on file groups merges again. False: it fails; for tables whose readers replay
            spans of the past (docs/starvation.md).
        group_commit: whether the holder of the lock also commits for writers waiting for it, in one entry of the log;
            on a store that is no local disk transactions begin so, too (docs/protocol.md). Experimental; earlier versions
            of this library refuse such a table.
        early_conflict_detection: when a writer checks whether others are at work on its file groups, to wait or to yield
            before its commit: ``off``, ``direct`` (before each file), ``transactional`` (the same under the table's lock) or
            ``async`` (with each heartbeat).
        reservation_s: a reservation that a writer has seen for so long no longer counts for it.
        heartbeat_interval_s: how often a writer shows that it lives. JVM writers on the same table judge by 120 s.
        heartbeat_timeout_s: a writer whose heartbeat has not changed for so long may be rolled back.
        archive_above: with more commits than this on the active timeline the oldest are archived, down to half as many, by the
            writer that closes an epoch of the log, beside its work: every few hundred commits, so a smaller number archives more,
            and not sooner. None: only `Table.archive` archives.
        log_epochs: how many epochs of the commit log are kept at least, of a thousand entries each; older ones go when
            nothing needs them.
        min_version: writers of a smaller version (`VERSION`) stop, and say so; readers go on. Only ever raised.
        streams: jobs that fill columns of their own ([streams.md](streams.md)); declared by `Table.stream`, cannot be set.
        target_file_bytes: the target size of a file; a file of that size gets no new rows. None: the size in the table's
            properties (Hudi's ``hoodie.parquet.max.file.size``), else 120 MiB.
        small_file_bytes: new rows of an upsert join a smaller file instead of beginning their own; 0: never. None: the size
            in the properties (``hoodie.parquet.small.file.limit``), else 4 MiB.
        generation: counts changes of the lock and restarts of its tokens; cannot be set.
    """

    lock: str = OWN_LOCK
    neighbours: str = NO_NEIGHBOURS
    strategy: str = "simple"
    isolation: str = "snapshot"
    bucket_count: int | None = None
    unique_keys: bool = True
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    statistics: tuple[str, ...] | str | None = None
    merge: tuple[tuple[str, str], ...] = ()
    ties: Literal["last", "first"] = "last"
    lease_s: float = 30.0
    lock_wait_s: float = 120.0
    yield_wait_s: float = 300.0
    reservation_s: float = 900.0
    early_conflict_detection: str = OFF
    rebase: bool = True
    group_commit: bool = False
    heartbeat_interval_s: float = 10.0
    heartbeat_timeout_s: float = 60.0
    archive_above: int | None = _ARCHIVE_ABOVE
    log_epochs: int = 10
    min_version: int = 1
    streams: tuple[Stream, ...] = ()
    target_file_bytes: int | None = None
    small_file_bytes: int | None = None
    generation: int = 0

    def __post_init__(self) -> None:
        refuse_contradiction(self.strategy, bucket_count=self.bucket_count)
        refuse_isolation(self.isolation)
        self._settle_columns()
        self._refuse_beside_streams()
        self._refuse_beside_neighbours()
        if self.bucket_count is not None and not 1 <= self.bucket_count <= 99_999_999:
            raise ConfigError(
                f"bucket_count is {self.bucket_count}, must be between 1 and 99999999 (8 digits of a file id)"
            )
        if self.early_conflict_detection not in EARLY:
            raise ConfigError(
                f"early_conflict_detection is {self.early_conflict_detection!r}, must be one of {', '.join(EARLY)}"
            )
        if self.log_epochs < 1:
            raise ConfigError(f"log_epochs is {self.log_epochs}, must be at least 1")
        if self.archive_above is not None and self.archive_above < 2:
            raise ConfigError(f"archive_above is {self.archive_above}, must be at least 2, or None: half of them stay")
        if self.ties not in ("last", "first"):
            raise ConfigError(f"ties is {self.ties!r}, must be 'last' or 'first'")
        for name in _SECONDS:
            if not 0 < getattr(self, name) <= _SECONDS_MAX:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, must be positive, and {_SECONDS_MAX} (a year) at most"
                )
        for name, least in _FILE_BYTES.items():
            size = getattr(self, name)
            if size is not None and not least <= size <= _FILE_BYTES_MAX:
                raise ConfigError(f"{name} is {size}, must be between {least} and {_FILE_BYTES_MAX} bytes, or None")
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
        others = (self.unique_constraints, self.merge, self.ties != _NEW["ties"], self.bucket_count is None)
        if self.streams and any(others):
            raise ConfigError(
                "a table with streams has a bucket index, and no unique_constraints, merge or ties of its own: each stream has "
                "its order and rules"
            )

    @property
    def timeline_first(self) -> bool:
        """True if a completed instant is the commit, and its log entry follows: other engines read the timeline only."""
        return self.neighbours != NO_NEIGHBOURS

    def _refuse_beside_neighbours(self) -> None:
        if self.neighbours not in NEIGHBOURS:
            raise ConfigError(f"neighbours is {self.neighbours!r}, must be one of {', '.join(NEIGHBOURS)}")
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
            "group_commit": self.group_commit,
            "merge": bool(self.merge),
            "ties": self.ties != _NEW["ties"],
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
        rules: Any = self.merge
        merge: Any = _PARTIAL_UPDATE if rules == "partial_update" else rules
        pairs = merge.items() if isinstance(merge, Mapping) else merge
        object.__setattr__(self, "merge", tuple(sorted((column, merger) for column, merger in pairs)))

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry."""
        plain = asdict(self) | {"streams": tuple(each.to_json() for each in self.streams)}
        return {name: value for name, value in plain.items() if name not in _NEW or value != _NEW[name]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Settings:
        """The reverse of `to_json`. Unknown keys come from a newer writer and are refused."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise ConfigError(
                f"the table has settings that this version does not know: {', '.join(unknown)}; upgrade lakelatch",
                settings=unknown,
            )
        for name in known & set(value) - {"streams"}:
            _refuse_type(name, value[name])
        streams = value.get("streams", ())
        if not isinstance(streams, list | tuple):
            raise ConfigError(f"streams is {streams!r:.80}, must be a list of declarations", setting="streams")
        return cls(**value | {"streams": tuple(map(Stream.from_json, streams))})

    def changed(self, **changes: Any) -> Settings:
        """A copy with other values; `ConfigError` for names that do not exist."""
        # These two are set by changes of the lock and by `Table.stream`.
        known = {f.name for f in fields(self)} - {"generation", "streams"}
        if unknown := sorted(set(changes) - known):
            hint = f" ({hint})" if (hint := meant(unknown[0], known)) else ""
            raise ConfigError(f"no such setting: {', '.join(unknown)}{hint}; known: {', '.join(sorted(known))}")
        for name, value in changes.items():
            _refuse_type(name, value)
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
        if (
            "lease_s" in changes and not LEASE_S_MIN <= made.lease_s <= LEASE_S_MAX
        ):  # a stored value is refused by the lock instead
            raise ConfigError(
                f"lease_s is {made.lease_s:g}, must be between {LEASE_S_MIN:g} and {LEASE_S_MAX:g} (a day), as for every lock"
            )
        return made

    def refuse_names(self, changed: Collection[str]) -> None:
        """Raise `ConfigError` if one of these settings names a column that cannot exist."""
        columns = {
            "unique_constraints": chain(*self.unique_constraints),
            "statistics": () if isinstance(self.statistics, str) else self.statistics or (),
            "merge": (column for column, _ in self.merge if column not in _PARTIAL_UPDATE),
        }
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


def lock_options(lock: str) -> set[str]:
    """The names of the options of a lock URL."""
    return {name for name, _ in parse_qsl(lock.partition("?")[2])}


def _refuse_type(name: str, value: Any) -> None:
    """Raise unless a value has the setting's own type: 2.5 buckets would be two for one writer and none for another."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in ("bucket_count", "archive_above", *_FILE_BYTES):
        fits, wanted = value is None or whole, "a whole number, or None"
    elif name in _WHOLE:
        fits, wanted = whole, "a whole number"
    elif name in _SECONDS:
        fits, wanted = whole or (isinstance(value, float) and math.isfinite(value)), "a number of seconds"
    elif name in _YES_NO:
        fits, wanted = isinstance(value, bool), "True or False"
    elif name in _WORDS:
        fits, wanted = isinstance(value, str), "a word"
    elif name == "merge":
        fits, wanted = _merged(value), """'partial_update', or a merger for each column: {"clicks": "sum"}"""
    elif name == "statistics":
        fits, wanted = value is None or _columns(value), "a column, a list of columns, 'all' or None"
    else:
        fits = isinstance(value, Sequence) and all(_columns(each) for each in ([value] if _columns(value) else value))
        wanted = 'columns or lists of columns: ["email", ["country", "number"]]'
    if not fits:
        raise ConfigError(f"{name} is {brief(value)}, must be {wanted}", setting=name)


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
