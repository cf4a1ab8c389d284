import pytest

from ..servers import Bucket, azurite, versitygw


@pytest.fixture(scope="session")
def s3(tmp_path_factory) -> Bucket:
    with versitygw(tmp_path_factory.mktemp("versitygw")) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def azure(tmp_path_factory) -> Bucket:
    with azurite(tmp_path_factory.mktemp("azurite")) as bucket:
        yield bucket
