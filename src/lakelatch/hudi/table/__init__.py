"""What `hoodie.properties` and the schema say: configuration, column types, record keys, partition paths."""

from .avro_schema import from_avro, to_avro, with_meta_columns
from .avro_shape import Shape, decoder_of, refuse_other, shape_of
from .column_types import META_COLUMNS, as_numbers, is_held, python_value, storable, widen, with_column, with_wider
from .config import (
    BACKUP_PATH,
    COMMIT_TIME_ORDERING,
    COPY_ON_WRITE,
    EVENT_TIME_ORDERING,
    MERGE_ON_READ,
    PROPERTIES_PATH,
    STREAMS_KEY,
    V8_MERGE,
    TableConfig,
)
from .java_properties import parse
from .key_order import SoughtKeys, Span, java_span, joined_span, may_be_span
from .partition_path import (
    distinct_paths,
    parse_partition_path,
    partition_codes,
    partition_list,
    partition_path,
    partition_paths,
)
from .partition_values import named_values, possible_values
from .record_keys import (
    RECORD_KEY,
    bucket_ids,
    key_parts,
    record_keys,
    refuse_blank,
    refuse_key_type,
    shown,
    wide_hashes,
)

__all__ = [
    "BACKUP_PATH",
    "COMMIT_TIME_ORDERING",
    "COPY_ON_WRITE",
    "EVENT_TIME_ORDERING",
    "MERGE_ON_READ",
    "META_COLUMNS",
    "PROPERTIES_PATH",
    "RECORD_KEY",
    "STREAMS_KEY",
    "V8_MERGE",
    "Shape",
    "SoughtKeys",
    "Span",
    "TableConfig",
    "as_numbers",
    "bucket_ids",
    "decoder_of",
    "distinct_paths",
    "from_avro",
    "is_held",
    "java_span",
    "joined_span",
    "key_parts",
    "may_be_span",
    "named_values",
    "parse",
    "parse_partition_path",
    "partition_codes",
    "partition_list",
    "partition_path",
    "partition_paths",
    "possible_values",
    "python_value",
    "record_keys",
    "refuse_blank",
    "refuse_key_type",
    "refuse_other",
    "shape_of",
    "shown",
    "storable",
    "to_avro",
    "wide_hashes",
    "widen",
    "with_column",
    "with_meta_columns",
    "with_wider",
]
