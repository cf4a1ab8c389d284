"""Schemas of the Avro records that this library writes into instants, field for field as Hudi 1.x declares them.

Source: the schemas that are compiled into Apache Hudi 1.2.0 (`org.apache.hudi.avro.model`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ..table import Shape, shape_of

_NAMESPACE = "org.apache.hudi.avro.model"


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def _record(name: str, fields: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [{"name": key, **spec} for key, spec in fields.items()]
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": listed}


def _all_optional(kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {name: _optional(kind) for name in names}


_STRING = {"type": "string"}
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


def _replace_commit_fields() -> dict[str, dict[str, Any]]:
    replaced = _optional({"type": "map", "values": _STRING_LIST})
    return _commit_fields() | {"partitionToReplaceFileIds": replaced}


def _requested_replace_fields() -> dict[str, dict[str, Any]]:
    return {
        "operationType": _optional("string"),
        "clusteringPlan": _optional(_clustering_plan()),
        "extraMetadata": _optional(_STRINGS),
        **_VERSION,
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


def _map(values: Any) -> dict[str, Any]:
    return {"type": {"type": "map", "values": values}}


def _list(items: Any) -> dict[str, Any]:
    return {"type": {"type": "array", "items": items}}


def _lists(*names: str) -> dict[str, Any]:
    return {name: {"type": _STRING_LIST} for name in names}


def _clean_plan() -> dict[str, Any]:
    instant = _record("HoodieActionInstant", {"timestamp": _STRING, "action": _STRING, "state": _STRING})
    file = _record(
        "HoodieCleanFileInfo",
        {**_all_optional("string", ["filePath"]), **_all_optional("boolean", ["isBootstrapBaseFile"])},
    )
    return {
        "earliestInstantToRetain": _optional(instant),
        "lastCompletedCommitTimestamp": {"type": "string", "default": ""},
        "policy": _STRING,
        "filesToBeDeletedPerPartition": _optional({"type": "map", "values": _STRING_LIST}),
        **_VERSION,
        "filePathsToBeDeletedPerPartition": _optional({"type": "map", "values": {"type": "array", "items": file}}),
        "partitionsToBeDeleted": _optional(_STRING_LIST),
        "extraMetadata": _optional(_STRINGS),
    }


def _compaction_plan() -> dict[str, Any]:
    metrics = _optional({"type": "map", "values": "double"})
    operation = _record(
        "HoodieCompactionOperation",
        {
            **_all_optional("string", ["baseInstantTime"]),
            "deltaFilePaths": _optional(_STRING_LIST),
            **_all_optional("string", ["dataFilePath", "fileId", "partitionPath"]),
            "metrics": metrics,
            **_all_optional("string", ["bootstrapFilePath"]),
        },
    )
    strategy = _record(
        "HoodieCompactionStrategy",
        {**_all_optional("string", ["compactorClassName"]), "strategyParams": _optional(_STRINGS), **_VERSION},
    )
    return {
        "operations": _optional({"type": "array", "items": operation}),
        "extraMetadata": _optional(_STRINGS),
        **_VERSION,
        "strategy": _optional(strategy),
        "preserveHoodieMetadata": {"type": ["boolean", "null"], "default": False},
        "missingSchedulePartitions": _optional(_STRING_LIST),
    }


def _clean() -> dict[str, Any]:
    partition = _record(
        "HoodieCleanPartitionMetadata",
        {
            "partitionPath": _STRING,
            "policy": _STRING,
            **_lists("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles"),
            **_all_optional("boolean", ["isPartitionDeleted"]),
        },
    )
    return {
        "startCleanTime": _STRING,
        "timeTakenInMillis": {"type": "long"},
        "totalFilesDeleted": {"type": "int"},
        "earliestCommitToRetain": _STRING,
        "lastCompletedCommitTimestamp": {"type": "string", "default": ""},
        "partitionMetadata": _map(partition),
        **_VERSION,
        "bootstrapPartitionMetadata": _optional({"type": "map", "values": "HoodieCleanPartitionMetadata"}),
        "extraMetadata": _optional(_STRINGS),
    }


def _savepoint() -> dict[str, Any]:
    partition = _record(
        "HoodieSavepointPartitionMetadata", {"partitionPath": _STRING, "savepointDataFile": {"type": _STRING_LIST}}
    )
    return {
        "savepointedBy": _STRING,
        "savepointedAt": {"type": "long"},
        "comments": _STRING,
        "partitionMetadata": _map(partition),
        **_VERSION,
    }


def _rollback() -> dict[str, Any]:
    lengths = _optional({"type": "map", "values": "long"})
    partition = _record(
        "HoodieRollbackPartitionMetadata",
        {
            "partitionPath": _STRING,
            **_lists("successDeleteFiles", "failedDeleteFiles"),
            "rollbackLogFiles": lengths,
            "logFilesFromFailedCommit": lengths,
        },
    )
    info = _record("HoodieInstantInfo", {"commitTime": _STRING, "action": _STRING})
    return {
        "startRollbackTime": _STRING,
        "timeTakenInMillis": {"type": "long"},
        "totalFilesDeleted": {"type": "int"},
        "commitsRollback": {"type": _STRING_LIST},
        "partitionMetadata": _map(partition),
        **_VERSION,
        "instantsRollback": {**_list(info), "default": []},
    }


def _restore() -> dict[str, Any]:
    rollback = _record("HoodieRollbackMetadata", _rollback())
    return {
        "startRestoreTime": _STRING,
        "timeTakenInMillis": {"type": "long"},
        "instantsToRollback": {"type": _STRING_LIST},
        "hoodieRestoreMetadata": _map({"type": "array", "items": ["null", rollback]}),
        **_VERSION,
        "restoreInstantInfo": {**_list("HoodieInstantInfo"), "default": []},
    }


_FIELDS = {
    "HoodieCommitMetadata": _commit_fields,
    "HoodieReplaceCommitMetadata": _replace_commit_fields,
    "HoodieRequestedReplaceMetadata": _requested_replace_fields,
    "HoodieCleanerPlan": _clean_plan,
    "HoodieCleanMetadata": _clean,
    "HoodieCompactionPlan": _compaction_plan,
    "HoodieSavepointMetadata": _savepoint,
    "HoodieRollbackMetadata": _rollback,
    "HoodieRestoreMetadata": _restore,
}


@functools.cache
def write_stats() -> Any:
    """Return the parsed schema of a list of HoodieWriteStat."""
    import fastavro

    return fastavro.parse_schema({"type": "array", "items": _write_stat()})


@functools.cache
def schema_of(name: str, *, without_stats: bool = False) -> Any:
    """Return the parsed schema of the named record; ``without_stats`` leaves out a commit's first field."""
    import fastavro

    fields = _FIELDS[name]()
    if without_stats:
        del fields["partitionToWriteStats"]
    return fastavro.parse_schema(_record(name, fields))


@functools.cache
def known_shape(name: str) -> Shape | None:
    """Return the shape of the named record; None if the record is unknown."""
    return shape_of(_record(name, _FIELDS[name]())) if name in _FIELDS else None
