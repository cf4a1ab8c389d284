"""Data files: their names, what a folder holds, and the blocks of a log file."""

from .file_names import (
    PARTITION_METADATA,
    BaseName,
    FileGroupId,
    base_file_name,
    bucket_of,
    join,
    lies_outside,
    new_file_id,
    partition_metadata,
)
from .footer_note import NOTE, note_of
from .footers import Footers
from .foreign_formats import not_hudi
from .listing import BaseFile, Listing, LogFile, list_data_files
from .log_blocks import DELETE, NATURAL, Block, Torn, read_blocks

__all__ = [
    "DELETE",
    "NATURAL",
    "NOTE",
    "PARTITION_METADATA",
    "BaseFile",
    "BaseName",
    "Block",
    "FileGroupId",
    "Footers",
    "Listing",
    "LogFile",
    "Torn",
    "base_file_name",
    "bucket_of",
    "join",
    "lies_outside",
    "list_data_files",
    "new_file_id",
    "not_hudi",
    "note_of",
    "partition_metadata",
    "read_blocks",
]
