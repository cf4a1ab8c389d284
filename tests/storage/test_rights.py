"""A user of the store needs the policy of docs/storage.md: all of it, and no more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

import lakelatch

from ..servers import BUCKET, KEY, Bucket, require, versitygw
from ..servers.policies import policy

pytestmark = pytest.mark.server
SECRET = "secretsecret"
NEEDED = [action for each in json.loads(policy("storage.md"))["Statement"] for action in each["Action"]]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """One with a user "writer" who may do nothing, and a table."""
    folder = tmp_path_factory.mktemp("versitygw")
    with versitygw(folder, users=True) as bucket:
        admin = [require("versitygw"), "admin", "-a", KEY, "-s", KEY, "-er", bucket.options["endpoint"]]
        subprocess.run([*admin, "create-user", "-a", "writer", "-s", SECRET, "-r", "user"], check=True)
        table = folder / "objects" / BUCKET / "t"  # not through the server, which would be probed
        lakelatch.create(str(table), record_key="id", schema="id string, v bigint", lock="none://").close()
        yield bucket


def allow(bucket: Bucket, *, without: str = "") -> None:
    stated = json.loads(policy("storage.md").replace("BUCKET", BUCKET).replace("TABLE", "t"))
    for each in stated["Statement"]:
        each |= {"Principal": "writer", "Action": [action for action in each["Action"] if action not in without]}
    stated["Statement"] = [each for each in stated["Statement"] if each["Action"]]
    root = {"aws_access_key_id": KEY, "aws_secret_access_key": KEY, "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=bucket.options["endpoint"], **root).put_bucket_policy(
        Bucket=BUCKET, Policy=json.dumps(stated)
    )


def opened(bucket: Bucket) -> lakelatch.Table:
    return lakelatch.open(
        f"{bucket.url}/t", storage=bucket.options | {"access_key_id": "writer", "secret_access_key": SECRET}
    )


def work(bucket: Bucket, number: int) -> list[dict[str, Any]]:
    with opened(bucket) as table:
        table.upsert([{"id": "a", "v": number}])
        table.savepoint(table.timeline().commits[-1].requested)
        table.clean(retain_commits=0)
        return table.read().to_arrow().to_pylist()


def test_a_writer_needs_no_more_than_the_documented_policy(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    allow(bucket)
    for number in range(2):
        assert work(bucket, number) == [{"id": "a", "v": number}]
    assert not [each for each in caplog.records if each.levelname == "WARNING" and "lakelatch" in each.name]


@pytest.mark.parametrize("action", NEEDED)
def test_a_writer_needs_each_action_of_the_policy(
    bucket: Bucket, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    allow(bucket, without=action)
    if action == "s3:DeleteObject":  # it writes, and leaves what it should delete
        work(bucket, 5)
        assert "was not deleted" in caplog.text
    else:
        with pytest.raises(lakelatch.StorageError):
            work(bucket, 5)


def test_a_reader_needs_two_of_them(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    allow(bucket)
    work(bucket, 7)
    allow(bucket, without="s3:PutObject s3:DeleteObject")
    with opened(bucket) as table:
        assert table.read().to_arrow().to_pylist() == [{"id": "a", "v": 7}]
        with pytest.raises(lakelatch.StorageError):
            table.upsert([{"id": "a", "v": 8}])
