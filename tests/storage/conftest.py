import pytest

from ..servers import Bucket, azurite, versitygw
from ..servers.moto_server import moto_s3


@pytest.fixture(scope="session")
def s3(tmp_path_factory) -> Bucket:
    with versitygw(tmp_path_factory.mktemp("versitygw")) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def azure(tmp_path_factory) -> Bucket:
    with azurite(tmp_path_factory.mktemp("azurite")) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def imitation() -> Bucket:
    """S3 as moto has it: for one thread, and there on every machine."""
    with moto_s3() as bucket:
        yield bucket
