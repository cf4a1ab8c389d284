"""Texts as codes of a dictionary, from the file that is read to the file that is written.

A column of few distinct texts is stored as a dictionary and codes. Reading, moving and writing the codes saves most of a
rewrite's cost for such columns: no text is made, copied or looked up.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = pa.dictionary(pa.int32(), pa.string())
_DICTIONARY = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


def stored_texts(metadata: pq.FileMetaData, *, but: Collection[str] = ()) -> list[str]:
    """Return the text columns that every row group stores with a dictionary. Asking Arrow for a dictionary of others costs
    more.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    without = {
        chunk.path_in_schema
        for group in groups
        for chunk in map(group.column, range(group.num_columns))
        if _DICTIONARY.isdisjoint(chunk.encodings)
    }
    texts = (field.name for field in metadata.schema.to_arrow_schema() if pa.types.is_string(field.type))
    return [name for name in texts if name not in without and name not in but]


def holds(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of ``kind`` are those of ``wanted``; texts may be in a dictionary."""
    texts = pa.types.is_string(wanted) and pa.types.is_dictionary(kind)
    return bool(kind == wanted or (texts and kind.value_type == wanted))


def plain(column: Any) -> Any:
    """Return the column without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def cast(column: Any, kind: pa.DataType) -> Any:
    """Return the column in this type, which may be a dictionary."""
    if column.type == kind:
        return column
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    return plain(column).cast(kind.value_type).dictionary_encode()


def joined(column: Any) -> pa.DictionaryArray:
    """Return one array with one dictionary."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.unify_dictionaries().chunks)


def without_unused(column: Any) -> pa.DictionaryArray:
    """Return the column as `TEXTS`, without unused values: a deleted row's text must not stay in the file."""
    whole = joined(column)
    codes = np.asarray(whole.indices.drop_null())
    used = np.zeros(len(whole.dictionary), bool)
    used[codes] = True
    if used.all() and whole.type == TEXTS:
        return whole
    places = pa.array(np.cumsum(used, dtype=np.int32) - np.int32(1))
    return pa.DictionaryArray.from_arrays(places.take(whole.indices), whole.dictionary.filter(pa.array(used)))


def filled(column: Any, text: str) -> pa.DictionaryArray:
    """Return the column with this text in place of nulls."""
    whole = joined(column)
    if not whole.null_count:
        return whole
    # A text that is in the dictionary already must not be there twice.
    known = whole.dictionary.index(text).as_py()
    values = whole.dictionary if known >= 0 else pa.concat_arrays([whole.dictionary, pa.array([text])])
    code = known if known >= 0 else len(whole.dictionary)
    return pa.DictionaryArray.from_arrays(whole.indices.fill_null(code), values)
