"""Data files: their names, the listing of a folder, Parquet footers, and the blocks of a log file."""

from .file_names import (
    PARTITION_METADATA,
    BaseName,
    FileGroupId,
    LogName,
    base_file_name,
    bucket_of,
    join,
    lies_outside,
    log_file_name,
    new_file_id,
    partition_metadata,
)
from .footers import NOTE, STREAM_NOTE, Footers, StoredParquet, note_of, torn_is_told
from .foreign_formats import not_hudi
from .listing import BaseFile, Listing, LogFile, list_data_files
from .log_blocks import DELETE, NATURAL, PARQUET, Block, Torn, read_blocks
from .log_encoding import avro_block, delete_block, parquet_block
from .row_group_bytes import MAGIC, Chunk, RawFooter, ending
