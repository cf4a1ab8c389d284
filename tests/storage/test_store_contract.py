"""Every kind of store keeps the same promises."""

import uuid

import pytest

from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.store_contract import StoreContract

from ..servers import find
from ..servers.moto_server import ONE_THREAD, stands_in

RACES = {
    "test_one_of_sixteen_processes_wins_each_path",
    "test_a_counter_of_eight_processes_loses_nothing",
    "test_nobody_reads_a_torn_body",
    "test_the_probe_accepts_it",
}


class TestLocal(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "made on demand")


class TestLocalWithoutUnnamedFiles(StoreContract):
    """As on file systems that have no O_TMPFILE."""

    @pytest.fixture
    def store(self, tmp_path):
        store = LocalStore(tmp_path)
        store.unnamed_files = False
        return store


@pytest.mark.thorough
class TestLocalTableWithoutUnnamedFiles(TestLocalWithoutUnnamedFiles):
    """In a table, temporary files go to our own folder."""

    @pytest.fixture
    def store(self, tmp_path):
        (tmp_path / ".hoodie").mkdir()
        store = LocalStore(tmp_path)
        store.unnamed_files = False
        return store


@pytest.mark.server
class TestS3(StoreContract):
    @pytest.fixture
    def store(self, s3):
        return s3.store(f"{uuid.uuid4()}/t able")


if stands_in(real=find("versitygw") is not None):

    class TestS3OnMoto(StoreContract):
        """Needs nothing but Python; what one thread can show."""

        @pytest.fixture(autouse=True)
        def _one_thread(self, request):
            if request.node.originalname in RACES:
                pytest.skip(ONE_THREAD)

        @pytest.fixture
        def store(self, imitation):
            return imitation.store(f"{uuid.uuid4()}/t able")


@pytest.mark.server
class TestAzure(StoreContract):
    @pytest.fixture
    def store(self, azure):
        return azure.store(f"{uuid.uuid4()}/t able")
