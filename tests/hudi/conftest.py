"""Tables that JVM Hudi wrote, one of each kind (tests/data/hudi_tables/INDEX.md)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lakelatch.hudi.table.config import PROPERTIES_PATH, TableConfig
from lakelatch.storage.local.store import LocalStore

_TABLES = Path(__file__).parents[1] / "data" / "hudi_tables"
_ZIPS = {str(path.relative_to(_TABLES).with_suffix("")): path for path in sorted(_TABLES.rglob("*.zip"))}


class SampleTable:
    """An unzipped table of its own, with its properties."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = LocalStore(root)
        stored = self.store.get(PROPERTIES_PATH)
        assert stored is not None
        self.config = TableConfig.from_bytes(stored.body)

    @property
    def lance(self) -> bool:
        return self.config.base_file_format == "LANCE"


def unzip(name: str, folder: Path) -> SampleTable:
    with zipfile.ZipFile(_ZIPS[name]) as archive:
        # Some were zipped on a Mac and hold files about files.
        archive.extractall(folder, [each for each in archive.namelist() if not each.startswith("__MACOSX")])
    return SampleTable(folder / name.rpartition("/")[2])


@pytest.fixture(scope="session", params=sorted(_ZIPS))
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SampleTable:
    """Each sample table in turn; only to be read."""
    return unzip(request.param, tmp_path_factory.mktemp("table"))


@pytest.fixture
def clustered(tmp_path: Path) -> SampleTable:
    """A copy-on-write table of version 9 with overwrite and clustering, free to be damaged."""
    return unzip("sample_table/cow/v9_txns_simple_nometa", tmp_path)


@pytest.fixture
def merge_on_read(tmp_path: Path) -> SampleTable:
    """A merge-on-read table of version 9 with deletes, compaction and clustering."""
    return unzip("sample_table/mor/avro/v9_txns_simple_nometa", tmp_path)
