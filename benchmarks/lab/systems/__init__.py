"""The systems that the lab measures: each adapter is found by name, by entry point (``lakelatch.bench_peers``) or by
``module:name``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from ...errors import ConfigError
from .interface import Configuration, System

__all__ = ["GROUP", "OURS", "Configuration", "System", "known", "load"]

GROUP = "lakelatch.bench_peers"
OURS = "lakelatch"
# name -> (module of this room, class)
_BUILT_IN = {
    OURS: (".lakelatch_tables", "LakeLatch"),
    "delta-rs": (".delta", "DeltaRs"),
    "pyiceberg": (".iceberg", "PyIceberg"),
    "pyiceberg-postgres": (".iceberg", "PyIcebergPostgres"),
    "ducklake": (".ducklake", "DuckLake"),
    "ducklake-postgres": (".ducklake", "DuckLakePostgres"),
    "delta-spark": (".peers_on_spark", "DeltaOnSpark"),
    "iceberg-spark": (".peers_on_spark", "IcebergOnSpark"),
    "hudi-spark": (".peers_on_spark", "HudiOnSpark"),
    "redis-py": (".bare_locks", "RedisPy"),
    "python-redis-lock": (".bare_locks", "PythonRedisLock"),
    "kazoo": (".bare_locks", "Kazoo"),
    "python-dynamodb-lock": (".bare_locks", "PythonDynamodbLock"),
    "filelock": (".bare_locks", "FileLocks"),
}


def load(name: str) -> type[System]:
    """Return the adapter of a name.

    Raises:
        ConfigError: there is none, with the known ones; or its package is missing.
    """
    try:
        if name in _BUILT_IN:
            module, kind = _BUILT_IN[name]
            found = cast(type[System], getattr(import_module(module, __name__), kind))
            for each in getattr(found, "modules", ()):  # that it imports when it is used
                import_module(each)
            if absent := getattr(found, "missing", str)():
                raise ConfigError(f"{name} needs {absent}; scripts/ensure_jvm.sh peers fetches it", missing=absent)
            return found
        for entry in entry_points(group=GROUP, name=name):
            return cast(type[System], entry.load())
        if ":" in name:
            module, _, kind = name.partition(":")
            return cast(type[System], getattr(import_module(module), kind))
    except ModuleNotFoundError as e:
        raise ConfigError(f"{name} needs {e.name}, which is not installed here", missing=e.name) from e
    except AttributeError as e:
        raise ConfigError(f"{name} is no adapter: {e}") from e
    raise ConfigError(
        f"there is no peer {name!r}; there are {', '.join(known())}, or module:class of your own", known=known()
    )


def known() -> tuple[str, ...]:
    """Return the names of all peers."""
    return tuple(sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))} - {OURS}))
