"""The contents of `hoodie.properties` and the schema: configuration, column types, record keys, partition paths."""

from .avro_schema import dropped_columns, from_avro, to_avro, with_meta_columns
from .avro_shape import Shape, decoder_of, refuse_other, shape_of
from .column_types import (
    META_COLUMNS,
    as_numbers,
    can_become,
    declared,
    fields_inside,
    is_held,
    optional,
    python_rows,
    python_value,
    refuse_grown_maps,
    refuse_names,
    refuse_no_columns,
    required_columns,
    storable,
    widen,
    with_column,
    with_new_fields,
    with_required,
    with_wider,
    without_column,
)
from .config import (
    BACKUP_PATH,
    COMMIT_TIME_ORDERING,
    COPY_ON_WRITE,
    MERGE_ON_READ,
    PROPERTIES_PATH,
    ROW_ID,
    STREAMS_KEY,
    TIME_UNITS,
    TableConfig,
    time_column,
)
from .java_properties import parse
from .partition_path import (
    distinct_paths,
    named_values,
    parse_partition_path,
    partition_codes,
    partition_list,
    partition_path,
    partition_paths,
    possible_values,
)
from .record_keys import (
    RECORD_KEY,
    SoughtKeys,
    Span,
    array_of_column,
    bucket_ids,
    java_span,
    joined_span,
    key_parts,
    may_be_span,
    one_array,
    record_keys,
    refuse_blank,
    refuse_key_type,
    shown,
    wide_hashes,
)
from .time_partitions import refuse_no_time, time_span, with_time_column
from .type_names import schema_of, type_of
