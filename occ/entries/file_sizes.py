"""The target sizes of a table's files: from its settings, else its properties by Hudi's names, else a default."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ConfigError

if TYPE_CHECKING:
    from ...hudi.table import TableConfig
    from .settings import Settings

TARGET_BYTES = 120 << 20  # Apache Hudi's hoodie.parquet.max.file.size
# Hudi's hoodie.parquet.small.file.limit is 100 MiB: each insert of a few rows then rewrites a file of up to that size.
# A file of 4 MiB is rewritten in a moment, and clustering joins larger ones.
SMALL_BYTES = 4 << 20
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TARGET, _SMALL = "hoodie.parquet.max.file.size", "hoodie.parquet.small.file.limit"


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes: new rows of an upsert join a file of less than ``small`` bytes, up to ``target`` bytes; 0: none."""

    target: int = TARGET_BYTES
    small: int = SMALL_BYTES

    @classmethod
    def of(cls, settings: Settings, config: TableConfig) -> FileSizes:
        """The sizes of a table.

        Raises:
            ConfigError: a property is no number, and no setting overrides it.
        """
        target = settings.target_file_bytes
        if target is None:
            target = _told(config, _TARGET, "target_file_bytes", TARGET_BYTES, least=1)
        small = settings.small_file_bytes
        if small is None:
            small = _told(config, _SMALL, "small_file_bytes", SMALL_BYTES, least=0)
        # A file of the target size must never count as small.
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
    return max(found, 0)  # for Hudi every limit that is not positive means that no file is small
