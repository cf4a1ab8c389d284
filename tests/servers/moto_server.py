"""moto, which imitates AWS in this process: S3 and DynamoDB for quick tests, without Java and without other programs.

Its conditional writes are atomic for one thread at a time only (it reads, compares and writes without a lock), so nothing
that contends is tested on it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

from ..thorough import THOROUGH
from . import BUCKET, KEY, Bucket, free_port
from .dynamodb_server import DynamoAt

ONE_THREAD = "moto's conditional writes are atomic for one thread only"


def stands_in(*, real: bool) -> bool:
    """Whether moto passes a contract that the real server, where there is one, passes in the same run."""
    return THOROUGH or not real


@contextmanager
def moto() -> Iterator[int]:
    """The port of a fresh imitation, with nothing in it. Credentials are not looked at."""
    port = free_port()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of each request
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    try:
        yield port
    finally:
        server.stop()


@contextmanager
def moto_s3() -> Iterator[Bucket]:
    """An empty bucket."""
    with moto() as port:
        endpoint = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3", region_name="us-east-1", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=KEY
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        options = {"access_key_id": KEY, "secret_access_key": KEY, "region": "us-east-1", "allow_http": "true"}
        yield Bucket(f"s3://{BUCKET}", port, {"endpoint": endpoint, **options})


@contextmanager
def moto_dynamodb() -> Iterator[DynamoAt]:
    """A DynamoDB without tables."""
    with moto() as port:
        yield DynamoAt(port)
