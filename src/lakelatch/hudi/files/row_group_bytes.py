"""Row groups of a Parquet file as bytes: their position, and the footer that describes them at another position.

A file that differs from an older one in a few row groups copies the others without decoding them.

Source: Apache Parquet, `parquet.thrift` (the numbers of the fields) and "File Format".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from .thrift_compact import I64, LIST, STRUCT, Elements, Field, Struct, decode, encode

MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4  # FileMetaData
_NAME = 4  # SchemaElement
_COLUMNS, _TOTAL_BYTES, _ROWS, _FIRST_BYTE, _COMPRESSED = 1, 2, 3, 5, 6  # RowGroup
_CHUNK_OFFSET, _META = 2, 3  # ColumnChunk; 4 to 7 say where its page index is, 8 and 9 how it is encrypted
_CHUNKS_OWN = frozenset({1, _CHUNK_OFFSET, _META})
_ENCRYPTED = frozenset({8, 9})
_PATH, _RAW_SIZE, _SIZE, _DATA, _INDEX, _DICTIONARY = 3, 6, 7, 9, 10, 11  # ColumnMetaData
_OFFSETS = (_DATA, _INDEX, _DICTIONARY)
_BLOOM = (14, 15)  # offset and length of a bloom filter, which is stored elsewhere in the file


@dataclass(frozen=True)
class Chunk:
    """One column of a row group: ``size`` bytes from ``start`` on; ``told`` is its entry in the footer."""

    path: tuple[str, ...]
    start: int
    size: int
    told: Struct

    def at(self, start: int) -> Struct:
        """Return its footer entry for another start, without page index and bloom filter, which are not copied."""
        by = start - self.start
        meta = {n: f for n, f in self.told[_META].value.items() if n not in _BLOOM}
        meta |= {n: Field(I64, meta[n].value + by) for n in _OFFSETS if n in meta}
        own = {n: f for n, f in self.told.items() if n in _CHUNKS_OWN}
        old = own[_CHUNK_OFFSET].value
        return own | {_CHUNK_OFFSET: Field(I64, old + by if old else 0), _META: Field(STRUCT, meta)}


class RawFooter:
    """The footer of a Parquet file, field by field as it is stored.

    Raises:
        ValueError: the bytes are no footer.
    """

    def __init__(self, body: bytes) -> None:
        self._told = decode(body)
        if _ROW_GROUPS not in self._told or _SCHEMA not in self._told:
            raise ValueError("the footer names no row groups or no columns")

    @classmethod
    def of(cls, stream: IO[bytes]) -> RawFooter:
        """Read the footer of a whole file."""
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(end - _TAIL.size, 0))
        size, magic = _TAIL.unpack(stream.read(_TAIL.size).rjust(_TAIL.size))
        if magic != MAGIC or size > end:
            raise ValueError("the file does not end as a Parquet file does")
        stream.seek(end - _TAIL.size - size)
        return cls(stream.read(size))

    @property
    def columns(self) -> list[Struct]:
        """The columns' names and types, without the name of the root, which differs between writers."""
        root, *rest = self._told[_SCHEMA].value.values
        return [{n: f for n, f in root.items() if n != _NAME}, *rest]

    def chunks(self, row_group: int) -> list[Chunk]:
        """Return the columns of a row group; [] if they cannot be copied because they are encrypted."""
        return _chunks(self._told[_ROW_GROUPS].value.values[row_group])

    def joined(self, lie: Sequence[int | tuple[int, Sequence[Struct]]]) -> bytes:
        """Return the footer of a file with these row groups, in order.

        Args:
            lie: for an own row group the bytes by which it moves; for another one its number of rows, and its columns as
                `Chunk.at` returns them.
        """
        own = iter(self._told[_ROW_GROUPS].value.values)
        groups = [_moved(next(own), each) if isinstance(each, int) else _row_group(*each) for each in lie]
        rows = sum(group[_ROWS].value for group in groups)
        return encode(
            self._told | {_NUM_ROWS: Field(I64, rows), _ROW_GROUPS: Field(LIST, Elements(STRUCT, groups))},
        )


def _chunks(row_group: Struct) -> list[Chunk]:
    found = []
    for told in row_group[_COLUMNS].value.values:
        if not _ENCRYPTED.isdisjoint(told) or _META not in told:
            return []
        meta = told[_META].value
        path = tuple(part.decode() for part in meta[_PATH].value.values)
        # Some writers name a dictionary page at 0 where there is none.
        start = min(meta[n].value for n in _OFFSETS if n in meta and meta[n].value > 0)
        found.append(Chunk(path, start, meta[_SIZE].value, told))
    return found


def _moved(row_group: Struct, by: int) -> Struct:
    if not by:
        return row_group
    return _row_group(row_group[_ROWS].value, [each.at(each.start + by) for each in _chunks(row_group)])


def ending(footer: bytes) -> bytes:
    """Return the last bytes of a file with this footer."""
    return footer + _TAIL.pack(len(footer), MAGIC)


def _row_group(rows: int, columns: Sequence[Struct]) -> Struct:
    metas = [column[_META].value for column in columns]
    return {
        _COLUMNS: Field(LIST, Elements(STRUCT, list(columns))),
        _TOTAL_BYTES: Field(I64, sum(meta[_RAW_SIZE].value for meta in metas)),
        _ROWS: Field(I64, rows),
        _FIRST_BYTE: Field(
            I64, min(meta[n].value for meta in metas for n in _OFFSETS if n in meta and meta[n].value > 0)
        ),
        _COMPRESSED: Field(I64, sum(meta[_SIZE].value for meta in metas)),
    }
