"""Whatever bytes others leave, the answer is a value or one of our errors: no crash, no endless work, nothing deleted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ..thorough import THOROUGH
from .targets import GROUP, TARGETS, T

NODE = ["_c_0-lock-0000000000"]
FOUND: list[tuple[str, Any]] = [
    (
        "schemas of other types",
        '{"type": {"type": "int"}, "name": "t", "fields": [{"name": "x", "type": ["null", null]}]}',
    ),
    ("DynamoDB items of any kind", {"lakelatchFence": {"N": "0.5"}}),
    ("DynamoDB items of any kind", {"lakelatchFence": {"N": "-1"}}),
    ("DynamoDB items of any kind", {"leaseDuration": {"S": "nan"}}),
    (
        "DynamoDB items of any kind",
        {"ownerName": {"S": "o"}, "lakelatchHolder": {"S": '{"owner": "o", "since": "x", "pid": [1]}'}},
    ),
    ("ZooKeeper nodes", (NODE, b'{"owner": null, "host": "h", "pid": 1, "since": 1.5}')),
    ("ZooKeeper nodes", (NODE, b'{"owner": "o", "host": "h", "pid": "1", "since": "now", "reason": 7}')),
    ("Redis locks", b'o\n7\n1000\n{"reason": "r", "host": "h", "pid": 1e999}'),
    (
        "lock files",
        b'{"key": "k", "owner": "o", "process": null, "lease_s": NaN, "since": 1.0, "until": 2.0, "reason": "r"}',
    ),
    ("notes of streams", b"[" * 2000),
    ("numbers of batches", b"[" * 2000),
    ("declared streams", b'{"streams": [], "bucket_count": Infinity, "since": "2"}'),
    ("declared streams", b"[" * 2000),
    ("creations", b'{"v": 1, "properties": "", "epoch": Infinity, "opening": ""}'),
    ("floors of streams", b"AAAAgA=="),
    ("file names", f"..{GROUP}_{T}.log.1_-0-0.cdc"),
    ("file names", f"{GROUP}_.0-0_{T}.parquet"),
]


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_of_others_end_in_a_value_or_in_a_sentence(name):
    target = TARGETS[name]
    # The deadline is no measure of speed: endless work passes any.
    run = given(target.given)(target.__call__)
    settings(max_examples=60 if THOROUGH else 25, deadline=20_000, suppress_health_check=list(HealthCheck))(run)()


@pytest.mark.parametrize(("name", "value"), FOUND)
def test_what_once_crashed_does_not(name: str, value: Any) -> None:
    TARGETS[name](value)
