"""How large a table's files are to become: what its settings say, else its properties by Hudi's names, else a default."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ConfigError

if TYPE_CHECKING:
    from ...hudi.table import TableConfig
    from .settings import Settings

TARGET_BYTES = 120 << 20  # Apache Hudi's hoodie.parquet.max.file.size
# Its hoodie.parquet.small.file.limit is 100 MiB there: each insert of a few rows then writes a file of up to that size anew.
# A file of 4 MiB is written in a moment, and clustering joins what is larger.
SMALL_BYTES = 4 << 20
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TARGET, _SMALL = "hoodie.parquet.max.file.size", "hoodie.parquet.small.file.limit"


@dataclass(frozen=True, slots=True)
class FileSizes:
    """New rows of an upsert join a file of less than ``small`` bytes, until it has ``target`` bytes; 0: none."""

    target: int = TARGET_BYTES
    small: int = SMALL_BYTES

    @classmethod
    def of(cls, settings: Settings, config: TableConfig) -> FileSizes:
        """Those of a table.

        Raises:
            ConfigError: a property is no number, and no setting stands in its place.
        """
        target = settings.target_file_bytes
        if target is None:
            target = _told(config, _TARGET, "target_file_bytes", TARGET_BYTES, least=1)
        small = settings.small_file_bytes
        if small is None:
            small = _told(config, _SMALL, "small_file_bytes", SMALL_BYTES, least=0)
        return cls(target, min(small, target))


def _told(config: TableConfig, key: str, setting: str, default: int, *, least: int) -> int:
    text = config.raw.get(key)
    if text is None:
        return default
    found = int(text) if _NUMBER.fullmatch(text) else None
    if found is None or found < least > 0:
        raise ConfigError(
            f"the properties of table {config.name} say {key}={text!r:.80}, which is no size of a file; nothing was written. "
            f"Correct it, or set {setting}, which comes before it",
            setting=setting,
        )
    return max(found, 0)  # to Hudi all small limits that are not positive say that no file is small
