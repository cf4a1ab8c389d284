"""The cheapest correct lock on a DynamoDB table by raw requests, and the peers, for benchmarks.locks.floors_and_faults.

Two updates per turn: one takes the lock on condition that nobody has it and counts the fencing token, one gives it back.
Who is refused asks again after a short random pause. No lease, no queue, no notice of loss: a floor, not a lock to use.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import botocore.session
from botocore.config import Config

KEY = "bench-floor"
PAUSE_S = 0.005


def _table(url: str) -> tuple[Any, str]:
    parts = urlsplit(url)
    endpoint = parse_qs(parts.query).get("endpoint", [None])[0]
    agent = botocore.session.Session().user_agent()  # else composed again for each request, twice
    quick = Config(parameter_validation=False, user_agent=agent)
    return boto3.client("dynamodb", region_name=parts.netloc, endpoint_url=endpoint, config=quick), parts.path.strip(
        "/"
    )


class Floor:
    """``url`` is a lock URL of ours, whose table must be there; ``worker`` a number."""

    def __init__(self, url: str, worker: int) -> None:
        self._client, self._name = _table(url)
        self._me = f"worker-{worker}"

    def cycle(self, hold: Callable[[], None]) -> float:
        """One turn; the seconds waited."""
        begin = time.perf_counter()
        place: dict[str, Any] = {"TableName": self._name, "Key": {"key": {"S": KEY}}}
        me = {":me": {"S": self._me}}
        while True:
            try:
                self._client.update_item(
                    **place,
                    UpdateExpression="SET heldBy = :me ADD fence :one",
                    ConditionExpression="attribute_not_exists(heldBy)",
                    ExpressionAttributeValues=me | {":one": {"N": "1"}},
                    ReturnValues="UPDATED_NEW",
                )
                break
            except self._client.exceptions.ConditionalCheckFailedException:
                time.sleep(PAUSE_S * random.random() * 2)  # nothing tells of a release
        waited_s = time.perf_counter() - begin
        hold()
        self._client.update_item(
            **place,
            UpdateExpression="REMOVE heldBy",
            ConditionExpression="heldBy = :me",
            ExpressionAttributeValues=me,
        )
        return waited_s

    def close(self) -> None:
        self._client.close()


class PythonDynamodbLock:
    """python-dynamodb-lock, with as short a pause between looks as the floor's. Its table is its own."""

    TABLE = "bench-python-dynamodb-lock"

    def __init__(self, url: str, worker: int) -> None:
        from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

        logging.getLogger("python_dynamodb_lock").setLevel(logging.ERROR)
        client, _ = _table(url)
        self._make(client)
        parts = urlsplit(url)
        endpoint = parse_qs(parts.query).get("endpoint", [None])[0]
        resource = boto3.resource("dynamodb", region_name=parts.netloc, endpoint_url=endpoint)
        self._locks = DynamoDBLockClient(resource, table_name=self.TABLE, owner_name=f"worker-{worker}")

    def _make(self, client: Any) -> None:
        names = {"lock_key": "HASH", "sort_key": "RANGE"}
        with suppress(client.exceptions.ResourceInUseException):
            client.create_table(
                TableName=self.TABLE,
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
                BillingMode="PAY_PER_REQUEST",
            )
        client.get_waiter("table_exists").wait(TableName=self.TABLE, WaiterConfig={"Delay": 1})

    def cycle(self, hold: Callable[[], None]) -> float:
        begin = time.perf_counter()
        lock = self._locks.acquire_lock("bench", retry_period=timedelta(seconds=PAUSE_S))
        waited_s = time.perf_counter() - begin
        hold()
        lock.release()
        return waited_s

    def close(self) -> None:
        self._locks.close()


PEERS = {"python-dynamodb-lock": PythonDynamodbLock}
