"""`hoodie.properties`: the table's configuration, with each key declared once.

Source: properties of tables that Hudi 0.14 to 1.2 wrote (keys and values); the text format is in `java_properties`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...errors import ConfigError, CorruptTableError, UnsupportedTableError
from .java_properties import parse, render

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

# A key of this library's own. The JVM keeps keys that it does not know when it rewrites the file.
STREAMS_KEY = "lakelatch.streams"
_TIME_KEY = "lakelatch.partition.time"  # as ``days(at)``; see `time_partitions`
TIME_UNITS = ("hours", "days", "months", "years")
# Flags that are checked as well, beside those that `TableConfig` has as fields.
_OTHER_FLAGS = (STREAMS_KEY, "hoodie.bootstrap.index.enable", "hoodie.partition.metafile.use.base.format")

COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"
EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
CUSTOM = "CUSTOM"
# Names of a table whose columns only writers of this library can merge. Hudi 1.2.0 and hudi-rs 0.5.0 read such a table, and
# a JVM writer fails before it writes: of version 8, where it is copy-on-write, by the merge mode; of version 9 by the payload.
_PAYLOAD_KEY, _STRATEGY_KEY = "hoodie.compaction.payload.class", "hoodie.record.merge.strategy.id"
# Names of the same that Hudi reads too, where those above are missing.
_OLD_STRATEGY_KEY = "hoodie.compaction.record.merger.strategy"
_OLD_PAYLOAD_KEYS = ("hoodie.compaction.payload.type", "hoodie.datasource.write.payload.class")
_LEGACY_PAYLOAD_KEY = "hoodie.table.legacy.payload.class"  # version 9 has translated it into other keys
_OWN_MERGE = {_PAYLOAD_KEY: "lakelatch.mergers.Rule", _STRATEGY_KEY: "5c9b0e1c-6f0d-4c3b-9a53-6c616b656c61"}

READABLE_VERSIONS = (6, 8, 9)
WRITABLE_VERSIONS = (8, 9)
_LAYOUT_OF_VERSION = {6: 1, 8: 2, 9: 2}
# Version 8 names a merge mode three times, and the JVM refuses a table whose three names disagree. Version 6 names none, and
# the payload stands for it. Of several payloads the first is what we write.
_MODELS = "org.apache.hudi.common.model."
_MERGE = {
    EVENT_TIME_ORDERING: (
        "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        (_MODELS + "DefaultHoodieRecordPayload", _MODELS + "EventTimeAvroPayload"),
    ),
    COMMIT_TIME_ORDERING: (
        "ce9acb64-bde0-424c-9b91-f6ebba25356d",
        (_MODELS + "OverwriteWithLatestAvroPayload",),
    ),
}
_MODE_OF_PAYLOAD = {payload: mode for mode, (_, payloads) in _MERGE.items() for payload in payloads}
_MODE_OF_STRATEGY = {strategy: mode for mode, (strategy, _) in _MERGE.items()}
# Settings of payloads and mergers: which column marks deletes, which one orders rows, which value stands for "unchanged".
_MERGE_SETTINGS = ("hoodie.record.merge.property.", "hoodie.payload.")
_KEYGEN_OF_CLASS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
}
_WRITABLE_KEYGENS = ("SIMPLE", "COMPLEX", "NON_PARTITION")


def checksum(database: str, table: str) -> int:
    """Return the value that `hoodie.table.checksum` must have for these two names."""
    return zlib.crc32(f"{database}.{table}".encode())


def _text(value: str) -> str:
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _bare_names(value: str) -> tuple[str, ...]:
    # A custom key generator writes `field:TYPE`.
    return tuple(name.partition(":")[0] for name in _names(value))


def _by_time(value: str) -> tuple[str, str]:
    if not (found := re.fullmatch(rf"({'|'.join(TIME_UNITS)})\(([A-Za-z_][A-Za-z0-9_]*)\)", value)):
        raise ValueError("is no unit of a time")
    return found[1], found[2]


ROW_ID = "row_id"  # the column of the ids that rows of a table without a key get
_ROW_IDS_KEY = "lakelatch.row.ids"


def time_column(unit: str, source: str) -> str:
    """Return the name of the column that is computed from a time: ``at_day`` for days of ``at``."""
    return f"{source}_{unit.removesuffix('s')}"


def _folder(value: str) -> str:
    if not value.strip() or "\0" in value or any(name in ("", ".", "..") for name in value.strip().split("/")):
        raise ValueError("is no folder below .hoodie")
    return value.strip()


def _flag(value: str) -> bool:
    # Java's Boolean.parseBoolean takes whatever is not "true" for false, also "yes" and "true " with a blank.
    if (lower := value.lower()) not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return lower == "true"


def _number(value: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value):
        raise ValueError("is no number")
    return int(value)


def _one_of(*known: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in known:
            raise ValueError(f"is neither {' nor '.join(known)}")
        return value

    return read


def _key(name: str, read: Callable[[str], Any] = _text, **default: Any) -> Any:
    return field(metadata={"key": name, "read": read}, **default)


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The table's configuration. Each field is one key of `hoodie.properties`; ``raw`` holds all keys as they were read."""

    name: str = _key("hoodie.table.name")
    table_type: str = _key("hoodie.table.type", _one_of(COPY_ON_WRITE, MERGE_ON_READ))
    version: int = _key("hoodie.table.version", _number)
    layout: int = _key("hoodie.timeline.layout.version", _number)
    initial_version: int | None = _key("hoodie.table.initial.version", _number, default=None)
    database: str = _key("hoodie.database.name", default="")
    record_key_fields: tuple[str, ...] = _key("hoodie.table.recordkey.fields", _names, default=())
    partition_fields: tuple[str, ...] = _key("hoodie.table.partition.fields", _bare_names, default=())
    by_time: tuple[str, str] = _key(_TIME_KEY, _by_time, default=("", ""))
    row_ids: bool = _key(_ROW_IDS_KEY, _flag, default=False)
    keygen: str = _key("hoodie.table.keygenerator.type", default="")
    keygen_class: str = _key("hoodie.table.keygenerator.class", default="")
    precombine_fields: tuple[str, ...] = _key("hoodie.table.precombine.field", _names, default=())
    ordering_fields: tuple[str, ...] = _key("hoodie.table.ordering.fields", _names, default=())
    merge_mode: str | None = _key("hoodie.record.merge.mode", default=None)
    partial_update_mode: str | None = _key("hoodie.table.partial.update.mode", default=None)
    hive_style: bool = _key("hoodie.datasource.write.hive_style_partitioning", _flag, default=False)
    url_encode: bool = _key("hoodie.datasource.write.partitionpath.urlencode", _flag, default=False)
    drop_partition_columns: bool = _key("hoodie.datasource.write.drop.partition.columns", _flag, default=False)
    populate_meta_fields: bool = _key("hoodie.populate.meta.fields", _flag, default=True)
    base_file_format: str = _key("hoodie.table.base.file.format", default="PARQUET")
    several_base_formats: bool = _key("hoodie.table.multiple.base.file.formats.enable", _flag, default=False)
    bootstrap_path: str = _key("hoodie.bootstrap.base.path", default="")
    cdc: bool = _key("hoodie.table.cdc.enabled", _flag, default=False)
    create_schema: str | None = _key("hoodie.table.create.schema", default=None)
    timeline_timezone: str | None = _key("hoodie.table.timeline.timezone", _one_of("UTC", "LOCAL"), default=None)
    timeline_path: str = _key("hoodie.timeline.path", _folder, default="timeline")
    metadata_partitions: tuple[str, ...] = _key("hoodie.table.metadata.partitions", _names, default=())
    raw: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_bytes(cls, body: bytes, *, table: str = "") -> TableConfig:
        """Read the file; ``table``, its place, is for messages.

        Raises:
            CorruptTableError: empty, torn, without a key that every reader needs, or with a wrong checksum. A JVM
                rewrites the file in steps, so look at `BACKUP_PATH` before giving up.
        """
        where = f"{PROPERTIES_PATH} of {table}" if table else PROPERTIES_PATH
        if not body.strip():
            raise _damaged(where, "is empty", table)
        # Both the JVM and this library end the last line, so a file that does not is torn.
        if not body.endswith((b"\n", b"\r")):
            raise _damaged(where, "ends in the middle of a line", table)
        try:
            raw = parse(body)
        except ValueError as error:
            raise _damaged(where, f"cannot be parsed ({error})", table) from error

        def told(key: str, read: Callable[[str], Any]) -> Any:
            value = raw[key]
            try:
                return read(value)
            except ValueError as error:
                shown = value if value == value.strip() else repr(value)
                raise _damaged(where, f"says {key}={shown:.80}, which {error}", table) from error

        declared = [(each.name, each.metadata) for each in fields(cls) if each.metadata]
        values = {name: told(each["key"], each["read"]) for name, each in declared if each["key"] in raw}
        for key in _OTHER_FLAGS:
            if key in raw:
                told(key, _flag)
        missing = [
            each.metadata["key"] for each in fields(cls)[:4] if each.name not in values or values[each.name] == ""
        ]
        if missing:
            raise _damaged(where, f"lacks {', '.join(missing)}", table)
        config = cls(**values, raw=raw)
        config._check_checksum(where, table)
        return config if config.keygen else replace(config, keygen=config._guess_keygen())

    def _check_checksum(self, where: str, table: str) -> None:
        stored = self.raw.get("hoodie.table.checksum")
        expected = checksum(self.database, self.name)
        if stored is not None and stored.strip() != str(expected):
            raise _damaged(
                where, f"has checksum {stored}, but {self.database}.{self.name} needs {expected}", table, stored=stored
            )

    def _guess_keygen(self) -> str:
        """Return the key generator's type. Version 6 names a class instead of a type, and may leave out both."""
        if self.keygen_class:
            short = self.keygen_class.rpartition(".")[2]
            return _KEYGEN_OF_CLASS.get(short, short)
        if not self.partition_fields:
            return "NON_PARTITION"
        return "SIMPLE" if len(self.partition_fields) == len(self.record_key_fields) == 1 else "COMPLEX"

    def to_bytes(self) -> bytes:
        """Return the whole file; keys that this library does not know stay as they were read."""
        if self.version not in WRITABLE_VERSIONS or self.keygen not in _WRITABLE_KEYGENS:
            # A custom key generator keeps types beside the field names, which would be lost.
            raise UnsupportedTableError(
                f"The properties of table {self.name} (version {self.version}, key generator {self.keygen}) are only "
                "read here; change them with Hudi",
                table=self.name,
            )
        # The checksum comes last, so that it vouches for the lines above when a store tears the file.
        owned = {each.metadata["key"] for each in fields(self) if "key" in each.metadata} | _DERIVED_KEYS
        kept = {key: value for key, value in sorted(self.raw.items()) if key not in owned}
        written = {key: value for key, value in self._properties().items() if value is not None}
        total = {"hoodie.table.checksum": str(checksum(self.database, self.name))}
        return render({**written, **kept, **total})

    def _properties(self) -> dict[str, str | None]:
        v8 = self.version == 8
        strategy, payloads = _MERGE.get(self.merge_mode or "", (None, ()))
        ordering = ",".join(self.ordered_by) or None
        raw = self.raw
        return {
            "hoodie.table.name": self.name,
            "hoodie.database.name": self.database,
            "hoodie.table.type": self.table_type,
            "hoodie.table.version": str(self.version),
            "hoodie.table.initial.version": str(self.initial_version or self.version),
            "hoodie.table.format": None if v8 else raw.get("hoodie.table.format", "native"),
            "hoodie.timeline.layout.version": str(self.layout),
            "hoodie.timeline.path": self.timeline_path,
            "hoodie.timeline.history.path": raw.get("hoodie.timeline.history.path", "history"),
            "hoodie.archivelog.folder": raw.get("hoodie.archivelog.folder", "archived"),
            "hoodie.table.timeline.timezone": self.timeline_timezone,
            "hoodie.table.recordkey.fields": ",".join(self.record_key_fields) or None,
            "hoodie.table.partition.fields": ",".join(self.partition_fields) or None,
            _TIME_KEY: f"{self.time_unit}({self.time_source})" if self.time_unit else None,
            _ROW_IDS_KEY: "true" if self.row_ids else None,
            "hoodie.table.keygenerator.type": self.keygen or None,
            "hoodie.table.keygenerator.class": self.keygen_class or None,
            "hoodie.table.precombine.field": ordering if v8 else None,
            "hoodie.table.ordering.fields": None if v8 else ordering,
            "hoodie.record.merge.mode": self.merge_mode,
            _STRATEGY_KEY: (strategy or raw.get(_STRATEGY_KEY)) if v8 else None,
            _PAYLOAD_KEY: (payloads[0] if payloads else raw.get(_PAYLOAD_KEY))
            if v8
            else (_OWN_MERGE[_PAYLOAD_KEY] if self.merges_columns else None),
            "hoodie.table.partial.update.mode": self.partial_update_mode,
            "hoodie.datasource.write.hive_style_partitioning": _java(self.hive_style),
            "hoodie.datasource.write.partitionpath.urlencode": _java(self.url_encode),
            "hoodie.datasource.write.drop.partition.columns": _java(self.drop_partition_columns),
            "hoodie.populate.meta.fields": None if self.populate_meta_fields else "false",
            "hoodie.table.base.file.format": None if self.base_file_format == "PARQUET" else self.base_file_format,
            "hoodie.table.multiple.base.file.formats.enable": "true" if self.several_base_formats else None,
            "hoodie.bootstrap.base.path": self.bootstrap_path or None,
            "hoodie.table.cdc.enabled": "true" if self.cdc else None,
            "hoodie.table.create.schema": self.create_schema,
            "hoodie.table.metadata.partitions": ",".join(self.metadata_partitions) or None,
        }

    @property
    def merges_columns(self) -> bool:
        """True when JVM writers are kept away, because they would not merge columns as the table's settings say."""
        return self.raw.get(_PAYLOAD_KEY, "") == _OWN_MERGE[_PAYLOAD_KEY]

    def merging_columns(self) -> TableConfig:
        """Return the configuration for a table that merges columns.

        Raises:
            ConfigError: nothing would keep JVM writers away and still let readers in.
        """
        if self.version == 8 and self.merge_on_read:
            raise ConfigError(
                f"table {self.name} merges columns and is merge-on-read, and in version 8 nothing stops a JVM writer that does "
                "not; make it with table_version=9"
            )
        mode = CUSTOM if self.version == 8 else self.merge_mode
        return replace(self, merge_mode=mode, raw={**self.raw, **_OWN_MERGE})

    def to_json(self) -> dict[str, Any]:
        """Return what users ask of the table, in this library's words."""
        return {
            "name": self.name,
            "type": self.table_type,
            "version": self.version,
            "record_key": list(self.record_key_fields),
            "partition_by": list(self.partitioned_by),
            "ordering_field": self.ordered_by[0] if len(self.ordered_by) == 1 else list(self.ordered_by) or None,
            "hive_style": self.hive_style,
            "base_file_format": self.base_file_format,
            "metadata_table": bool(self.metadata_partitions),
        }

    @property
    def merge_on_read(self) -> bool:
        """True when file slices may have log files."""
        return self.table_type == MERGE_ON_READ

    @property
    def keyed_by(self) -> tuple[str, ...] | None:
        """The record key as `create` takes it; None if rows get ids."""
        return None if self.row_ids else self.record_key_fields

    @property
    def plain_partitions(self) -> bool:
        """True when partition paths hold the values themselves; other key generators format them."""
        return self.keygen in ("SIMPLE", "COMPLEX")

    @property
    def time_unit(self) -> str:
        """The unit of the partitions by time, as ``days``; "" without."""
        return self.by_time[0]

    @property
    def time_source(self) -> str:
        """The time whose units partition the table."""
        return self.by_time[1]

    @property
    def time_column(self) -> str:
        """The partition column that is computed from the time; "" without."""
        return time_column(*self.by_time) if self.time_unit else ""

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns as `create` takes them: ``("city",)``, or ``("city", "days(at)")``."""
        time = f"{self.time_unit}({self.time_source})"
        return tuple(time if name == self.time_column else name for name in self.partition_fields)

    @property
    def placed_by(self) -> tuple[str, ...]:
        """The columns that rows must have for their partition to be known: the time in place of what is computed from it."""
        return tuple(self.time_source if name == self.time_column else name for name in self.partition_fields)

    @property
    def for_streams(self) -> bool:
        """True when the commit log declares streams, by whose rules log files are merged (`lakelatch.streams`)."""
        return _flag(self.raw.get(STREAMS_KEY, "false"))

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The columns that decide which version of a row is newer, the first of them first; () without any."""
        return self.ordering_fields or self.precombine_fields

    @property
    def newer_by(self) -> tuple[str, ...]:
        """The columns by which one row is newer than another; () if the later commit decides."""
        mode = self.merge_mode or _MODE_OF_PAYLOAD.get(self.raw.get(_PAYLOAD_KEY, "").strip())
        mode = mode or _MODE_OF_STRATEGY.get(self.raw.get(_STRATEGY_KEY, "").strip())
        return () if mode == COMMIT_TIME_ORDERING else self.ordered_by

    def unknown_merge(self) -> str:
        """Return why this library cannot merge rows of one key; "" if it can.

        Two rules of payload classes are known: the later row wins, or the one newer by the ordering fields. Other classes
        mark deletes in a column, keep the old value for a null, or compute one; merged by our rules the stored row would be
        wrong.
        """
        if not self.merges_columns:
            if self.merge_mode not in (None, *_MERGE):
                return f"its merge mode is {self.merge_mode}"
            for key in (_STRATEGY_KEY, _OLD_STRATEGY_KEY):
                strategy = self.raw.get(key, "").strip()
                if strategy and self.merge_mode is None and strategy not in _MODE_OF_STRATEGY:
                    return f"its merge strategy is {strategy} ({key})"
            older = () if self.raw.get(_PAYLOAD_KEY) else _OLD_PAYLOAD_KEYS
            for key in (_PAYLOAD_KEY, _LEGACY_PAYLOAD_KEY, *older):
                payload = self.raw.get(key, "").strip()
                if payload and payload not in _MODE_OF_PAYLOAD:
                    return f"its payload class is {payload} ({key})"
        if self.partial_update_mode is not None and not self.for_streams:
            return f"it has partial updates ({self.partial_update_mode})"
        named = sorted(
            key for key in self.raw if key.startswith(_MERGE_SETTINGS) or key.endswith("payload.delete.field")
        )
        if any(key.endswith("payload.delete.field") for key in named):
            return f"a column marks its deletes ({named[0]})"
        return f"its payload has settings ({named[0]})" if named else ""

    def contradictions(self) -> Iterator[str]:
        """Yield a sentence for each pair of keys that cannot both be true."""
        partitions = self.partition_fields
        if self.keygen == "NON_PARTITION" and partitions:
            yield f"the key generator is NON_PARTITION, but the table is partitioned by {', '.join(partitions)}"
        if self.keygen in ("SIMPLE", "TIMESTAMP") and not partitions:
            yield f"the key generator is {self.keygen}, but there is no partition field"
        if self.time_unit and self.time_column not in partitions:
            yield f"it is partitioned by {self.time_unit} of {self.time_source}, but not by {self.time_column}"
        if self.keygen == "SIMPLE" and len(partitions) > 1:
            yield f"the key generator is SIMPLE, but there are {len(partitions)} partition fields"
        if self.version == 8 and self.merge_mode in _MERGE:
            strategy, payloads = _MERGE[self.merge_mode]
            for key, wanted in ((_STRATEGY_KEY, (strategy,)), (_PAYLOAD_KEY, payloads)):
                said = self.raw.get(key)
                if said is not None and said not in wanted:
                    yield f"the merge mode is {self.merge_mode}, but {key} is {said}; JVM Hudi refuses such a table"

    @property
    def timeline_folder(self) -> str:
        """The folder of the active timeline, relative to the table."""
        return ".hoodie" if self.layout == 1 else f".hoodie/{self.timeline_path}"

    def refuse_opening(self) -> None:
        """Raise `UnsupportedTableError` unless this library understands the timeline and the file names."""
        if self.version not in READABLE_VERSIONS:
            raise self._unsupported(
                f"Table version {self.version} of {self.name} is not supported; versions 6, 8 and 9 are. "
                + ("Upgrade it with Hudi's upgrade_table" if self.version < 9 else "Keep its writers at version 9"),
                "version",
            )
        if self.layout != _LAYOUT_OF_VERSION[self.version]:
            raise self._unsupported(
                f"Table {self.name} has version {self.version} and timeline layout {self.layout}, which do not belong "
                f"together; version {self.version} needs layout {_LAYOUT_OF_VERSION[self.version]}",
                "layout",
            )

    def refuse_reading(self) -> None:
        """Raise `UnsupportedTableError`, with the way out, if rows cannot be read."""
        self.refuse_opening()
        if self.base_file_format.upper() != "PARQUET" or self.several_base_formats:
            raise self._unsupported(
                f"Table {self.name} keeps its rows in {self.base_file_format} files; only Parquet base files can be "
                "read here. Its timeline and file slices can be listed; read its rows with Hudi itself",
                "base_file_format",
            )
        if self.drop_partition_columns:
            raise self._unsupported(
                f"Table {self.name} leaves its partition columns out of the data files "
                "(hoodie.datasource.write.drop.partition.columns=true), which is not supported; use Hudi on Spark",
                "drop_partition_columns",
            )
        if self.bootstrap_path:
            raise self._unsupported(
                f"Table {self.name} is bootstrapped from {self.bootstrap_path}: part of its rows lie there. "
                "Read it with Hudi on Spark",
                "bootstrap",
            )

    def refuse_other_columns(self, names: Collection[str], *, table: str = "") -> None:
        """Raise `CorruptTableError` if key, partition or ordering fields are missing among the table's columns."""
        known = ", ".join([*names][:20]) + (", ..." if len(names) > 20 else "")
        self._refuse_unknown("hoodie.table.recordkey.fields", self.record_key_fields, names, f"; it has {known}", table)
        if not self.drop_partition_columns:
            self._refuse_unknown(
                "hoodie.table.partition.fields", self.partition_fields, names, f"; it has {known}", table
            )
        if self.time_unit:
            self._refuse_unknown(_TIME_KEY, (self.time_source,), names, f"; it has {known}", table)
        self.refuse_unordered(names, f"; it has {known}", table=table)

    def refuse_unordered(self, names: Collection[str], more: str = "", *, table: str = "") -> None:
        """Raise `CorruptTableError` if an ordering field is missing among the table's columns."""
        key = "hoodie.table.ordering.fields" if self.ordering_fields else "hoodie.table.precombine.field"
        self._refuse_unknown(key, self.ordered_by, names, more, table)

    def _refuse_unknown(self, key: str, wanted: Sequence[str], names: Collection[str], more: str, table: str) -> None:
        # Readers follow a nested field, so only its outermost column must exist.
        if missing := [name for name in wanted if name.partition(".")[0] not in names]:
            raise _damaged(
                f"{PROPERTIES_PATH} of {table or self.name}",
                f"says {key}={','.join(wanted)}, but the table has no column {', '.join(missing)}{more}",
                table or self.name,
            )

    def refuse_writing(self) -> None:
        """Raise `UnsupportedTableError`, with the way out, if a commit of ours would be wrong or invisible.

        Raise `CorruptTableError` if the properties contradict each other.
        """
        self.refuse_opening()
        for feature, message in self._obstacles():
            raise self._unsupported(f"Table {self.name} cannot be written: {message}", feature)
        for contradiction in self.contradictions():
            raise _damaged(f"{PROPERTIES_PATH} of {self.name}", f"cannot be right: {contradiction}", self.name)
        self.refuse_reading()

    def _obstacles(self) -> Iterator[tuple[str, str]]:
        """Yield every reason not to write: its short name, and the sentence."""
        if self.version not in WRITABLE_VERSIONS:
            yield (
                "version",
                (
                    f"version {self.version} has no completion times. Upgrade it with a Hudi 1.x writer "
                    "(hoodie.write.table.version=8)"
                ),
            )
        if self.metadata_partitions:
            yield (
                "metadata_table",
                (
                    "it has a metadata table, which would hide our files from its readers. Remove it by one JVM write "
                    "with hoodie.metadata.enable=false, and keep that option in every JVM writer"
                ),
            )
        if not self.populate_meta_fields:
            yield (
                "no_meta_fields",
                (
                    "it has no meta columns (hoodie.populate.meta.fields=false), so changed rows cannot be told apart. "
                    "It can be read; write a copy of it into a new table"
                ),
            )
        if not self.record_key_fields:
            yield (
                "no_record_key",
                "it names no record key (hoodie.table.recordkey.fields). Write a copy of it into a new table",
            )
        if self.keygen not in _WRITABLE_KEYGENS:
            yield (
                "keygen",
                (
                    f"its partition paths come from key generator {self.keygen}; only SIMPLE, COMPLEX and "
                    "NON_PARTITION are reproduced here. Write it with Hudi"
                ),
            )
        if unknown := self.unknown_merge():
            yield (
                "merge_mode",
                (
                    f"{unknown}, and how to merge its rows is not known here. Write it with Hudi, or write a copy of its rows "
                    "into a new table"
                ),
            )
        if self.cdc:
            yield "cdc", "it records change data, which is not supported. Write it with Hudi"

    def _unsupported(self, message: str, feature: str) -> UnsupportedTableError:
        return UnsupportedTableError(message, table=self.name, feature=feature)


# Written from other fields; the copy in ``raw`` would contradict them after a change.
_DERIVED_KEYS = frozenset(
    {
        "hoodie.table.checksum",
        "hoodie.table.format",
        "hoodie.timeline.history.path",
        "hoodie.archivelog.folder",
        "hoodie.record.merge.strategy.id",
        "hoodie.compaction.payload.class",
    }
)


def _java(value: bool) -> str:
    return "true" if value else "false"


def _damaged(where: str, what: str, table: str, **details: Any) -> CorruptTableError:
    return CorruptTableError(
        f"{where} {what}. Restore the file from {BACKUP_PATH}, where that is there, or from a copy, or correct what is wrong in "
        "it; nothing was written",
        table=table,
        path=PROPERTIES_PATH,
        **details,
    )
