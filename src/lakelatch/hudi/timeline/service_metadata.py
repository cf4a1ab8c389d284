"""Avro records of table services: clean, savepoint, restore, and the plans of clean, clustering and compaction.

Source: the schemas that are compiled into Apache Hudi 1.2.0 (`org.apache.hudi.avro.model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..files import BaseFile, LogFile, join
from .avro_schemas import schema_of
from .commit_metadata import encode_container
from .instant import Instant

_CLUSTERING = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
_SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
MOMENT = "lakelatch.earliest"  # of a clean: from this completion time on the table's states are whole


def encode_clean_plan(content: Mapping[str, Any], *, uri: Callable[[str], str]) -> bytes:
    """Return `T.clean.requested`. ``uri`` spells a file as the JVM does, which may execute the plan."""
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
    return encode_container(schema_of("HoodieCleanerPlan"), record)


def encode_clean(content: Mapping[str, Any], *, started: str, took_ms: int) -> bytes:
    """Return `T_C.clean`."""
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
    return encode_container(schema_of("HoodieCleanMetadata"), record)


def encode_savepoint(content: Mapping[str, Any], *, at_ms: int) -> bytes:
    """Return `T_C.savepoint`."""
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
    return encode_container(schema_of("HoodieSavepointMetadata"), record)


def encode_restore(undone: Sequence[Instant], *, started: str, took_ms: int) -> bytes:
    """Return `T_C.restore`."""
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
    return encode_container(schema_of("HoodieRestoreMetadata"), record)


def encode_clustering_plan(content: Mapping[str, Any], *, uri: Callable[[str], str]) -> bytes:
    """Return `T.clustering.requested`."""
    groups = [
        {
            "slices": [
                {
                    "dataFilePath": uri(base) if base else "",
                    "deltaFilePaths": [uri(log) for log in logs],
                    "fileId": file_id,
                    "partitionPath": group["partition"],
                    "bootstrapFilePath": "",
                    "version": 1,
                }
                for file_id, base, logs in _slices(group["partition"], group["files"])
            ],
            "metrics": {"TOTAL_IO_READ_MB": 0.0, "TOTAL_LOG_FILES": 0.0},
            "numOutputFileGroups": 1 + len(group.get("more_ids", ())),
            "extraMetadata": {},
            "version": 1,
        }
        for group in content["groups"]
    ]
    # A plan of Hudi can express the linear layout only; z-order is in the configuration of the job that executes it.
    sort = content.get("layout")
    params = {_SORT_COLUMNS: ",".join(sort["by"])} if sort else {}
    plan = {
        "inputGroups": groups,
        "strategy": {"strategyClassName": _CLUSTERING, "strategyParams": params, "version": 1},
        "extraMetadata": {},
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
        "version": 1,
    }
    record = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}
    return encode_container(schema_of("HoodieRequestedReplaceMetadata"), record)


def _slices(partition: str, names: Iterable[str]) -> list[tuple[str, str, list[str]]]:
    """Return file id, base file ("" for none) and log files of each file slice that these files make up."""
    found: dict[str, tuple[str, list[str]]] = {}
    for path in (join(partition, name) for name in names):
        if base := BaseFile.at(path, 0):
            found[base.file_id] = (path, found.get(base.file_id, ("", []))[1])
        elif log := LogFile.at(path, 0):
            found.setdefault(log.file_id, ("", []))[1].append(path)
    return [(file_id, base, logs) for file_id, (base, logs) in sorted(found.items())]


def encode_compaction_plan(content: Mapping[str, Any]) -> bytes:
    """Return `T.compaction.requested`."""
    operations = [
        {
            "baseInstantTime": group["instant"],
            "deltaFilePaths": group["logs"],
            "dataFilePath": group["base"] or None,
            "fileId": group["file_id"],
            "partitionPath": group["partition"],
            # The JVM fails on a plan without the size of the log files.
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
    return encode_container(schema_of("HoodieCompactionPlan"), record)
