"""Avro records of table services: clean, savepoint, restore, and the plans of clean, clustering and compaction.

Source: the schemas that are compiled into Apache Hudi 1.2.0 (`org.apache.hudi.avro.model`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .avro import encode_container
from .avro_schemas import _STRING_LIST, _STRINGS, _VERSION, _all_optional, _optional, _record, schema_of
from .instant import Instant
from .names import join

_STRING = {"type": "string"}
_CLUSTERING = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
MOMENT = "lakelatch.earliest"  # of a clean: from this completion time on the table's states are kept


def encode_clean_plan(content: Mapping[str, Any], *, uri: Callable[[str], str]) -> bytes:
    """`T.clean.requested`. ``uri`` spells a file as the JVM does, which may execute the plan."""
    files = {
        partition: [{"filePath": uri(join(partition, name)), "isBootstrapBaseFile": False} for name in names]
        for partition, names in content["slices"].items()
    }
    record = {
        "earliestInstantToRetain": {
            "timestamp": content["earliest"]["T"],
            "action": content["earliest"]["action"],
            "state": "COMPLETED",
        },
        "lastCompletedCommitTimestamp": content["last"],
        "policy": content["policy"],
        "filesToBeDeletedPerPartition": {},
        "filePathsToBeDeletedPerPartition": files,
        "partitionsToBeDeleted": [],
        "extraMetadata": {MOMENT: content["earliest"]["C"]},
        "version": 2,
    }
    return encode_container(_schema("HoodieCleanerPlan"), record)


def encode_clean(content: Mapping[str, Any], *, started: str, took_ms: int) -> bytes:
    """`T_C.clean`."""
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": content["policy"],
            "deletePathPatterns": names,
            "successDeleteFiles": names,
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
        for partition, names in content["slices"].items()
    }
    record = {
        "startCleanTime": started,
        "timeTakenInMillis": took_ms,
        "totalFilesDeleted": sum(len(names) for names in content["slices"].values()),
        "earliestCommitToRetain": content["earliest"]["T"],
        "lastCompletedCommitTimestamp": content["last"],
        "partitionMetadata": partitions,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {MOMENT: content["earliest"]["C"]},
        "version": 2,
    }
    return encode_container(_schema("HoodieCleanMetadata"), record)


def encode_savepoint(content: Mapping[str, Any], *, at_ms: int) -> bytes:
    """`T_C.savepoint`."""
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": names}
        for partition, names in content["slices"].items()
    }
    record = {
        "savepointedBy": content["by"],
        "savepointedAt": at_ms,
        "comments": content["comment"],
        "partitionMetadata": partitions,
        "version": 1,
    }
    return encode_container(_schema("HoodieSavepointMetadata"), record)


def encode_restore(undone: Sequence[Instant], *, started: str, took_ms: int) -> bytes:
    """`T_C.restore`."""
    named = [{"commitTime": each.requested, "action": each.action} for each in undone]
    rolled = {
        each.requested: [
            {
                "startRollbackTime": started,
                "timeTakenInMillis": 0,
                "totalFilesDeleted": 0,
                "commitsRollback": [each.requested],
                "partitionMetadata": {},
                "instantsRollback": [info],
                "version": 1,
            }
        ]
        for each, info in zip(undone, named, strict=True)
    }
    record = {
        "startRestoreTime": started,
        "timeTakenInMillis": took_ms,
        "instantsToRollback": [each.requested for each in undone],
        "hoodieRestoreMetadata": rolled,
        "restoreInstantInfo": named,
        "version": 1,
    }
    return encode_container(_schema("HoodieRestoreMetadata"), record)


def encode_clustering_plan(content: Mapping[str, Any], *, uri: Callable[[str], str]) -> bytes:
    """`T.clustering.requested`."""
    groups = [
        {
            "slices": [
                {
                    "dataFilePath": uri(join(group["partition"], name)),
                    "deltaFilePaths": [],
                    "fileId": name.partition("_")[0],
                    "partitionPath": group["partition"],
                    "bootstrapFilePath": "",
                    "version": 1,
                }
                for name in group["files"]
            ],
            "metrics": {"TOTAL_IO_READ_MB": 0.0, "TOTAL_LOG_FILES": 0.0},
            "numOutputFileGroups": 1,
            "extraMetadata": {},
            "version": 1,
        }
        for group in content["groups"]
    ]
    plan = {
        "inputGroups": groups,
        "strategy": {"strategyClassName": _CLUSTERING, "strategyParams": {}, "version": 1},
        "extraMetadata": {},
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
        "version": 1,
    }
    record = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}
    return encode_container(schema_of("HoodieRequestedReplaceMetadata"), record)


def encode_compaction_plan(content: Mapping[str, Any]) -> bytes:
    """`T.compaction.requested`."""
    operations = [
        {
            "baseInstantTime": group["instant"],
            "deltaFilePaths": group["logs"],
            "dataFilePath": group["base"] or None,
            "fileId": group["file_id"],
            "partitionPath": group["partition"],
            # The JVM fails where the bytes of the log files are not told.
            "metrics": {
                "TOTAL_LOG_FILES": float(len(group["logs"])),
                "TOTAL_LOG_FILES_SIZE": float(group["log_bytes"]),
            },
            "bootstrapFilePath": None,
        }
        for group in content["groups"]
    ]
    record = {
        "operations": operations,
        "extraMetadata": {},
        "version": 2,
        "strategy": None,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
    }
    return encode_container(_schema("HoodieCompactionPlan"), record)


# --- schemas -----------------------------------------------------------------------------------------------------


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


def _restore() -> dict[str, Any]:
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
    rollback = _record(
        "HoodieRollbackMetadata",
        {
            "startRollbackTime": _STRING,
            "timeTakenInMillis": {"type": "long"},
            "totalFilesDeleted": {"type": "int"},
            "commitsRollback": {"type": _STRING_LIST},
            "partitionMetadata": _map(partition),
            **_VERSION,
            "instantsRollback": {**_list(info), "default": []},
        },
    )
    return {
        "startRestoreTime": _STRING,
        "timeTakenInMillis": {"type": "long"},
        "instantsToRollback": {"type": _STRING_LIST},
        "hoodieRestoreMetadata": _map({"type": "array", "items": ["null", rollback]}),
        **_VERSION,
        "restoreInstantInfo": {**_list("HoodieInstantInfo"), "default": []},
    }


_FIELDS = {
    "HoodieCleanerPlan": _clean_plan,
    "HoodieCleanMetadata": _clean,
    "HoodieCompactionPlan": _compaction_plan,
    "HoodieSavepointMetadata": _savepoint,
    "HoodieRestoreMetadata": _restore,
}


@functools.cache
def _schema(name: str) -> Any:
    import fastavro

    return fastavro.parse_schema(_record(name, _FIELDS[name]()))
