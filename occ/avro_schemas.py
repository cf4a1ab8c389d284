"""Schemas of the Avro records that this library writes into instants, field for field as Hudi 1.x declares them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

_NAMESPACE = "org.apache.hudi.avro.model"


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def _record(name: str, fields: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [{"name": key, **spec} for key, spec in fields.items()]
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": listed}


def _all_optional(kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {name: _optional(kind) for name in names}


_VERSION = {"version": {"type": ["int", "null"], "default": 1}}
_STRINGS = {"type": "map", "values": "string"}
_STRING_LIST = {"type": "array", "items": "string"}


def _write_stat() -> dict[str, Any]:
    fields = _all_optional("string", ["fileId", "path", "prevCommit"])
    fields |= _all_optional("long", ["numWrites", "numDeletes", "numUpdateWrites"])
    fields |= _all_optional("long", ["totalWriteBytes", "totalWriteErrors"])
    fields |= _all_optional("string", ["partitionPath"])
    fields |= _all_optional("long", ["totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts"])
    fields |= _all_optional("long", ["totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks"])
    fields |= _all_optional("long", ["fileSizeInBytes"])
    fields |= _all_optional("int", ["logVersion"])
    fields |= _all_optional("long", ["logOffset"])
    fields |= _all_optional("string", ["baseFile"])
    fields["logFiles"] = _optional(_STRING_LIST)
    fields["cdcStats"] = _optional({"type": "map", "values": "long"})
    fields |= _all_optional("string", ["prevBaseFile"])
    fields |= _all_optional("long", ["minEventTime", "maxEventTime"])
    times = _all_optional("long", ["totalScanTime", "totalCreateTime", "totalUpsertTime"])
    fields["runtimeStats"] = _optional(_record("HoodieRuntimeStats", times))
    fields |= _all_optional("long", ["totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"])
    fields |= _all_optional("string", ["tempPath"])
    fields |= _all_optional("long", ["numUpdates"])
    return _record("HoodieWriteStat", fields)


def _commit_fields() -> dict[str, dict[str, Any]]:
    return {
        "partitionToWriteStats": _optional({"type": "map", "values": {"type": "array", "items": _write_stat()}}),
        "compacted": _optional("boolean"),
        "extraMetadata": _optional(_STRINGS),
        **_VERSION,
        "operationType": _optional("string"),
    }


def _clustering_plan() -> dict[str, Any]:
    slices = _record(
        "HoodieSliceInfo",
        {
            **_all_optional("string", ["dataFilePath"]),
            "deltaFilePaths": _optional(_STRING_LIST),
            **_all_optional("string", ["fileId", "partitionPath", "bootstrapFilePath"]),
            **_VERSION,
        },
    )
    group = _record(
        "HoodieClusteringGroup",
        {
            "slices": _optional({"type": "array", "items": slices}),
            "metrics": _optional({"type": "map", "values": "double"}),
            "numOutputFileGroups": {"type": ["int", "null"], "default": 1},
            "extraMetadata": _optional(_STRINGS),
            **_VERSION,
        },
    )
    strategy = _record(
        "HoodieClusteringStrategy",
        {**_all_optional("string", ["strategyClassName"]), "strategyParams": _optional(_STRINGS), **_VERSION},
    )
    return _record(
        "HoodieClusteringPlan",
        {
            "inputGroups": _optional({"type": "array", "items": group}),
            "strategy": _optional(strategy),
            "extraMetadata": _optional(_STRINGS),
            **_VERSION,
            **_all_optional("boolean", ["preserveHoodieMetadata"]),
            "missingSchedulePartitions": _optional(_STRING_LIST),
        },
    )


@functools.cache
def write_stats() -> Any:
    """The parsed schema of a list of HoodieWriteStat."""
    import fastavro

    return fastavro.parse_schema({"type": "array", "items": _write_stat()})


@functools.cache
def schema_of(name: str, *, without_stats: bool = False) -> Any:
    """The parsed schema of the record of that name; of a commit also of what follows its first field."""
    import fastavro

    fields: dict[str, dict[str, Any]]
    if name == "HoodieRequestedReplaceMetadata":
        fields = {
            "operationType": _optional("string"),
            "clusteringPlan": _optional(_clustering_plan()),
            "extraMetadata": _optional(_STRINGS),
            **_VERSION,
        }
    else:
        fields = _commit_fields()
        if name == "HoodieReplaceCommitMetadata":
            fields["partitionToReplaceFileIds"] = _optional({"type": "map", "values": _STRING_LIST})
        if without_stats:
            del fields["partitionToWriteStats"]
    return fastavro.parse_schema(_record(name, fields))
