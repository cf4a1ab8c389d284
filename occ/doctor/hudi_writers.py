"""The options that Hudi's JVM writers need beside ours, and what is unsafe in the options that one of them has. Pure.

Source: behaviour of Hudi 1.2.0, tried; docs/neighbours.md says what each option prevents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...errors import ConfigError, InputError
from ...hudi.table import TableConfig
from ...locks.hudi import PREFIX, hudi_options, lock_url
from ..entries import Settings
from .advice import Advice

STYLES = ("properties", "spark", "flink")
_MODE, _POLICY = "hoodie.write.concurrency.mode", "hoodie.clean.failed.writes.policy"
_METADATA, _UPGRADE, _VERSION = "hoodie.metadata.enable", "hoodie.write.auto.upgrade", "hoodie.write.table.version"
_INDEX, _BUCKETS = "hoodie.index.type", "hoodie.bucket.index.num.buckets"
_EXPIRE = PREFIX + "filesystem.expire"
_NOT_READ = ("HBASE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX")
# key = value, key: value, or key value; of Spark with its own prefix, of Flink's SQL in quotes and with a comma.
_LINE = re.compile(r"""^\s*['"]?(?:spark\.)?(hoodie\.[A-Za-z0-9_.\-]+)['"]?\s*(?:[=:]|\s)\s*(.*?)\s*,?\s*$""")


def writer_options(config: TableConfig, settings: Settings) -> dict[str, str]:
    """Return the options of a JVM writer of this table, all of them needed.

    Raises:
        ConfigError: no lock provider of Hudi takes the table's lock.
    """
    index = {_INDEX: "SIMPLE"}
    if settings.bucket_count is not None:
        index = {_INDEX: "BUCKET", _BUCKETS: str(settings.bucket_count)}
    return {
        _MODE: "optimistic_concurrency_control",
        _POLICY: "LAZY",
        _METADATA: "false",
        _UPGRADE: "false",
        _VERSION: str(config.version),
        **index,
        **hudi_options(settings.lock),
    }


def rendered(options: Mapping[str, str], style: str) -> str:
    """Return the options as text to paste: a properties file, arguments of ``spark-submit``, or a ``WITH`` list of Flink.

    Raises:
        InputError: another style.
    """
    if style not in STYLES:
        raise InputError(f"there is no style {style!r}; known are {', '.join(STYLES)}")
    match style:
        case "spark":
            return " \\\n".join(f"  --conf 'spark.{key}={value}'" for key, value in options.items())
        case "flink":
            return ",\n".join(f"  '{key}' = '{value}'" for key, value in options.items())
        case _:
            return "\n".join(f"{key}={value}" for key, value in options.items())


def options_in(text: str) -> dict[str, str]:
    """Return Hudi's options in a properties file, a Spark configuration or a statement of Flink's SQL."""
    found = {}
    for line in text.splitlines():
        if not line.lstrip().startswith(("#", "!", "--")) or "--conf" in line:
            bare = re.sub(r"^\s*--conf\s+", "", line).rstrip("\\ ").strip("'\" ")
            if match := _LINE.match(bare):
                found[match[1]] = match[2].strip("'\"")
    return found


def judge_writer(given: Mapping[str, str], config: TableConfig, settings: Settings, *, table: str) -> list[Advice]:
    """Return what is unsafe for our writers, or for the JVM writer, in its options; each with the line that mends it."""
    return list(_unsafe(given, writer_options(config, settings), config, settings, table))


def _unsafe(
    given: Mapping[str, str], wanted: Mapping[str, str], config: TableConfig, settings: Settings, table: str
) -> Iterator[Advice]:
    def says(key: str, default: str) -> str:
        return given.get(key, default).strip()

    old = says(_UPGRADE, "true").lower() != "false" and says(_VERSION, "") != wanted[_VERSION]
    for kind, is_wrong, key, what in (
        (
            "jvm-single-writer",
            says(_MODE, "single_writer").lower() != wanted[_MODE],
            _MODE,
            "a single writer takes no lock, and rolls back every transaction of ours",
        ),
        (
            "jvm-eager",
            says(_POLICY, "EAGER").upper() != "LAZY",
            _POLICY,
            "EAGER rolls back transactions of ours that are alive, whatever their heartbeat",
        ),
        (
            "jvm-metadata",
            says(_METADATA, "true").lower() != "false",
            _METADATA,
            "a metadata table hides what our writers commit from every reader of it",
        ),
        ("jvm-upgrade", old, _UPGRADE, f"the writer upgrades the table, which has version {config.version}"),
    ):
        if is_wrong:
            yield _finding(kind, what, key, wanted)
    index = says(_INDEX, wanted[_INDEX]).upper()
    buckets = settings.bucket_count
    if index in _NOT_READ or (index == "BUCKET") != (buckets is not None):
        yield _finding(
            "jvm-index", f"index {index} finds no keys that ours have written, and writes them twice", _INDEX, wanted
        )
    elif buckets is not None and says(_BUCKETS, "256") != str(buckets):
        yield _finding(
            "jvm-buckets", "another number of buckets puts a key where ours do not look for it", _BUCKETS, wanted
        )
    yield from _of_the_lock(given, wanted, table)


def _of_the_lock(given: Mapping[str, str], wanted: Mapping[str, str], table: str) -> Iterator[Advice]:
    known = {key: value for key, value in given.items() if key.startswith(PREFIX)}
    provider = PREFIX + "provider"
    if provider not in known:
        yield _finding("jvm-no-lock", "no lock provider is named", provider, wanted)
        return
    try:
        theirs = hudi_options(lock_url(known, table_name=given.get("hoodie.table.name", ""), base_path=table))
    except ConfigError as e:
        yield Advice(
            "unsafe", "jvm-lock", f"its lock cannot be compared with the table's: {e}", _line(provider, wanted)
        )
        return
    pace = (_EXPIRE, PREFIX + "zookeeper.session_timeout_ms", PREFIX + "storage.validity.timeout.secs")
    for key in sorted((theirs.keys() | wanted.keys()) - set(pace)):
        if key.startswith(PREFIX) and theirs.get(key) != wanted.get(key):
            yield _finding(
                "jvm-other-lock", f"it takes another lock than ours: {key}={theirs.get(key, '')}", key, wanted
            )
    if wanted[provider].endswith("FileSystemBasedLockProvider") and _EXPIRE not in given:
        yield Advice(
            "note",
            "jvm-lock-stays",
            "a writer that is killed with the lock leaves its file: the next of ours on that host removes it if it was ours, and "
            "nobody if it was the JVM's",
            f"{_EXPIRE}=5, in minutes, and jvm_expire=5m in the table's lock",
        )


def _finding(kind: str, what: str, key: str, wanted: Mapping[str, str]) -> Advice:
    return Advice("unsafe", kind, what, _line(key, wanted))


def _line(key: str, wanted: Mapping[str, str]) -> str:
    return f"{key}={wanted[key]}" if key in wanted else f"leave {key} out"
